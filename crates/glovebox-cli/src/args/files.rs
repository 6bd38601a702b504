//! `glovebox files` and `glovebox cp`, as clap reads them.

use std::ffi::OsString;

use clap::{Args, Subcommand};

pub(super) const CP_EXAMPLES: &str = "\
Examples:
  glovebox cp data.csv box:                 # a file into the working directory
  glovebox cp box:report.pdf .              # and one back
  glovebox cp src box:/tmp                  # a folder, to /tmp/src
  glovebox cp src/. box:                    # what is in a folder
  glovebox cp box:/workspace/outputs .      # what a program left for you
  glovebox cp box:src - | tar tv            # a folder as tar on standard output
  echo hello | glovebox cp - box:hello      # standard input as a file
  glovebox cp one:/tmp/x two:/tmp/x         # from sandbox to sandbox

A path inside is relative to /workspace/agent_workspace. A host file with a colon in its
name is written ./a:b. Links inside are followed within the sandbox. What comes out never
goes through a link of this machine, and links that lead out of the copied folder,
devices and set-user-id bits do not come along.";

const LIST_EXAMPLES: &str = "\
Examples:
  glovebox files list box
  glovebox files list box /tmp --json | jq -r '.entries[].path'
  glovebox files list box many --limit 1000 --json            # one page; `next` begins the next
  glovebox files list box many --limit 1000 --after 4711 --json";

const READ_EXAMPLES: &str = "\
Examples:
  glovebox files read box report.txt
  glovebox files read box /workspace/outputs/plot.png > plot.png
  glovebox files read box log.txt --offset 1m --length 4k";

const WRITE_EXAMPLES: &str = "\
Examples:
  echo hello | glovebox files write box hello.txt
  glovebox files write box run.sh --mode 755 < run.sh";

const REMOVE_EXAMPLES: &str = "\
Examples:
  glovebox files remove box hello.txt old.txt
  glovebox files remove -r box build";

const WATCH_EXAMPLES: &str = "\
Examples:
  glovebox files watch box .                # the working directory and all below
  glovebox files watch box /workspace/outputs --json";

const STAT_EXAMPLES: &str = "\
Examples:
  glovebox files stat box report.txt
  glovebox files stat --follow box latest   # what a link leads to";

const MKDIR_EXAMPLES: &str = "\
Examples:
  glovebox files mkdir box src
  glovebox files mkdir -p box src/deep/er   # also the folders on the way";

const MOVE_EXAMPLES: &str = "\
Examples:
  glovebox files move box draft.txt report.txt
  glovebox files move box report.txt old/   # into a folder";

const CHMOD_EXAMPLES: &str = "\
Examples:
  glovebox files chmod box run.sh 755";

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// What to copy: a file or folder of this machine, ID:PATH, or - for standard input
    #[arg(value_name = "SRC", allow_hyphen_values = true)]
    pub(crate) source: OsString,
    /// Where to: a file or folder of this machine, ID:PATH, or - for standard output
    #[arg(value_name = "DST", allow_hyphen_values = true)]
    pub(crate) target: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    pub(crate) act: FilesAct,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesAct {
    /// List a folder
    ///
    /// Up to 10,000 entries come sorted by name; a larger folder comes in its own order, as it is read.
    #[command(after_help = LIST_EXAMPLES)]
    List(ListFilesArgs),
    /// Write a file, or a part of it, to standard output
    #[command(after_help = READ_EXAMPLES)]
    Read(ReadArgs),
    /// Write standard input to a file: all of it, or nothing
    ///
    /// The file appears when the input is complete, and replaces what was there. Its folder must be there: see mkdir -p.
    #[command(after_help = WRITE_EXAMPLES)]
    Write(WriteArgs),
    /// Remove files, links and empty folders
    ///
    /// One that cannot be removed does not keep the others.
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Tell what happens to a file or in a folder, line by line, until it is gone
    ///
    /// Folders below count, too, new ones included. With --json each line is an object; the first says `ready`. When more
    /// happens at once than can be told, or there are too many folders, an event `lost` says so.
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Say what lies under a path
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Make a folder
    #[command(after_help = MKDIR_EXAMPLES)]
    Mkdir(MkdirArgs),
    /// Give a file or folder another path
    #[command(after_help = MOVE_EXAMPLES)]
    Move(MoveArgs),
    /// Set permissions
    #[command(after_help = CHMOD_EXAMPLES)]
    Chmod(ChmodArgs),
}

/// A file inside.
#[derive(Debug, Args)]
pub(crate) struct FileArg {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The path inside, relative to /workspace/agent_workspace
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct ListFilesArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The folder inside, relative to /workspace/agent_workspace
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: OsString,
    /// At most so many entries
    #[arg(long, value_name = "NUMBER")]
    pub(crate) limit: Option<String>,
    /// Go on behind this place: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Begin at this byte
    #[arg(long, value_name = "SIZE")]
    pub(crate) offset: Option<String>,
    /// At most so many bytes
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// The permissions, as in 755 [default: those of the file that is replaced, or 644]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Be done only when the file is safe on the disk
    #[arg(long)]
    pub(crate) sync: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// The sandbox: its id, the beginning of its id, or its name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The paths inside, relative to /workspace/agent_workspace
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<OsString>,
    /// Folders with all that is in them
    #[arg(long, short)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Only the folder itself, and not those below
    #[arg(long)]
    pub(crate) flat: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Of a link, what it leads to
    #[arg(long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MkdirArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// Make folders on the way, too; one that is there is fine
    #[arg(long, short)]
    pub(crate) parents: bool,
    /// The permissions
    #[arg(long, value_name = "MODE", default_value = "755")]
    pub(crate) mode: String,
}

#[derive(Debug, Args)]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// The path afterwards; one that ends with / is a folder to move it into
    #[arg(value_name = "TO")]
    pub(crate) to: OsString,
    /// Fail when something is there already
    #[arg(long)]
    pub(crate) no_replace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChmodArgs {
    #[command(flatten)]
    pub(crate) file: FileArg,
    /// The permissions, as in 755
    #[arg(value_name = "MODE")]
    pub(crate) mode: String,
}
