//! How the interpreters of sessions are started, and what they are told.
//!
//! The other side of each lies in `drivers/`: small programs of our own in the language itself, sent when a session begins, so
//! that nothing has to be installed inside. What they answer is read by `glovebox_proto::session`. One more language is one
//! more program there and one more row here.

use bytes::Bytes;
use glovebox_core::{Error, ErrorCode, Result};

/// How one language's interpreter is started as a session, and what it is told.
pub(crate) struct Driver {
    /// The language's name.
    pub(crate) language: &'static str,
    argv: &'static [&'static str],
    tongue: Tongue,
}

/// How an interpreter is spoken to.
enum Tongue {
    /// By messages of a word, a length and as many bytes. These are the first ones; those of runs hold JSON.
    Messages(&'static [(&'static str, &'static str)]),
    /// By lines that it runs. This is the first of them.
    Shell(&'static str),
}

const DRIVERS: &[Driver] = &[
    Driver {
        language: "python",
        argv: &["python3", "-c", include_str!("drivers/bootstrap.py")],
        tongue: Tongue::Messages(&[
            ("driver", include_str!("drivers/driver.py")),
            ("figures", include_str!("drivers/figures.py")),
        ]),
    },
    Driver {
        language: "javascript",
        argv: &["node", "-e", include_str!("drivers/bootstrap.js")],
        tongue: Tongue::Messages(&[("driver", include_str!("drivers/driver.js"))]),
    },
    Driver {
        language: "bash",
        // Its commands come from descriptor 0. What it says of a terminal that it does not have is not for the user; the
        // first lines give it its standard error back.
        argv: &["bash", "-c", r#"exec "$BASH" --norc --noprofile --noediting -i <&3 3<&- 4>&2 2>/dev/null"#],
        tongue: Tongue::Shell(include_str!("drivers/driver.sh")),
    },
];

/// The driver of a language.
pub(crate) fn driver(language: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.language == language)
}

/// The languages that there are drivers for.
pub(crate) fn languages() -> impl Iterator<Item = &'static str> {
    DRIVERS.iter().map(|driver| driver.language)
}

impl Driver {
    /// What is started; the program is looked for inside.
    pub(crate) fn argv(&self) -> Vec<String> {
        self.argv.iter().map(|&word| word.to_owned()).collect()
    }

    /// What it is told first.
    pub(crate) fn opening(&self) -> Bytes {
        match &self.tongue {
            Tongue::Messages(first) => first.iter().flat_map(|(word, text)| message(word, text)).collect(),
            Tongue::Shell(lines) => Bytes::from_static(lines.as_bytes()),
        }
    }

    /// What it is told for one run. Variables and folder are as if the code began with setting them. It says the token with the
    /// end of the run.
    pub(crate) fn run(&self, code: &str, env: &[(String, String)], cwd: Option<&str>, token: &str) -> Result<Bytes> {
        match &self.tongue {
            Tongue::Messages(_) => {
                let env: serde_json::Map<_, _> =
                    env.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
                let run = serde_json::json!({ "code": code, "env": env, "cwd": cwd, "token": token });
                Ok(message("run", &run.to_string()).into())
            }
            Tongue::Shell(_) => shell_run(code, env, cwd, token),
        }
    }
}

fn message(word: &str, text: &str) -> Vec<u8> {
    format!("{word} {}\n{text}", text.len()).into_bytes()
}

/// The two lines of a run in a shell; `drivers/driver.sh` says why there are two.
fn shell_run(code: &str, env: &[(String, String)], cwd: Option<&str>, token: &str) -> Result<Bytes> {
    if code.contains('\0') {
        let message = "the code holds a NUL byte, which no shell can take";
        return Err(Error::new(ErrorCode::InvalidValue, message));
    }
    if let Some((name, _)) = env.iter().find(|(name, _)| !is_shell_name(name)) {
        let message = format!("{name:?} is no name of a variable in a shell");
        return Err(Error::new(ErrorCode::InvalidEnvironment, message).hint("use letters, digits and _"));
    }
    let variables = env.iter().map(|(name, value)| format!("export {name}={}; ", one_line(value)));
    let folder = cwd.map(|folder| format!("cd -- {}", one_line(folder)));
    let before: String = variables.chain(folder).collect();
    let run = format!(
        "__glovebox_token={token} __glovebox_before={} __glovebox={} PROMPT_COMMAND={}\n{{ __glovebox_end; }} 2>/dev/null\n",
        one_line(&before),
        one_line(code),
        one_line(
            r#"__glovebox_begin && \builtin :; \builtin eval "$__glovebox" </dev/null; { __glovebox_finish; } 2>/dev/null"#
        ),
    );
    Ok(run.into())
}

fn is_shell_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(allowed) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// A text as one word of bash, without a line break in it.
fn one_line(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 3);
    quoted.push_str("$'");
    for c in text.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '\'' => quoted.push_str("\\'"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests;
