//! From source code in a language to the commands that run it.

use bytes::Bytes;
use glovebox_core::{Filling, InsidePath, Language, Limits, PROGRAM_DIR, Result, WORKING_DIR};

use crate::{FileContent, InputFile, Tool};

/// Source code.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A file that is in the sandbox, or will be, by its path there. A relative one counts from the working directory.
    File(&'a str),
    /// A piece of code.
    Code(&'a str),
}

/// The commands that run a piece of source code.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The command line, to which the program's own arguments are added.
    pub argv: Vec<String>,
    /// Variables that the toolchain needs; the caller's own win over them.
    pub env: Vec<(String, String)>,
    /// The file that holds the code, where it does not stand on the command line.
    pub file: Option<InputFile>,
    /// The step before the run.
    pub compile: Option<Compile>,
}

/// A compile step: it turns a source file into a program, inside the sandbox and before the run.
#[derive(Clone, Debug)]
pub struct Compile {
    /// The compiler and its arguments.
    pub argv: Vec<String>,
    /// Its variables beside the clean environment. The caller's variables and secrets are not among them, because what
    /// it makes may be kept.
    pub env: Vec<(String, String)>,
    /// The source file inside.
    pub source: InsidePath,
    /// The files that it makes in [`PROGRAM_DIR`].
    pub products: Vec<String>,
    /// Which compiler it is: changes with every version.
    pub compiler: String,
}

/// Prepares source code of a language to be run by a tool.
pub fn prepare(language: &Language, tool: &Tool, source: Source<'_>, limits: &Limits) -> Result<Prepared> {
    let working_dir = InsidePath::absolute(WORKING_DIR)?;
    let fill =
        |source| Filling { program: tool.program, source, out: PROGRAM_DIR, cpus: limits.cpus, memory: limits.memory };
    let env = |filling: &Filling<'_>| -> Vec<(String, String)> {
        let values = filling.fill(tool.way.env.iter().map(|(_, value)| value));
        tool.way.env.iter().map(|(name, _)| (*name).to_owned()).zip(values).collect()
    };
    if let Source::Code(code) = source
        && let Some(form) = tool.way.code_form(code)
    {
        let filling = fill(code);
        return Ok(Prepared { argv: filling.fill(form), env: env(&filling), file: None, compile: None });
    }
    let (name, file) = match source {
        Source::File(inside) => (inside.to_owned(), None),
        Source::Code(code) => {
            let target = InsidePath::relative_to(&working_dir, &language.code_file())?;
            let content = FileContent::Bytes(Bytes::from(language.file_of_code(code)));
            (language.code_file(), Some(InputFile { target, content, mode: 0o644 }))
        }
    };
    let filling = fill(&name);
    let compile = match &tool.way.compile {
        None => None,
        Some(form) => Some(Compile {
            argv: filling.fill(form.argv),
            env: env(&filling),
            source: InsidePath::relative_to(&working_dir, &name)?,
            products: form.products.iter().map(|name| (*name).to_owned()).collect(),
            compiler: tool.fingerprint(),
        }),
    };
    Ok(Prepared { argv: filling.fill(tool.way.file), env: env(&filling), file, compile })
}
