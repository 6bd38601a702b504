//! Languages: compile steps, toolchains of the caller, and what is said when there is none.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use crate::Bench;

const HELLO: &str =
    "#include <stdio.h>\nint main(int n, char **a) { printf(\"hello %s\\n\", n > 1 ? a[1] : \"?\"); return 3; }\n";

impl Bench {
    /// A toolchain in the home: a folder with a program in its `bin` that the shell runs.
    fn toolchain(&self, place: &str, program: &str, script: &str) -> PathBuf {
        let folder = self.home().join(place);
        fs::create_dir_all(folder.join("bin")).expect("folders");
        let path = folder.join("bin").join(program);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
        folder
    }
}

#[test]
fn a_c_file_is_compiled_and_runs_with_its_arguments_and_exit_code() {
    let bench = Bench::new();
    bench.write("hello.c", HELLO);
    bench.call(["run", "hello.c", "you"]).expect(3, "hello you\n");
    bench.call(["run", "-l", "c", "-c", HELLO, "--", "-x"]).expect(3, "hello -x\n");
}

#[test]
fn a_compiled_program_reads_its_input() {
    let bench = Bench::new();
    let code = "#include <stdio.h>\nint main(void) { int c; while ((c = getchar()) != EOF) putchar(c); }\n";
    bench.write("cat.c", code);
    for _ in 0..2 {
        bench.call_with_input(["run", "cat.c"], b"in and out\n").expect(0, "in and out\n");
    }
}

#[test]
fn a_program_that_cannot_be_started_after_its_compile_step_is_an_error_and_its_run_is_recorded() {
    let bench = Bench::new();
    let script = "while [ \"$1\" != -o ]; do shift; done; echo compiled; echo '#!/bin/sh' > \"$2\"";
    let folder = bench.toolchain("broken", "gcc", script);
    let folder = folder.to_str().expect("a path");
    let error = bench.error(&["--toolchain", folder, "-l", "c", "-c", HELLO]);
    assert_eq!(error, ("command_not_executable".into(), 126));
    let listed = bench.call(["runs", "list", "--json"]).document();
    let run = listed["runs"][0]["run"].as_str().unwrap_or_else(|| panic!("nothing is recorded: {listed}")).to_owned();
    let document = bench.call(["runs", "show", &run, "--json"]).document();
    assert_eq!(document["outcome"], serde_json::json!({"kind": "exited", "code": 126}), "{document}");
    assert_eq!(document["compile"]["stdout"]["text"], "compiled\n", "{document}");
    assert_eq!(
        (&document["step"], &document["warnings"][0]["code"]),
        (&"run".into(), &"command_not_executable".into())
    );
}

#[test]
fn garbage_collection_removes_programs_that_were_never_finished() {
    let bench = Bench::new();
    bench.call(["run", "-l", "c", "-c", HELLO]).expect(3, "hello ?\n");
    let programs = bench.dir.path().join("data/programs");
    fs::create_dir(programs.join("unfinished-by-the-dead")).unwrap();
    let called = bench.call(["gc"]);
    assert!(called.text().contains("unfinished-by-the-dead"), "{called:?}");
    assert_eq!(fs::read_dir(programs).unwrap().count(), 1);
}

#[test]
fn the_result_tells_the_compile_step_from_the_run_and_a_second_run_needs_none() {
    let bench = Bench::new();
    bench.write("hello.c", HELLO);
    let first = bench.result(&["hello.c"]);
    assert_eq!((&first["step"], &first["outcome"]["code"]), (&"run".into(), &3.into()));
    assert_eq!((&first["compile"]["outcome"]["code"], &first["compile"]["cached"]), (&0.into(), &false.into()));
    assert_eq!(first["compile"]["argv"][0], "gcc");
    assert!(first["compile"]["usage"]["cpu_ms"].as_f64().unwrap() > 0.0, "{first}");
    let second = bench.result(&["hello.c"]);
    assert_eq!(second["compile"]["cached"], true, "{second}");
    assert_eq!(second["stdout"]["text"], "hello ?\n");
    bench.write("hello.c", HELLO.replace("hello", "changed"));
    let third = bench.result(&["hello.c"]);
    assert_eq!((&third["compile"]["cached"], &third["stdout"]["text"]), (&false.into(), &"changed ?\n".into()));
    assert_eq!(bench.result(&["--", "true"])["compile"], serde_json::Value::Null);
}

#[test]
fn a_file_that_does_not_compile_gives_the_compilers_words_and_exit_code() {
    let bench = Bench::new();
    bench.write("bad.c", "int main(void) { return nothing; }\n");
    let called = bench.call(["run", "bad.c"]);
    called.expect(1, "");
    assert!(called.stderr.contains("bad.c:1:25: error"), "{}", called.stderr);
    assert!(called.stderr.contains("glovebox: the program did not run"), "{}", called.stderr);
    let result = bench.result(&["bad.c"]);
    assert_eq!((&result["step"], &result["outcome"]["code"]), (&"compile".into(), &1.into()));
    assert_eq!(result["stderr"]["text"], result["compile"]["stderr"]["text"]);
}

#[test]
fn a_warning_of_the_compiler_is_not_the_programs_output() {
    let bench = Bench::new();
    bench.write("warns.c", "#warning careful\nint main(void) { return 0; }\n");
    let called = bench.call(["run", "warns.c"]);
    called.expect(0, "");
    assert!(!called.stderr.contains("careful"), "{}", called.stderr);
    let result = bench.result(&["-l", "c", "--workspace", ".", "warns.c"]);
    assert!(result["compile"]["stderr"]["text"].as_str().unwrap().contains("careful"), "{result}");
}

#[test]
fn a_source_finds_its_neighbours_in_a_workspace_and_a_lone_one_is_told_about_it() {
    let bench = Bench::new();
    bench.write("one.h", "#define N 7\n");
    bench.write("main.c", "#include \"one.h\"\nint main(void) { return N; }\n");
    let alone = bench.call(["run", "main.c"]);
    assert_eq!(alone.code, 1);
    assert!(alone.stderr.contains("--workspace ."), "{}", alone.stderr);
    bench.call(["run", "--workspace", ".", "main.c"]).expect(7, "");
    bench.write("one.h", "#define N 8\n");
    bench.call(["run", "--workspace", ".", "main.c"]).expect(8, "");
}

#[test]
fn a_compile_step_that_is_out_of_time_is_named() {
    let bench = Bench::new();
    // The preprocessor doubles until it is out of something.
    let mut code = String::from("#define A0 1+1\n");
    for n in 1..32 {
        code.push_str(&format!("#define A{n} A{0}+A{0}\n", n - 1));
    }
    code.push_str("int main(void) { return A31; }\n");
    let called = bench.call(["run", "--timeout", "500ms", "--grace", "100ms", "-l", "c", "-c", &code]);
    called.expect(124, "");
    assert!(called.stderr.contains("while compiling: timed out after 500ms"), "{}", called.stderr);
}

#[test]
fn a_toolchain_of_the_home_is_there_only_when_it_is_listed() {
    let bench = Bench::new();
    let folder = bench.toolchain(".dotnet/tools", "pwsh", "echo \"fake $(basename \"$0\")\" \"$@\"");
    bench.write("a.ps1", "Write-Output 1\n");
    let called = bench.call(["run", "a.ps1"]);
    assert_eq!(called.code, 125, "this test needs a machine without pwsh: {}", called.stderr);
    let listed = format!("toolchain = [\"{}\"]", folder.display());
    for words in ["[toolchain_not_found]", "looked for pwsh", "PowerShell 7", listed.as_str()] {
        assert!(called.stderr.contains(words), "{words}: {}", called.stderr);
    }
    let expected = "fake pwsh -NoLogo -NoProfile -NonInteractive -File a.ps1\n";
    bench.call(["run", "--toolchain", folder.to_str().unwrap(), "a.ps1"]).expect(0, expected);
    bench.call(["run", "--toolchain", "~/.dotnet/tools", "--", "pwsh"]).expect(0, "fake pwsh\n");
    fs::write(bench.home().join(".config/glovebox/config.toml"), "toolchain = ['~/.dotnet/tools']").unwrap();
    bench.call(["run", "a.ps1"]).expect(0, expected);
    bench.call(["run", "--", "sh", "-c", "echo x > ~root/y; touch \"$(command -v pwsh)\"; true"]).expect(0, "");
    assert!(fs::read_to_string(folder.join("bin/pwsh")).unwrap().contains("fake"));
}

#[test]
fn a_project_needs_trust_to_list_toolchains_and_nobody_can_list_a_whole_home() {
    let bench = Bench::new();
    bench.toolchain("tools", "pwsh", "echo fake");
    bench.write("glovebox.toml", "toolchain = ['~/tools']");
    assert_eq!(bench.error(&["--", "true"]), ("untrusted_config".into(), 125));
    fs::remove_file(bench.work().join("glovebox.toml")).unwrap();
    let home = bench.home();
    for folder in [home.to_str().unwrap(), home.parent().unwrap().to_str().unwrap(), "~/", "/"] {
        assert_eq!(bench.error(&["--toolchain", folder, "--", "true"]), ("invalid_value".into(), 2), "{folder}");
    }
    assert_eq!(bench.error(&["--toolchain", "nowhere", "--", "true"]).0, "file_not_found");
    assert_eq!(bench.error(&["--toolchain", "/proc", "--", "true"]).0, "invalid_mount");
}
