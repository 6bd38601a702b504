//! The languages that Glovebox knows: one [table], and the rules that pick a row of it.
//!
//! A further language is one more row. Nothing here looks at a disk: callers bring the name and the first line of a file,
//! and say which programs are there.

mod table;

/// A language: how its files are recognised and how they are run.
#[derive(Debug, PartialEq, Eq)]
pub struct Language {
    /// The name, as in `--language` and over HTTP.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Endings of its files, without the dot. The first one is used for a file that Glovebox itself makes.
    pub endings: &'static [&'static str],
    /// Ways to run it, the preferred one first. The first one whose programs are there is taken.
    pub ways: &'static [Way],
    /// Whether its programs refuse files with another ending.
    pub strict_endings: bool,
    /// What a file must begin with, put before a piece of code that lacks it.
    pub opening: Option<&'static str>,
    /// The language whose files may name this one in their `#!` line, as `.sh` files name bash.
    pub dialect_of: Option<&'static str>,
}

/// One way to run a language: the program that it takes, and the command lines.
///
/// In command lines `{program}` stands for the program, `{file}` for the source, `{code}` for a piece of code, `{out}` for
/// the folder that a compile step writes to, `{cpus}` and `{memory}` for the limits: whole CPUs and bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Way {
    /// The program, under any of these names, the preferred one first.
    pub programs: &'static [&'static str],
    /// The oldest version of it that will do, where not every one does.
    pub at_least: Option<Version>,
    /// Further programs that must be there.
    pub needs: &'static [&'static str],
    /// The step before the run, for languages that are compiled.
    pub compile: Option<CompileForm>,
    /// The command line that runs a file, before the program's own arguments.
    pub file: &'static [&'static str],
    /// The command line that runs a piece of code; `None` where it has to be a file.
    pub code: Option<&'static [&'static str]>,
    /// Variables that the toolchain needs in a small place without a network.
    pub env: &'static [(&'static str, &'static str)],
    /// How to get it, as a command where there is one.
    pub install: &'static str,
    /// Where people keep it in their homes. `~` is the home, and a part that is `*` stands for any folder.
    pub homes: &'static [&'static str],
}

/// How source becomes something that can be run.
#[derive(Debug, PartialEq, Eq)]
pub struct CompileForm {
    /// The command line.
    pub argv: &'static [&'static str],
    /// The files that it makes in `{out}`.
    pub products: &'static [&'static str],
}

/// A version: major and minor.
pub type Version = (u32, u32);

/// What the placeholders of a command line stand for.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// The program.
    pub program: &'a str,
    /// The source file, or the code.
    pub source: &'a str,
    /// The folder that a compile step writes to.
    pub out: &'a str,
    /// CPUs that the sandbox has.
    pub cpus: f64,
    /// Memory that the sandbox has, bytes.
    pub memory: u64,
}

impl Filling<'_> {
    /// Fills in a command line, or the values of variables. A source is never searched for placeholders.
    pub fn fill<'w>(&self, words: impl IntoIterator<Item = &'w &'static str>) -> Vec<String> {
        words.into_iter().map(|word| self.fill_word(word)).collect()
    }

    fn fill_word(&self, word: &str) -> String {
        let cpus = (self.cpus.ceil().max(1.0) as u64).to_string();
        let word = word.replace("{cpus}", &cpus).replace("{memory}", &self.memory.to_string());
        let word = word.replace("{out}", self.out).replace("{program}", self.program);
        match word.split_once("{file}").or_else(|| word.split_once("{code}")) {
            Some((before, after)) => format!("{before}{}{after}", self.source),
            None => word,
        }
    }
}

/// Code longer than this is put into a file: the kernel takes at most 128 KiB in one argument.
const LONGEST_CODE_ARGUMENT: usize = 100_000;

impl Language {
    /// Every language.
    pub const ALL: &'static [Language] = table::LANGUAGES;

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

    /// The language that an interpreter such as `python3.11` runs.
    pub fn by_interpreter(program: &str) -> Option<&'static Language> {
        let unversioned = without_version(program);
        let runs = |way: &Way| way.programs.iter().any(|known| without_version(known) == unversioned);
        Self::ALL.iter().find(|language| language.ways.iter().any(|way| way.compile.is_none() && runs(way)))
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

    /// The name of a copy of a file: its own, with an ending that the language's programs take.
    pub fn file_name(&self, name: &str) -> String {
        match Self::by_ending(name) {
            Some(language) if language == self => name.to_owned(),
            _ if self.strict_endings => format!("{name}.{}", self.endings[0]),
            _ => name.to_owned(),
        }
    }

    /// A piece of code as a file holds it.
    pub fn file_of_code(&self, code: &str) -> String {
        match self.opening {
            Some(opening) if !code.trim_start().starts_with(opening.trim_end()) => format!("{opening}{code}"),
            _ => code.to_owned(),
        }
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

impl Way {
    /// The command line for a piece of code, where it goes onto one.
    pub fn code_form(&self, code: &str) -> Option<&'static [&'static str]> {
        self.code.filter(|_| code.len() <= LONGEST_CODE_ARGUMENT)
    }
}

/// Reads a version such as `v22.11.0` or `Python 3.11.2`: the first two numbers.
pub fn parse_version(text: &str) -> Option<Version> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[start..].split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().and_then(|text| text.parse().ok()).unwrap_or(0)))
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
        assert_eq!(name_of("tool", "#!/usr/bin/perl\n"), Some("perl"));
        assert_eq!(name_of("tool", "#!/usr/bin/tclsh\n"), None);
        assert_eq!(name_of("a.ts", "#!/usr/bin/env node\n"), Some("typescript"));
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
        let form = shell.ways[0].code_form("echo {out}").unwrap();
        let filling = Filling { program: "sh", source: "echo {out}", out: "/x", cpus: 0.5, memory: 1 };
        assert_eq!(filling.fill(form), ["sh", "-c", "echo {out}", "sh"]);
        assert_eq!(shell.ways[0].code_form(&"x".repeat(100_001)), None);
        assert_eq!(shell.code_file(), "main.sh");
    }

    #[test]
    fn a_source_is_put_in_as_it_stands() {
        let filling = Filling { program: "cc", source: "{out}{code}.c", out: "/x", cpus: 1.5, memory: 64 };
        let words = ["{program}", "-o", "{out}/main", "{file}", "-j{cpus}", "{memory}"];
        assert_eq!(filling.fill(&words), ["cc", "-o", "/x/main", "{out}{code}.c", "-j2", "64"]);
    }

    #[test]
    fn code_gets_the_opening_that_its_files_need_once() {
        let php = Language::by_name("php").unwrap();
        assert_eq!(php.file_of_code("echo 1;"), "<?php\necho 1;");
        assert_eq!(php.file_of_code("<?php echo 1;"), "<?php echo 1;");
        assert_eq!(Language::by_name("lua").unwrap().file_of_code("print(1)"), "print(1)");
    }

    #[test]
    fn a_copy_gets_an_ending_only_where_its_language_insists() {
        let name = |language: &str, name: &str| Language::by_name(language).unwrap().file_name(name);
        assert_eq!(name("go", "code.txt"), "code.txt.go");
        assert_eq!(name("go", "code.go"), "code.go");
        assert_eq!(name("typescript", "a.mts"), "a.mts");
        assert_eq!(name("python", "code.txt"), "code.txt");
    }

    #[test]
    fn versions_are_read_from_what_programs_say() {
        assert_eq!(parse_version("v22.11.0\n"), Some((22, 11)));
        assert_eq!(parse_version("Python 3.11.2"), Some((3, 11)));
        assert_eq!(parse_version("8"), Some((8, 0)));
        assert_eq!(parse_version("none"), None);
    }

    #[test]
    fn every_way_can_be_taken_and_every_compile_step_makes_something() {
        for language in Language::ALL {
            assert!(!language.ways.is_empty() && !language.endings.is_empty(), "{}", language.name);
            for way in language.ways {
                assert!(!way.programs.is_empty() && !way.install.is_empty(), "{}", language.name);
                let runs_file = way.file.iter().any(|word| word.contains("{file}"));
                let Some(form) = &way.compile else {
                    assert!(runs_file, "{}: nothing runs the file", language.name);
                    continue;
                };
                assert!(form.argv.iter().any(|word| word.contains("{file}")), "{}", language.name);
                assert!(way.file.iter().any(|word| word.contains("{out}")) && way.code.is_none(), "{}", language.name);
                assert!(!form.products.is_empty(), "{}", language.name);
            }
        }
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
