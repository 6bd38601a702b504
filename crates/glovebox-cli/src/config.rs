//! Configuration files: `glovebox.toml` of the project and `config.toml` of the caller.
//!
//! A key is the name of a flag without its dashes. The values become clap's default values, so that flags and variables
//! win over them. Relative paths in a file count from the file's own folder.

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction};
use glovebox_core::{Error, ErrorCode, Result};
use toml::{Table, Value};

use crate::{
    args::{key, map_flags, prefix},
    files, later, trust,
};

/// The name of a project's configuration file.
const PROJECT_FILE: &str = "glovebox.toml";

/// Keys whose values begin with a path of the host.
const PATH_KEYS: [&str; 9] = ["workspace", "file", "mount", "env-file", "stdin", "data-dir", "toolchain", "to", "root"];

/// The key of the caller's own file that lists the projects they trust. It is no flag.
const TRUST: &str = "trust";
/// The flag that trusts the project of this call.
const TRUST_PROJECT: &str = "trust-project";

/// Whose file it is that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The caller's own.
    Own,
    /// One that the caller named.
    Named,
    /// The project's, which the caller trusts.
    TrustedProject,
    /// The project's, found rather than named.
    Project,
}

/// Where configuration files are looked for.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The folder whose `glovebox.toml`, or whose nearest parent's, is the project's file.
    pub(crate) current_dir: Option<PathBuf>,
    /// The caller's own file.
    pub(crate) user_file: Option<PathBuf>,
}

impl Places {
    /// The places of this process.
    pub(crate) fn of_this_process() -> Self {
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config_home = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
        Places {
            current_dir: env::current_dir().ok(),
            user_file: config_home.map(|folder| folder.join("glovebox/config.toml")),
        }
    }

    /// No place at all.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Self {
        Places::default()
    }

    fn project_file(&self) -> Option<PathBuf> {
        let current_dir = self.current_dir.as_deref()?;
        current_dir.ancestors().map(|folder| folder.join(PROJECT_FILE)).find(|file| file.is_file())
    }
}

/// One key of a configuration file.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The file.
    pub(crate) file: PathBuf,
    /// Whether that is the file of a project which the caller does not trust.
    pub(crate) untrusted: bool,
    /// Whether the caller's own file sets this key too.
    pub(crate) replaces_own: bool,
    value: Value,
}

/// The keys of all files; of two files with the same key the stronger one has won.
#[derive(Debug, Default)]
pub(crate) struct Config {
    settings: BTreeMap<String, Setting>,
}

impl Config {
    /// Reads the files: the caller's own, and over it the one that was named, or else the project's. `trusted`: the
    /// caller said on the command line or by a variable that the project is.
    pub(crate) fn load(named: Option<&Path>, trusted: bool, places: &Places) -> Result<Config> {
        let mut config = Config::default();
        if let Some(file) = places.user_file.as_deref().filter(|file| file.is_file()) {
            config.read(file, Whose::Own)?;
        }
        let projects = config.take_trusted_projects()?;
        let all = config.get(TRUST_PROJECT).is_some_and(|setting| setting.value == Value::Boolean(true));
        match (named, places.project_file()) {
            (Some(file), _) => config.read(file, Whose::Named)?,
            (None, Some(file)) => {
                let known = || file.parent().is_some_and(|folder| trust::is_among(folder, &projects));
                let trusted = trusted || all || known();
                config.read(&file, if trusted { Whose::TrustedProject } else { Whose::Project })?;
            }
            (None, None) => {}
        }
        Ok(config)
    }

    /// Takes out the list of trusted projects, which is no flag.
    fn take_trusted_projects(&mut self) -> Result<Vec<PathBuf>> {
        let Some(setting) = self.settings.remove(TRUST) else { return Ok(Vec::new()) };
        let wrong = || setting.wrong_type(TRUST, "a list of absolute paths");
        let Value::Array(items) = &setting.value else { return Err(wrong()) };
        let path = |item: &Value| item.as_str().map(PathBuf::from).filter(|path| path.is_absolute());
        items.iter().map(|item| path(item).ok_or_else(wrong)).collect()
    }

    /// Whether no file sets anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// What a file says about a flag.
    pub(crate) fn get(&self, flag: &str) -> Option<&Setting> {
        self.settings.get(flag)
    }

    /// The files that were read and set something, each once.
    pub(crate) fn files(&self) -> Vec<&Path> {
        let mut files: Vec<&Path> = self.settings.values().map(|setting| setting.file.as_path()).collect();
        files.sort();
        files.dedup();
        files
    }

    /// The keys of a project's file that need the caller's trust and do not have it.
    pub(crate) fn untrusted(&self) -> Result<Vec<(&str, &Setting)>> {
        let mut found = Vec::new();
        if !self.settings.values().any(|setting| setting.untrusted) {
            return Ok(found);
        }
        let command = crate::args::command();
        for (key, setting) in self.settings.iter().filter(|(_, setting)| setting.untrusted) {
            let arg = find_flag(&command, key).ok_or_else(|| unknown_key(&setting.file, key))?;
            if trust::needs_trust(key, setting, &setting.texts(key, arg)?) {
                found.push((key.as_str(), setting));
            }
        }
        Ok(found)
    }

    /// Makes the values the defaults of their flags.
    pub(crate) fn apply(&self, command: clap::Command) -> Result<clap::Command> {
        let mut defaults = BTreeMap::new();
        for (key, setting) in &self.settings {
            let arg = find_flag(&command, key).ok_or_else(|| unknown_key(&setting.file, key))?;
            defaults.insert(key.as_str(), setting.texts(key, arg)?);
        }
        Ok(map_flags(command, &|key, arg| match defaults.get(key.as_str()) {
            Some(texts) => arg.default_values(texts.clone()),
            None => arg,
        }))
    }

    fn read(&mut self, file: &Path, whose: Whose) -> Result<()> {
        let wrong = |why: &str| Error::new(ErrorCode::InvalidConfiguration, format!("{}: {why}", file.display()));
        let bytes =
            files::read_setting(file).map_err(|error| Error { code: ErrorCode::InvalidConfiguration, ..error })?;
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not valid UTF-8"))?;
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| wrong(&format!("it is not valid TOML: {}", error.message())))?;
        let absolute = std::path::absolute(file).map_err(|error| wrong("it has no absolute path").because(error))?;
        for (key, value) in table {
            let of_project = matches!(whose, Whose::Project | Whose::TrustedProject);
            if key == TRUST && whose != Whose::Own || key == TRUST_PROJECT && of_project {
                return Err(wrong(&format!("the key {key:?} counts only in your own configuration file")));
            }
            let untrusted = whose == Whose::Project;
            let replaces_own = self.settings.contains_key(&key);
            self.settings.insert(key, Setting { file: absolute.clone(), untrusted, replaces_own, value });
        }
        Ok(())
    }
}

impl Setting {
    /// The value as the texts that the flag would have been given.
    fn texts(&self, key: &str, arg: &Arg) -> Result<Vec<String>> {
        let texts = match (arg.get_action(), &self.value) {
            (ArgAction::SetTrue, Value::Boolean(yes)) => vec![yes.to_string()],
            (ArgAction::SetTrue, _) => return Err(self.wrong_type(key, "true or false")),
            (ArgAction::Append, Value::Array(items)) => items
                .iter()
                .map(scalar)
                .collect::<Option<_>>()
                .ok_or_else(|| self.wrong_type(key, "a list of texts"))?,
            (ArgAction::Append, Value::Table(pairs)) => pairs
                .iter()
                .map(|(name, value)| scalar(value).map(|text| format!("{name}={text}")))
                .collect::<Option<_>>()
                .ok_or_else(|| self.wrong_type(key, "a table of texts"))?,
            (_, value) => vec![scalar(value).ok_or_else(|| self.wrong_type(key, "a text or a number"))?],
        };
        Ok(texts.into_iter().map(|text| self.resolve(key, text)).collect())
    }

    /// Lets a relative path count from the file's folder.
    fn resolve(&self, key: &str, text: String) -> String {
        let folder = self.file.parent().unwrap_or(Path::new("/")).display();
        match text.split_once("=file:") {
            Some((name, path)) if key == "secret" && !path.starts_with('/') => format!("{name}=file:{folder}/{path}"),
            // Where the home of the caller is, is known where the folder is looked at.
            _ if key == "toolchain" && text.starts_with("~/") => text,
            _ if PATH_KEYS.contains(&key) && !text.starts_with('/') => format!("{folder}/{text}"),
            _ => text,
        }
    }

    fn wrong_type(&self, key: &str, expected: &str) -> Error {
        let message = format!("{}: the key {key:?} must be {expected}", self.file.display());
        Error::new(ErrorCode::InvalidConfiguration, message)
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The flag of a key. A configuration file can neither name another one nor ask for changes of the host.
fn find_flag<'a>(command: &'a clap::Command, wanted: &str) -> Option<&'a Arg> {
    let named = |part: &'a clap::Command, prefix: &str| {
        part.get_arguments().find(|arg| arg.get_long().is_some_and(|long| key(prefix, long) == wanted))
    };
    if ["config", "fix"].contains(&wanted) {
        return None;
    }
    let below = |verb: &'a clap::Command| verb.get_subcommands().find_map(|part| named(part, verb.get_name()));
    named(command, "").or_else(|| {
        command.get_subcommands().find_map(|verb| named(verb, prefix(verb.get_name())).or_else(|| below(verb)))
    })
}

fn unknown_key(file: &Path, key: &str) -> Error {
    let dashed = key.replace('_', "-");
    let hint = if find_flag(&crate::args::command(), &dashed).is_some() {
        format!("did you mean {dashed}?")
    } else if later::has_flag(&dashed) {
        format!("{dashed} comes with a later version")
    } else {
        "a key is the name of a flag without its dashes, such as memory or output-limit".to_owned()
    };
    Error::new(ErrorCode::InvalidConfiguration, format!("{}: unknown key {key:?}", file.display())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        args::{RunArgs, Verb},
        command_line::{Parsed, parse_with},
        flags::{Flags, Origin},
    };
    use std::{cell::RefCell, collections::BTreeSet, fs};

    /// A folder with a project file in it, a folder below it to stand in, and a user file.
    fn places(project: &str, user: &str) -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("project/below");
        fs::create_dir_all(&below).unwrap();
        fs::write(dir.path().join("project/glovebox.toml"), project).unwrap();
        let user_file = dir.path().join("config.toml");
        fs::write(&user_file, user).unwrap();
        (dir, Places { current_dir: Some(below), user_file: Some(user_file) })
    }

    fn run(places: &Places, words: &[&str]) -> Result<(RunArgs, Flags)> {
        let args = ["glovebox", "run"].iter().chain(words).map(Into::into).collect();
        let Parsed::Line(line) = parse_with(args, places)? else { panic!("unexpected help") };
        let Some(Verb::Run(run)) = line.cli.verb else { panic!("not a run") };
        Ok((*run, line.flags))
    }

    #[test]
    fn a_flag_beats_the_project_file_which_beats_the_user_file() {
        let (_dir, places) = places("memory = '1g'\npids = 7", "memory = '3g'\ndisk = '5g'\ncpus = 0.5");
        let (args, flags) = run(&places, &["--pids", "9", "x.py"]).unwrap();
        assert_eq!((args.sandbox.memory.as_str(), args.sandbox.pids.as_str()), ("1g", "9"));
        assert_eq!((args.sandbox.disk.as_str(), args.sandbox.cpus.as_str()), ("5g", "0.5"));
        assert_eq!(flags.origin("memory"), Origin::UntrustedFile);
        assert_eq!(flags.origin("disk"), Origin::TrustedFile);
        assert_eq!(flags.origin("pids"), Origin::Flag);
        assert_eq!(flags.origin("inodes"), Origin::Default);
    }

    #[test]
    fn lists_and_tables_give_several_values_and_a_flag_replaces_them_all() {
        let (_dir, places) = places("label = ['a=1', 'b=2']\n[env]\nX = 'y'\nN = 3", "");
        let (args, _) = run(&places, &["x.py"]).unwrap();
        assert_eq!(args.command.label, ["a=1", "b=2"]);
        assert_eq!(args.command.env, ["N=3", "X=y"]);
        let (args, _) = run(&places, &["--label", "c=3", "x.py"]).unwrap();
        assert_eq!(args.command.label, ["c=3"]);
    }

    #[test]
    fn a_switch_is_true_or_false() {
        let (_dir, places) = places("output-limit-kill = true", "output-limit-kill = false\nterminal = true");
        let (args, _) = run(&places, &["x.py"]).unwrap();
        assert!(args.command.output_limit_kill && args.command.terminal);
    }

    #[test]
    fn relative_paths_count_from_the_file() {
        let (dir, places) = places("workspace = '.'\nmount = ['data:/data']\nsecret = ['T=file:token']", "");
        let (args, flags) = run(&places, &["x.py"]).unwrap();
        let project = dir.path().join("project");
        assert_eq!(args.sandbox.workspace.unwrap(), project.join("."));
        assert_eq!(args.sandbox.mount, [format!("{}/data:/data", project.display())]);
        assert_eq!(args.command.secret, [format!("T=file:{}/token", project.display())]);
        assert_eq!(needing_trust(&flags), ["mount", "secret"]);
    }

    fn needing_trust(flags: &Flags) -> Vec<&str> {
        flags.config.untrusted().unwrap().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_key_of_a_project_needs_trust_only_when_its_value_opens_the_sandbox() {
        for (text, needs_trust) in [
            ("network = 'none'", false),
            ("network = 'full'", true),
            ("isolation = 'namespaces'", false),
            ("isolation = 'landlock'", true),
            ("workspace = '.'", false),
            ("workspace = 'below'", false),
            ("workspace = 'not-there'", false),
            ("workspace = '..'", true),
            ("workspace = '../not-there'", true),
            ("workspace = '/etc'", true),
            ("workspace = 'link-to-etc'", true),
            ("workspace-mode = 'read-only'", false),
            ("workspace-mode = 'read-write'", true),
            ("file = ['glovebox.toml:x']", false),
            ("file = ['/etc/passwd']", true),
            ("file = ['/etc/passwd:glovebox.toml']", true),
            ("file = ['link-to-etc/passwd:x']", true),
            ("env-file = ['glovebox.toml']", false),
            ("env-file = ['/etc/environment']", true),
            ("stdin = '/etc/passwd'", true),
            ("mount = []", false),
            ("mount = ['.:/x']", true),
            ("secret = ['HOME']", true),
            ("data-dir = '.'", true),
            ("user = 'nobody'", false),
            ("user = 'root'", true),
            ("user = '1000:0'", true),
            ("env = ['A=1']", false),
            ("env = ['A=1', 'TOKEN']", true),
            ("env = 'TOKEN'", true),
            ("backend = 'local'", true),
            ("require-layer = []", false),
            ("memory = '64g'\ntimeout = '9h'\ncode = 'x'\nlanguage = 'python'\nworkdir = 'x'", false),
        ] {
            let (dir, places) = places(text, "");
            std::os::unix::fs::symlink("/etc", dir.path().join("project/link-to-etc")).unwrap();
            let (_, flags) = run(&places, &["x.py"]).unwrap();
            assert_eq!(!needing_trust(&flags).is_empty(), needs_trust, "{text}");
            assert_eq!(flags.refuse_untrusted().is_err(), needs_trust, "{text}");
        }
        let (_dir, places) = places("require-layer = []", "require-layer = ['seccomp']");
        let (_, flags) = run(&places, &["x.py"]).unwrap();
        assert_eq!(flags.refuse_untrusted().unwrap_err().code, ErrorCode::UntrustedConfig);
    }

    #[test]
    fn what_a_flag_overrules_needs_no_trust() {
        let (_dir, places) = places("network = 'full'", "");
        let (_, flags) = run(&places, &["--network", "none", "x.py"]).unwrap();
        flags.refuse_untrusted().unwrap();
    }

    #[test]
    fn a_project_is_trusted_by_a_flag_or_by_the_callers_own_file_and_never_by_itself() {
        let trusted = |user: &str, words: &[&str]| {
            let (dir, places) = places("network = 'full'", "");
            let user = user.replace("PROJECT", dir.path().join("project").to_str().unwrap());
            fs::write(places.user_file.as_ref().unwrap(), user.replace("DIR", dir.path().to_str().unwrap())).unwrap();
            let (args, flags) = run(&places, words).unwrap();
            assert_eq!(args.sandbox.network, "full");
            flags.refuse_untrusted().is_ok()
        };
        assert!(!trusted("", &["x.py"]));
        assert!(trusted("", &["--trust-project", "x.py"]));
        assert!(trusted("trust = ['/elsewhere', 'PROJECT']", &["x.py"]));
        assert!(trusted("trust = ['PROJECT/below/..']", &["x.py"]));
        assert!(!trusted("trust = ['DIR', 'PROJECT/below', '/elsewhere']", &["x.py"]));
        assert!(trusted("trust-project = true", &["x.py"]));
        for (project, user) in
            [("trust = ['/']", ""), ("trust-project = true", ""), ("", "trust = '/x'"), ("", "trust = ['x']")]
        {
            let (_dir, places) = places(project, user);
            let error = run(&places, &["x.py"]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidConfiguration, "{project} {user}");
            assert!(error.message.contains("trust"), "{}", error.message);
        }
    }

    #[test]
    fn what_is_unknown_or_of_a_wrong_type_is_named_with_its_file() {
        for (text, word) in [
            ("memroy = '1g'", "memroy"),
            ("output_limit = '1m'", "output_limit"),
            ("config = 'x'", "config"),
            ("json = 'yes'", "json"),
            ("memory = ['1g']", "memory"),
            ("label = [['a']]", "label"),
            ("memory = ", "TOML"),
        ] {
            let (_dir, places) = places(text, "");
            let error = run(&places, &["x.py"]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidConfiguration, "{text}");
            assert!(error.message.contains(word) && error.message.contains("glovebox.toml"), "{}", error.message);
        }
    }

    /// The keys in the first column of a table of the guide, which follows this text.
    fn listed_after(text: &str) -> BTreeSet<String> {
        const GUIDE: &str = include_str!("../../../docs/guides/configuration.md");
        let table = GUIDE.split(text).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        let cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
        let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        words.map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_lists_every_key_that_needs_trust_and_no_other() {
        let listed = listed_after("What needs trust:");
        let setting = Setting {
            file: "/p/glovebox.toml".into(),
            untrusted: true,
            replaces_own: true,
            value: Value::Boolean(true),
        };
        // What opens each kind of key.
        let opening = ["x", "/elsewhere", "full", "root", "1t"].map(str::to_owned);
        let needs_trust = |key: &str| trust::needs_trust(key, &setting, &opening);
        let is_listed =
            |key: &str| listed.contains(key) || listed.iter().any(|p| p.ends_with('-') && key.starts_with(p));
        for key in listed_after("### Keys").iter().filter(|key| *key != TRUST) {
            assert_eq!(is_listed(key), needs_trust(key), "{key}");
        }
    }

    #[test]
    fn the_guide_lists_every_key_and_no_other() {
        let listed = listed_after("### Keys");
        let keys = RefCell::new(BTreeSet::from([TRUST.to_owned()]));
        let command = map_flags(crate::args::command(), &|key, arg| {
            keys.borrow_mut().insert(key);
            arg
        });
        let mut keys = keys.into_inner();
        keys.retain(|key| key == TRUST || find_flag(&command, key).is_some());
        assert_eq!(listed, keys);
    }

    #[test]
    fn a_named_file_stands_in_place_of_the_projects_and_must_exist() {
        let (dir, places) = places("memory = '1g'\npids = 7", "disk = '5g'");
        let named = dir.path().join("other.toml");
        fs::write(&named, "memory = '4g'").unwrap();
        let (args, flags) = run(&places, &["--config", named.to_str().unwrap(), "x.py"]).unwrap();
        assert_eq!(
            (args.sandbox.memory.as_str(), args.sandbox.pids.as_str(), args.sandbox.disk.as_str()),
            ("4g", "100", "5g")
        );
        assert_eq!(flags.origin("memory"), Origin::TrustedFile);
        let error = run(&places, &["--config", "/nonexistent/x.toml", "x.py"]).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidConfiguration);
    }
}
