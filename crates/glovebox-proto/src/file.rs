//! The messages about files. Names and paths are bytes, because that is what they are to the kernel.

use prost::{Enumeration, Message};

/// What lies under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum EntryKind {
    /// A pipe, a socket, a device.
    Other = 0,
    /// A regular file.
    File = 1,
    /// A folder.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
}

/// What is known of a file or folder.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// Its name in its folder.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: bytes::Bytes,
    /// What it is.
    #[prost(enumeration = "EntryKind", tag = "2")]
    pub kind: i32,
    /// Its size.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Its permission bits.
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    /// When it was last modified, nanoseconds since 1970.
    #[prost(int64, tag = "5")]
    pub modified_ns: i64,
    /// Where a symbolic link points.
    #[prost(bytes = "bytes", tag = "6")]
    pub target: bytes::Bytes,
}

/// Reads a file.
#[derive(Clone, PartialEq, Message)]
pub struct ReadFile {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The first byte.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// How many bytes; to the end as it is now when there is none.
    #[prost(uint64, optional, tag = "3")]
    pub length: Option<u64>,
    /// Whether a link anywhere in the path is refused, in place of followed.
    #[prost(bool, tag = "4")]
    pub refuse_links: bool,
}

/// Reads several small files whole, links refused. Each is answered by one frame, in their order: its bytes, or why there are none.
#[derive(Clone, PartialEq, Message)]
pub struct ReadFiles {
    /// The files, [`SMALL_FILES`](crate::bound::SMALL_FILES) at most.
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<SmallFile>,
}

/// One of several files.
#[derive(Clone, PartialEq, Message)]
pub struct SmallFile {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// How many of its bytes, [`CHUNK`](crate::bound::CHUNK) at most.
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// Writes a file: its bytes follow, and then its end. Without its end nothing is written.
#[derive(Clone, PartialEq, Message)]
pub struct WriteFile {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Its permission bits; those of the file that it replaces, or 0644, when there are none.
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
    /// Whether it is on the disk, and not only in memory, when this is answered.
    #[prost(bool, tag = "3")]
    pub sync: bool,
}

/// Lists a folder.
#[derive(Clone, PartialEq, Message)]
pub struct ListFolder {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Where to go on: the cursor of the page before.
    #[prost(uint64, optional, tag = "2")]
    pub after: Option<u64>,
    /// No more entries than this.
    #[prost(uint64, tag = "3")]
    pub most: u64,
}

/// Some entries of a folder.
#[derive(Clone, PartialEq, Message)]
pub struct Entries {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// A listing is complete.
#[derive(Clone, PartialEq, Message)]
pub struct ListEnd {
    /// Where the next page begins, when there may be one.
    #[prost(uint64, optional, tag = "1")]
    pub cursor: Option<u64>,
}

/// Asks for all that lies below some folders, at any depth. No link is followed, and no mount is entered.
#[derive(Clone, PartialEq, Message)]
pub struct SurveyFiles {
    /// The folder that they lie in.
    #[prost(bytes = "vec", tag = "1")]
    pub top: Vec<u8>,
    /// Their names there.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub roots: Vec<Vec<u8>>,
    /// No more entries than this.
    #[prost(uint64, tag = "3")]
    pub most: u64,
    /// No more bytes of paths and targets than this.
    #[prost(uint64, tag = "4")]
    pub most_bytes: u64,
    /// No folder below this depth is entered.
    #[prost(uint64, tag = "5")]
    pub deepest: u64,
}

/// What was met in a survey.
#[derive(Clone, PartialEq, Message)]
pub struct Met {
    /// What is known of it. Its name is its path below the top of the survey.
    #[prost(message, optional, tag = "1")]
    pub entry: Option<Entry>,
    /// The device that it is on.
    #[prost(uint64, tag = "2")]
    pub device: u64,
    /// Its number there.
    #[prost(uint64, tag = "3")]
    pub inode: u64,
    /// When it last changed, nanoseconds since 1970. No program can set this.
    #[prost(int64, tag = "4")]
    pub changed_ns: i64,
    /// Something is mounted here, and what is in it belongs to others.
    #[prost(bool, tag = "5")]
    pub mounted: bool,
    /// A folder of which not all is told, because it cannot be read or lies too deep.
    #[prost(bool, tag = "6")]
    pub unread: bool,
}

/// Some of what was met, folders before what is in them.
#[derive(Clone, PartialEq, Message)]
pub struct MetFiles {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub met: Vec<Met>,
}

/// A survey is over.
#[derive(Clone, PartialEq, Message)]
pub struct SurveyEnd {
    /// There is more than was told.
    #[prost(bool, tag = "1")]
    pub truncated: bool,
}

/// Asks what lies under a path.
#[derive(Clone, PartialEq, Message)]
pub struct StatFile {
    /// The path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Whether a link at its end is followed.
    #[prost(bool, tag = "2")]
    pub follow: bool,
}

/// Changes something; exactly one of these is there.
#[derive(Clone, PartialEq, Message)]
pub struct ChangeFiles {
    /// What to do.
    #[prost(oneof = "Change", tags = "1, 2, 3, 4")]
    pub change: Option<Change>,
}

/// A change.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Change {
    /// Makes a folder.
    #[prost(message, tag = "1")]
    MakeFolder(MakeFolder),
    /// Gives something another path.
    #[prost(message, tag = "2")]
    Rename(Rename),
    /// Removes something.
    #[prost(message, tag = "3")]
    Remove(Remove),
    /// Sets permission bits.
    #[prost(message, tag = "4")]
    SetMode(SetMode),
}

/// Makes a folder.
#[derive(Clone, PartialEq, Message)]
pub struct MakeFolder {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Its permission bits.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// Whether folders on the way are made, too, and one that is there is fine.
    #[prost(bool, tag = "3")]
    pub parents: bool,
}

/// Gives something another path.
#[derive(Clone, PartialEq, Message)]
pub struct Rename {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub from: Vec<u8>,
    /// Its path afterwards.
    #[prost(bytes = "vec", tag = "2")]
    pub to: Vec<u8>,
    /// Whether what is there already is replaced.
    #[prost(bool, tag = "3")]
    pub replace: bool,
}

/// Removes something.
#[derive(Clone, PartialEq, Message)]
pub struct Remove {
    /// Its path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Whether a folder goes with all that is in it.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

/// Sets permission bits.
#[derive(Clone, PartialEq, Message)]
pub struct SetMode {
    /// The path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The bits.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
}

/// Asks for a folder as a tar archive, or brings one: its bytes follow, and then its end.
#[derive(Clone, PartialEq, Message)]
pub struct FolderArchive {
    /// The folder.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
}

/// An archive is complete.
#[derive(Clone, PartialEq, Message)]
pub struct ArchiveEnd {
    /// How many files and folders were left out.
    #[prost(uint64, tag = "1")]
    pub left_out: u64,
    /// The first of them.
    #[prost(bytes = "vec", tag = "2")]
    pub first: Vec<u8>,
    /// Why.
    #[prost(string, tag = "3")]
    pub why: String,
}

/// Asks to be told what happens to a file or in a folder.
#[derive(Clone, PartialEq, Message)]
pub struct WatchFiles {
    /// The path.
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Whether folders below count too, new ones included.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum EventKind {
    /// Something happened that nobody can tell any more.
    Lost = 0,
    /// Something is new.
    Create = 1,
    /// A file was written.
    Write = 2,
    /// Something is gone.
    Remove = 3,
    /// Something has another path.
    Rename = 4,
}

/// Something that happened.
#[derive(Clone, PartialEq, Message)]
pub struct FileEvent {
    /// What.
    #[prost(enumeration = "EventKind", tag = "1")]
    pub kind: i32,
    /// To what: its path below the watched folder, empty for that itself.
    #[prost(bytes = "bytes", tag = "2")]
    pub path: bytes::Bytes,
    /// The path that it had before it was renamed.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: bytes::Bytes,
    /// Whether it is a folder.
    #[prost(bool, tag = "4")]
    pub folder: bool,
    /// Why events were lost.
    #[prost(string, tag = "5")]
    pub why: String,
}

/// Some events, in their order. The first frame holds none and says that the watch has begun.
#[derive(Clone, PartialEq, Message)]
pub struct FileEvents {
    /// The events.
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<FileEvent>,
}

/// What kept a request from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Obstacle {
    /// The kernel refused; the error number says why.
    Errno = 0,
    /// It is no regular file, and only those are read.
    NotOrdinary = 1,
    /// It is no file of the sandbox but the kernel's own.
    KernelsOwn = 2,
    /// It would be far larger than what it takes inside.
    TooLarge = 3,
    /// The archive cannot be read.
    Malformed = 4,
}

/// A request about files could not be done.
#[derive(Clone, PartialEq, Message)]
pub struct FileFailed {
    /// Why.
    #[prost(enumeration = "Obstacle", tag = "1")]
    pub obstacle: i32,
    /// The error number, where there is one.
    #[prost(int32, tag = "2")]
    pub errno: i32,
    /// The path that it was about.
    #[prost(bytes = "vec", tag = "3")]
    pub path: Vec<u8>,
    /// More about it, for people.
    #[prost(string, tag = "4")]
    pub detail: String,
}
