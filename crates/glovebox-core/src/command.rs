//! What to run.

use std::collections::BTreeMap;

use zeroize::Zeroize;

use crate::{Error, ErrorCode, InsidePath, Result, Secret, WORKING_DIR};

/// A name of an environment variable: not empty, no `=`, no NUL, no blank, no line break.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvName(String);

impl EnvName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self> {
        let why = if text.is_empty() {
            "it is empty"
        } else if text.contains('=') {
            "it holds '='"
        } else if text.chars().any(char::is_control) {
            "it holds a control character"
        } else if text.chars().any(char::is_whitespace) {
            "it holds a blank; a leading 'export' does not belong there"
        } else if text.len() > 1024 {
            "it is longer than 1024 bytes"
        } else {
            return Ok(EnvName(text.to_owned()));
        };
        Err(Error::new(ErrorCode::InvalidEnvironment, format!("the environment name {text:?} cannot be used: {why}")))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What to run: argv, environment, working directory. A value; running it makes a run.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments. Never empty.
    pub argv: Vec<String>,
    /// Variables beside the clean environment.
    pub env: BTreeMap<EnvName, String>,
    /// Variables whose values are secrets.
    pub secrets: BTreeMap<EnvName, Secret>,
    /// Where it starts.
    pub cwd: InsidePath,
    /// The language of the source that it runs, where that is known. It changes nothing but what is recorded.
    pub language: Option<String>,
}

impl Drop for Command {
    /// Variables are not secrets by name, but people put secrets into them all the same.
    fn drop(&mut self) {
        self.env.values_mut().for_each(Zeroize::zeroize);
    }
}

impl Command {
    /// A command of a program and its arguments, with a clean environment, in the working directory.
    pub fn argv<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Result<Self> {
        let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
        match argv.first() {
            None => return Err(Error::new(ErrorCode::Usage, "there is no command to run")),
            Some(program) if program.is_empty() => {
                return Err(Error::new(ErrorCode::CommandNotFound, "the command's name is empty"));
            }
            Some(_) => {}
        }
        if argv.iter().any(|arg| arg.contains('\0')) {
            return Err(Error::new(ErrorCode::InvalidValue, "an argument of the command holds a NUL byte"));
        }
        Ok(Command {
            argv,
            env: BTreeMap::new(),
            secrets: BTreeMap::new(),
            cwd: InsidePath::absolute(WORKING_DIR).expect("the working directory is a checked path"),
            language: None,
        })
    }

    /// Adds a variable.
    pub fn env(mut self, name: &str, value: &str) -> Result<Self> {
        let name = EnvName::parse(name)?;
        if value.contains('\0') {
            let message = format!("the value of the environment variable {} holds a NUL byte", name.as_str());
            return Err(Error::new(ErrorCode::InvalidEnvironment, message));
        }
        self.env.insert(name, value.to_owned());
        Ok(self)
    }

    /// Adds a secret variable; its value is masked in the result.
    pub fn secret(mut self, name: &str, value: Secret) -> Result<Self> {
        let name = EnvName::parse(name)?;
        if value.expose().contains('\0') {
            let message = format!("the value of the secret {} holds a NUL byte", name.as_str());
            return Err(Error::new(ErrorCode::InvalidEnvironment, message));
        }
        self.secrets.insert(name, value);
        Ok(self)
    }

    /// Starts it elsewhere; a relative path counts from the working directory.
    pub fn cwd(mut self, path: &str) -> Result<Self> {
        let base = InsidePath::absolute(WORKING_DIR).expect("the working directory is a checked path");
        self.cwd = InsidePath::relative_to(&base, path)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_environment_names_and_values_are_refused() {
        let command = || Command::argv(["true"]).unwrap();
        for name in ["", "A=B", "A\0", "A\nB"] {
            assert_eq!(command().env(name, "x").unwrap_err().code, ErrorCode::InvalidEnvironment, "{name:?}");
        }
        assert!(command().env("A", "\0").is_err());
        assert!(command().env("A", "a\nb=c").is_ok());
    }

    #[test]
    fn a_secret_value_never_shows_in_debug_output_or_errors() {
        let command = Command::argv(["true"]).unwrap();
        let with = command.clone().secret("TOKEN", Secret::new("hunter2")).unwrap();
        assert!(!format!("{with:?}").contains("hunter2"));
        let error = command.secret("TOKEN", Secret::new("hunter2\0")).unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn an_empty_command_is_refused() {
        assert!(Command::argv(Vec::<String>::new()).is_err());
        assert!(Command::argv([""]).is_err());
        assert!(Command::argv(["a", "b\0"]).is_err());
    }
}
