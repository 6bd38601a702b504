//! The languages that Glovebox knows: one table, and the rules that pick a row of it.
//!
//! A further language is one more row. Nothing here looks at a disk: callers bring the name and the first line of a file.

/// A language: how its files are recognised and how they are run.
#[derive(Debug, PartialEq, Eq)]
pub struct Language {
    /// The name, as in `--language` and over HTTP.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Endings of its files, without the dot. The first one is used for a file that Glovebox itself makes.
    pub endings: &'static [&'static str],
    /// Programs that run it, the preferred one first.
    pub interpreters: &'static [&'static str],
    /// What stands between the interpreter and the file.
    pub file_flags: &'static [&'static str],
    /// How code goes on the command line; `None` where it has to be a file.
    pub code: Option<CodeForm>,
    /// The language whose files may name this one in their `#!` line, as `.sh` files name bash.
    pub dialect_of: Option<&'static str>,
    /// The Debian package that brings the interpreter.
    pub package: &'static str,
}

/// How code goes on an interpreter's command line: `INTERPRETER before… CODE after… ARGS…`.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeForm {
    /// What stands before the code.
    pub before: &'static [&'static str],
    /// What stands between the code and the program's own arguments.
    pub after: &'static [&'static str],
}

/// Code longer than this is put into a file: the kernel takes at most 128 KiB in one argument.
const LONGEST_CODE_ARGUMENT: usize = 100_000;

impl Language {
    /// Every language.
    pub const ALL: &'static [Language] = &[
        Language {
            name: "python",
            aliases: &["python3", "py"],
            endings: &["py"],
            interpreters: &["python3", "python"],
            file_flags: &[],
            code: Some(CodeForm { before: &["-c"], after: &[] }),
            dialect_of: None,
            package: "python3",
        },
        Language {
            name: "javascript",
            aliases: &["js", "node", "nodejs"],
            endings: &["js", "mjs", "cjs"],
            interpreters: &["node", "nodejs"],
            file_flags: &[],
            // Without the `--`, node would take the program's own flags for itself.
            code: Some(CodeForm { before: &["-e"], after: &["--"] }),
            dialect_of: None,
            package: "nodejs",
        },
        Language {
            name: "shell",
            aliases: &["sh"],
            endings: &["sh"],
            interpreters: &["sh"],
            file_flags: &[],
            // The word after the code is `$0` of the script.
            code: Some(CodeForm { before: &["-c"], after: &["sh"] }),
            dialect_of: None,
            package: "dash",
        },
        Language {
            name: "bash",
            aliases: &[],
            endings: &["bash"],
            interpreters: &["bash"],
            file_flags: &[],
            code: Some(CodeForm { before: &["-c"], after: &["bash"] }),
            dialect_of: Some("shell"),
            package: "bash",
        },
    ];

    /// The language of a name or an alias; letters of any case.
    pub fn by_name(name: &str) -> Option<&'static Language> {
        let name = name.to_ascii_lowercase();
        Self::ALL.iter().find(|language| language.name == name || language.aliases.contains(&name.as_str()))
    }

    /// The language of a file name's ending.
    pub fn by_ending(file_name: &str) -> Option<&'static Language> {
        let (_, ending) = file_name.rsplit_once('.')?;
        let ending = ending.to_ascii_lowercase();
        Self::ALL.iter().find(|language| language.endings.contains(&ending.as_str()))
    }

    /// The language that a program such as `python3.11` runs.
    pub fn by_interpreter(program: &str) -> Option<&'static Language> {
        let unversioned = without_version(program);
        Self::ALL
            .iter()
            .find(|language| language.interpreters.iter().any(|known| without_version(known) == unversioned))
    }

    /// The language of a file: by its ending, else by its `#!` line. A dialect in the `#!` line beats the ending of
    /// the language that it is a dialect of.
    pub fn of_file(file_name: &str, shebang: Option<&Shebang>) -> Option<&'static Language> {
        let by_shebang = shebang.and_then(|shebang| Self::by_interpreter(shebang.program_name()));
        match (Self::by_ending(file_name), by_shebang) {
            (Some(ending), Some(dialect)) if dialect.dialect_of == Some(ending.name) => Some(dialect),
            (Some(ending), _) => Some(ending),
            (None, by_shebang) => by_shebang,
        }
    }

    /// The command line that runs a file of this language.
    pub fn run_file(&self, interpreter: &str, file: &str) -> Vec<String> {
        let mut argv = vec![interpreter.to_owned()];
        argv.extend(self.file_flags.iter().map(|flag| (*flag).to_owned()));
        argv.push(file.to_owned());
        argv
    }

    /// The command line that runs code of this language, or `None` where the code has to be a file called
    /// [`Language::code_file`].
    pub fn run_code(&self, interpreter: &str, code: &str) -> Option<Vec<String>> {
        let form = self.code.as_ref().filter(|_| code.len() <= LONGEST_CODE_ARGUMENT)?;
        let mut argv = vec![interpreter.to_owned()];
        argv.extend(form.before.iter().map(|word| (*word).to_owned()));
        argv.push(code.to_owned());
        argv.extend(form.after.iter().map(|word| (*word).to_owned()));
        Some(argv)
    }

    /// The name of a file that holds code which does not fit on a command line.
    pub fn code_file(&self) -> String {
        format!("main.{}", self.endings[0])
    }

    /// The names of all languages, for hints.
    pub fn names() -> String {
        Self::ALL.iter().map(|language| language.name).collect::<Vec<_>>().join(", ")
    }
}

/// What the first line of a script says about who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shebang {
    /// The program: a path, or a bare name when the line goes through `env`.
    pub program: String,
    /// Its arguments before the file.
    pub args: Vec<String>,
}

impl Shebang {
    /// Reads the `#!` line at the beginning of a file. `None` when there is none, or when it is not text.
    pub fn parse(beginning: &[u8]) -> Option<Shebang> {
        let line = beginning.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace().peekable();
        let mut program = words.next()?;
        if base_name(program) == "env" {
            words.next_if_eq(&"-S");
            program = words.next()?;
        }
        Some(Shebang { program: program.to_owned(), args: words.map(str::to_owned).collect() })
    }

    /// The program's name without its folder.
    pub fn program_name(&self) -> &str {
        base_name(&self.program)
    }

    /// The command line that runs `file` as the `#!` line says.
    pub fn run_file(&self, interpreter: &str, file: &str) -> Vec<String> {
        let mut argv = vec![interpreter.to_owned()];
        argv.extend(self.args.iter().cloned());
        argv.push(file.to_owned());
        argv
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn without_version(program: &str) -> &str {
    program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name_of(file: &str, beginning: &str) -> Option<&'static str> {
        let shebang = Shebang::parse(beginning.as_bytes());
        Language::of_file(file, shebang.as_ref()).map(|language| language.name)
    }

    #[test]
    fn the_ending_decides_and_the_first_line_only_where_there_is_no_known_ending() {
        assert_eq!(name_of("a.py", ""), Some("python"));
        assert_eq!(name_of("a.MJS", ""), Some("javascript"));
        assert_eq!(name_of("a.py", "#!/bin/sh\n"), Some("python"));
        assert_eq!(name_of("tool", "#!/usr/bin/env python3\n"), Some("python"));
        assert_eq!(name_of("tool", "#!/usr/bin/python3.11 -u\n"), Some("python"));
        assert_eq!(name_of("tool", "#!/usr/bin/env -S node --no-warnings\n"), Some("javascript"));
        assert_eq!(name_of("tool", "#!/usr/bin/perl\n"), None);
        assert_eq!(name_of("a.txt", "text"), None);
        assert_eq!(name_of("py", ""), None);
    }

    #[test]
    fn a_shell_script_that_asks_for_bash_gets_bash() {
        assert_eq!(name_of("a.sh", "#!/bin/bash -e\n"), Some("bash"));
        assert_eq!(name_of("a.bash", ""), Some("bash"));
        assert_eq!(name_of("a.sh", "#!/bin/sh\n"), Some("shell"));
        assert_eq!(name_of("a.sh", "#!/usr/bin/env python3\n"), Some("shell"));
    }

    #[test]
    fn the_first_line_gives_program_and_arguments() {
        let shebang = Shebang::parse(b"#! /usr/bin/perl -w -T\nuse strict;").unwrap();
        assert_eq!((shebang.program.as_str(), shebang.args.len()), ("/usr/bin/perl", 2));
        assert_eq!(shebang.run_file("/usr/bin/perl", "x"), ["/usr/bin/perl", "-w", "-T", "x"]);
        for beginning in [&b""[..], b"#!", b"#!\n/bin/sh", b"#!/usr/bin/env", b"#!\xff\xfe", b" #!/bin/sh"] {
            assert_eq!(Shebang::parse(beginning), None, "{beginning:?}");
        }
    }

    #[test]
    fn code_goes_on_the_command_line_unless_it_is_too_long() {
        let shell = Language::by_name("sh").unwrap();
        assert_eq!(shell.run_code("sh", "echo $1").unwrap(), ["sh", "-c", "echo $1", "sh"]);
        assert_eq!(shell.run_code("sh", &"x".repeat(100_001)), None);
        assert_eq!(shell.code_file(), "main.sh");
    }

    #[test]
    fn names_aliases_and_endings_are_unique() {
        let names: Vec<_> = Language::ALL.iter().flat_map(|l| l.aliases.iter().chain([&l.name])).collect();
        let endings: Vec<_> = Language::ALL.iter().flat_map(|l| l.endings).collect();
        for list in [names, endings] {
            let unique: std::collections::BTreeSet<_> = list.iter().collect();
            assert_eq!(unique.len(), list.len());
        }
    }

    proptest! {
        #[test]
        fn reading_a_first_line_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let with_mark = [b"#!".as_slice(), &bytes].concat();
            let _ = Shebang::parse(&with_mark);
        }
    }
}
