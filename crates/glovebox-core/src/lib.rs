//! The words of Glovebox as types, the rules that each word obeys, and the [`Backend`] trait.
//!
//! Invariant: this crate does no I/O. Everything here is a value, a rule about values, or a trait.
//! A backend can be written against this crate alone.

mod backend;
mod change;
mod command;
mod ending;
mod error;
mod evidence;
mod file_path;
mod holders;
mod id;
mod image;
mod isolation;
mod language;
mod limits;
mod living;
mod outcome;
mod path;
mod pauses;
mod printable;
mod result;
mod secret;
mod session;
mod spec;
mod value;
mod volume;

pub use backend::{Backend, Created, Features, Found, GuestIo, GuestStream, Outgrown};
pub use change::{
    Change, ChangeRecord, ChangeSet, ContentKeeper, FileKind, FileStamp, FileState, KeptContent, LookFor, NotKept,
    Obstacle, SeenEntry, WorkspaceLook, look_bound,
};
pub use command::{Command, EnvName};
pub use ending::waiting_in_kernel;
pub use error::{Error, ErrorCode, Result};
pub use evidence::{Evidence, GivenFile, StoreUse, Usage, UsageNow};
pub use file_path::{FilePath, shown};
pub use holders::Holders;
pub use id::{ChangeSource, ParseIdError, RunId, SandboxId};
pub use image::{Image, ImageReference};
pub use isolation::{Isolation, Layer, Tier};
pub use language::{CompileForm, Filling, Language, Shebang, Version, Way, parse_version};
pub use limits::{DEFAULT_GRACE, Enforcement, Limits, LimitsInForce};
pub use living::{EndReason, Lifetime, Living, SANDBOXES_DIR, SandboxName, SandboxRecord, SandboxState, living_store};
pub use outcome::{Ending, LimitKind, Outcome, decide_outcome};
pub use path::InsidePath;
pub use pauses::{FREEZING, Pauses};
pub use printable::printable;
pub use result::{
    Artifact, CommandRecord, CompileRecord, Denial, OutputRecord, RunResult, Step, Warning, WorkspaceRecord,
};
pub use secret::{Secret, SecretScan};
pub use session::{ExceptionRecord, ResultKind, ResultRecord, SessionName, SessionRecord};
pub use spec::{
    Access, FilesOf, HOME_DIR, Label, Mount, MountKind, Network, OUTPUTS_DIR, PROGRAM_DIR, SandboxSpec, User,
    WORKING_DIR, WORKSPACE_DIR, Workspace, WorkspaceMode,
};
pub use value::{parse_count, parse_cpus, parse_duration, parse_memory, parse_open_files, parse_size};
pub use volume::{Cache, DEFAULT_VOLUME_BYTES, PROJECT_DIR, PROJECT_FILES_DIR, ProjectName, VolumeMount, VolumeName};
