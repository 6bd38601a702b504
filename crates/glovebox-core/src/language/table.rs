//! The languages, one row each.
// tidy: table

use super::{CompileForm, Language, Way};

/// A language without anything special, that each row starts from.
const LANGUAGE: Language = Language {
    name: "",
    aliases: &[],
    endings: &[],
    ways: &[],
    strict_endings: false,
    opening: None,
    dialect_of: None,
};

/// The commonest way: `PROGRAM FILE`.
const WAY: Way = Way {
    programs: &[],
    at_least: None,
    needs: &[],
    compile: None,
    file: &["{program}", "{file}"],
    code: None,
    env: &[],
    install: "",
    homes: &[],
};

/// Where the usual managers of node's versions keep them.
const NODE_HOMES: &[&str] =
    &["~/.nvm/versions/node/*", "~/.local/share/fnm/node-versions/*/installation", "~/.volta/tools/image/node/*"];

/// Removes the types of a file by TypeScript's own library, as newer versions of node do: nothing is checked but the
/// syntax. Whether the file is a module is told to node by a package.json beside the product.
const REMOVE_TYPES: &str = r#"
const fs = require("fs"), path = require("path"), [, tsc, source, out] = process.argv;
const find = tsc.includes("/") ? tsc : process.env.PATH.split(":").map(d => path.join(d, tsc)).find(p => fs.existsSync(p));
const ts = require(path.join(path.dirname(fs.realpathSync(find)), "../lib/typescript.js"));
const text = fs.readFileSync(source, "utf8");
const isModule = ts.isExternalModule(ts.createSourceFile(source, text, ts.ScriptTarget.Latest));
const made = ts.transpileModule(text, { fileName: source, reportDiagnostics: true, compilerOptions: {
  target: ts.ScriptTarget.ES2022, module: isModule ? ts.ModuleKind.ES2022 : ts.ModuleKind.CommonJS } });
if (made.diagnostics.length) {
  const host = { getCurrentDirectory: process.cwd, getCanonicalFileName: f => f, getNewLine: () => "\n" };
  process.stderr.write(ts.formatDiagnostics(made.diagnostics, host));
  process.exit(1);
}
fs.writeFileSync(path.join(out, "main.js"), made.outputText);
fs.writeFileSync(path.join(out, "package.json"), JSON.stringify({ type: isModule ? "module" : "commonjs" }));
"#;

/// Calls the C# compiler of the SDK by itself. `dotnet build` would want a project, a package server and minutes.
const COMPILE_CSHARP: &str = r#"
root=$(dirname "$(readlink -f "$(command -v "$1")")")
last() { ls -d "$@" 2>/dev/null | sort -V | tail -n 1; }
csc=$(last "$root"/sdk/*/Roslyn/bincore/csc.dll)
[ -n "$csc" ] || { echo "there is no C# compiler below $root/sdk: this is a runtime and not an SDK" >&2; exit 1; }
runtime=$(last "$root"/shared/Microsoft.NETCore.App/*)
version=$(basename "$runtime")
for dll in "$runtime"/System*.dll "$runtime"/Microsoft*.dll "$runtime"/mscorlib.dll "$runtime"/netstandard.dll; do
  case $dll in *.Native.dll) ;; *) echo "-r:\"$dll\"" ;; esac
done > "$3/references.rsp"
# Without the ICU library that it wants, .NET ends at its first text; then both do without the rules of languages.
plain=false
"$1" exec "$csc" -version > /dev/null 2>&1 || { plain=true; export DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1; }
"$1" exec "$csc" -nologo -nostdlib -langversion:latest -out:"$3/main.dll" "@$3/references.rsp" "$2" || exit
cat > "$3/main.runtimeconfig.json" <<END
{ "runtimeOptions": { "framework": { "name": "Microsoft.NETCore.App", "version": "$version" },
  "configProperties": { "System.Globalization.Invariant": $plain } } }
END
"#;

const COMPILED: &[&str] = &["{out}/main"];

/// The JVM cannot see the sandbox's limits and would plan for the whole machine: more threads than it may have, and a
/// heap that is larger than its memory. A quarter of what it believes to have is its largest heap, which is little here.
const JVM: [&str; 3] = ["-XX:ActiveProcessorCount={cpus}", "-XX:MaxRAM={memory}", "-XX:MaxRAMPercentage=50"];

/// Every language.
pub(super) const LANGUAGES: &[Language] = &[
    Language {
        name: "python",
        aliases: &["python3", "py"],
        endings: &["py"],
        ways: &[Way {
            programs: &["python3", "python"],
            code: Some(&["{program}", "-c", "{code}"]),
            install: "apt install python3",
            homes: &["~/.pyenv/versions/*", "~/miniconda3", "~/anaconda3", "~/.local/share/uv/python/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "javascript",
        aliases: &["js", "node", "nodejs"],
        endings: &["js", "mjs", "cjs"],
        ways: &[Way {
            programs: &["node", "nodejs"],
            // Without the `--`, node would take the program's own flags for itself.
            code: Some(&["{program}", "-e", "{code}", "--"]),
            install: "apt install nodejs",
            homes: NODE_HOMES,
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "typescript",
        aliases: &["ts"],
        endings: &["ts", "mts", "cts"],
        strict_endings: true,
        ways: &[
            // Node removes types by itself from this version on; before 22.18 it has to be asked, and grumbles.
            Way {
                programs: &["node", "nodejs"],
                at_least: Some((22, 6)),
                file: &["{program}", "--experimental-strip-types", "--disable-warning=ExperimentalWarning", "{file}"],
                install: "node 22.6 or newer",
                homes: NODE_HOMES,
                ..WAY
            },
            Way { programs: &["tsx"], needs: &["node"], install: "npm install -g tsx", homes: NODE_HOMES, ..WAY },
            Way {
                programs: &["deno"],
                // The sandbox is what holds it; questions on a terminal would only hang.
                file: &["{program}", "run", "--allow-all", "--no-prompt", "{file}"],
                env: &[("DENO_NO_UPDATE_CHECK", "1")],
                install: "deno",
                homes: &["~/.deno"],
                ..WAY
            },
            Way {
                programs: &["bun"],
                file: &["{program}", "run", "{file}"],
                install: "bun",
                homes: &["~/.bun"],
                ..WAY
            },
            Way {
                programs: &["tsc"],
                needs: &["node"],
                compile: Some(CompileForm {
                    argv: &["node", "-e", REMOVE_TYPES, "--", "{program}", "{file}", "{out}"],
                    products: &["main.js", "package.json"],
                }),
                file: &["node", "{out}/main.js"],
                install: "apt install node-typescript",
                homes: NODE_HOMES,
                ..WAY
            },
        ],
        ..LANGUAGE
    },
    Language {
        name: "shell",
        aliases: &["sh"],
        endings: &["sh"],
        ways: &[Way {
            programs: &["sh"],
            // The word after the code is `$0` of the script.
            code: Some(&["{program}", "-c", "{code}", "sh"]),
            install: "apt install dash",
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "bash",
        endings: &["bash"],
        ways: &[Way {
            programs: &["bash"],
            code: Some(&["{program}", "-c", "{code}", "bash"]),
            install: "apt install bash",
            ..WAY
        }],
        dialect_of: Some("shell"),
        ..LANGUAGE
    },
    Language {
        name: "ruby",
        aliases: &["rb"],
        endings: &["rb"],
        ways: &[Way {
            programs: &["ruby"],
            code: Some(&["{program}", "-e", "{code}", "--"]),
            install: "apt install ruby",
            homes: &["~/.rbenv/versions/*", "~/.rubies/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "php",
        endings: &["php"],
        // In a file, so that code runs with its `<?php` or without.
        ways: &[Way { programs: &["php"], install: "apt install php-cli", ..WAY }],
        opening: Some("<?php\n"),
        ..LANGUAGE
    },
    Language {
        name: "perl",
        aliases: &["pl"],
        endings: &["pl"],
        ways: &[Way {
            programs: &["perl"],
            code: Some(&["{program}", "-e", "{code}", "--"]),
            install: "apt install perl",
            homes: &["~/perl5/perlbrew/perls/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "lua",
        endings: &["lua"],
        // What follows `-e CODE` would be the name of a script, so code is a file.
        ways: &[Way {
            programs: &["lua", "lua5.4", "lua5.3", "luajit"],
            install: "apt install lua5.4",
            homes: &["~/.luarocks"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "r",
        aliases: &["rscript"],
        endings: &["r"],
        ways: &[Way {
            programs: &["Rscript"],
            code: Some(&["{program}", "-e", "{code}"]),
            install: "apt install r-base-core",
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "go",
        aliases: &["golang"],
        endings: &["go"],
        strict_endings: true,
        ways: &[Way {
            programs: &["go"],
            compile: Some(CompileForm {
                // A standard library that somebody compiled ahead is used only with this word. Without one, Go from
                // 1.20 on compiles what a program needs of it anew.
                argv: &["env", "GODEBUG=installgoroot=all", "{program}", "build", "-o", "{out}/main", "{file}"],
                products: &["main"],
            }),
            file: COMPILED,
            // Its home would be taken for a place of modules, and nothing can be fetched anyway. Programs get as many
            // threads as they have CPUs, not as many as the machine has.
            env: &[
                ("GOCACHE", "/tmp/go-cache"),
                ("GOPROXY", "off"),
                ("GOTOOLCHAIN", "local"),
                ("GOTELEMETRY", "off"),
                ("GOMAXPROCS", "{cpus}"),
            ],
            install: "apt install golang-go",
            homes: &["~/go", "~/.local/go", "~/sdk/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "java",
        endings: &["java"],
        strict_endings: true,
        ways: &[Way {
            programs: &["java"],
            // The compiler in the JDK lets `java` run a single file by itself.
            needs: &["javac"],
            file: &["{program}", JVM[0], JVM[1], JVM[2], "{file}"],
            install: "apt install default-jdk-headless",
            homes: &["~/.sdkman/candidates/java/*", "~/.jdks/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "kotlin",
        aliases: &["kotlin-script", "kts"],
        endings: &["kts"],
        strict_endings: true,
        ways: &[Way {
            programs: &["kotlinc"],
            needs: &["java"],
            file: &["{program}", "-script", "{file}"],
            // The compiler's own way to get flags to its JVM.
            env: &[("JAVA_OPTS", "-Xmx512m -XX:ActiveProcessorCount={cpus}")],
            install: "apt install kotlin",
            homes: &["~/.sdkman/candidates/kotlin/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "c",
        endings: &["c"],
        ways: &[Way {
            programs: &["gcc", "cc", "clang"],
            compile: Some(CompileForm {
                argv: &["{program}", "-O1", "-o", "{out}/main", "-x", "c", "{file}", "-lm"],
                products: &["main"],
            }),
            file: COMPILED,
            install: "apt install gcc libc6-dev",
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "c++",
        aliases: &["cpp", "cxx"],
        endings: &["cpp", "cc", "cxx"],
        ways: &[Way {
            programs: &["g++", "c++", "clang++"],
            compile: Some(CompileForm {
                argv: &["{program}", "-O1", "-o", "{out}/main", "-x", "c++", "{file}"],
                products: &["main"],
            }),
            file: COMPILED,
            install: "apt install g++",
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "rust",
        aliases: &["rs"],
        endings: &["rs"],
        ways: &[Way {
            programs: &["rustc"],
            compile: Some(CompileForm {
                argv: &["{program}", "--edition", "2021", "-o", "{out}/main", "{file}"],
                products: &["main"],
            }),
            file: COMPILED,
            // The linker is the C compiler's.
            needs: &["cc"],
            install: "apt install rustc",
            homes: &["~/.rustup/toolchains/*"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "c#",
        aliases: &["csharp", "cs", "dotnet"],
        endings: &["cs"],
        ways: &[Way {
            programs: &["dotnet"],
            compile: Some(CompileForm {
                argv: &["sh", "-c", COMPILE_CSHARP, "sh", "{program}", "{file}", "{out}"],
                products: &["main.dll", "main.runtimeconfig.json"],
            }),
            file: &["{program}", "exec", "{out}/main.dll"],
            // The second mapping of all code, against bugs of the runtime itself, costs memory that counts here. Without
            // the number of processors it plans its threads for the whole machine.
            env: &[
                ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"),
                ("DOTNET_NOLOGO", "1"),
                ("DOTNET_EnableWriteXorExecute", "0"),
                ("DOTNET_PROCESSOR_COUNT", "{cpus}"),
            ],
            install: "a .NET SDK, below /usr or /opt",
            homes: &["~/.dotnet"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "powershell",
        aliases: &["pwsh", "ps1"],
        endings: &["ps1"],
        strict_endings: true,
        ways: &[Way {
            programs: &["pwsh"],
            file: &["{program}", "-NoLogo", "-NoProfile", "-NonInteractive", "-File", "{file}"],
            env: &[
                ("POWERSHELL_TELEMETRY_OPTOUT", "1"),
                ("POWERSHELL_UPDATECHECK", "Off"),
                ("DOTNET_EnableWriteXorExecute", "0"),
                ("DOTNET_PROCESSOR_COUNT", "{cpus}"),
            ],
            install: "PowerShell 7, below /usr or /opt",
            homes: &["~/.dotnet/tools"],
            ..WAY
        }],
        ..LANGUAGE
    },
    Language {
        name: "sql",
        aliases: &["sqlite", "sqlite3"],
        endings: &["sql"],
        ways: &[Way {
            programs: &["sqlite3"],
            // A database in memory; the shell opens the file, so that no name needs quotes.
            file: &["sh", "-c", "exec \"$0\" -batch -bail :memory: < \"$1\"", "{program}", "{file}"],
            code: Some(&["{program}", "-batch", "-bail", ":memory:", "{code}"]),
            install: "apt install sqlite3",
            ..WAY
        }],
        ..LANGUAGE
    },
];
