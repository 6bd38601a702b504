//! What is planted on the host and must not be reached from inside, and what it witnessed.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead, BufReader},
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::DirBuilderExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use glovebox_core::{Error, ErrorCode, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::verbs::prove::PROBE;

/// The variable of this process's own environment that must not be seen inside.
pub(crate) const VARIABLE: &str = "CANARY_OF_GLOVEBOX";

/// How many files of the caller's home are looked for inside.
const HOME_FILES: usize = 8;

/// What is planted. All of it is gone when this value is dropped; the folder of one that was killed is removed by the next.
pub(crate) struct Canaries {
    /// A word that is in the environment, in the arguments of a process, and in the paths of what is planted.
    pub(crate) token: String,
    /// Another word, in the name of the probe inside.
    pub(crate) tag: String,
    folder: Folder,
    words: BTreeMap<&'static str, Result<Vec<String>, String>>,
    listeners: Vec<TcpListener>,
    abstract_socket: Option<UnixListener>,
    process: Option<Planted>,
    _held: Vec<Planted>,
    _descriptor: Option<OwnedFd>,
}

impl Canaries {
    /// Plants everything. What cannot be planted leaves its rows without a verdict.
    pub(crate) fn plant(token: String, data_dir: &Path) -> Result<Self> {
        let mut planted = Self::plant_folder(token, data_dir)?;
        planted.plant_listeners();
        planted.plant_processes();
        Ok(planted)
    }

    /// Plants what needs neither a socket nor a process.
    pub(super) fn plant_folder(token: String, data_dir: &Path) -> Result<Self> {
        let folder = Folder::make(data_dir, &token).map_err(|e| {
            let message = format!("the canaries have no folder below {}", data_dir.display());
            Error::new(ErrorCode::HostIo, message).because(e).hint("--data-dir DIR, or GLOVEBOX_DATA_DIR")
        })?;
        let mut planted = Canaries {
            tag: format!("probe-{}", new_token()),
            folder,
            words: BTreeMap::new(),
            listeners: Vec::new(),
            abstract_socket: None,
            process: None,
            _held: Vec::new(),
            _descriptor: None,
            token,
        };
        planted.words.insert("token", Ok(vec![planted.token.clone()]));
        planted.plant_files().map_err(|e| Error::new(ErrorCode::HostIo, "no canary can be written").because(e))?;
        Ok(planted)
    }

    fn plant_files(&mut self) -> io::Result<()> {
        let file = self.folder.path.join("canary");
        fs::write(&file, &self.token)?;
        fs::create_dir(self.workspace())?;
        fs::write(self.workspace().join("given"), "given")?;
        // A descriptor that is inherited by every process, unless somebody closes it.
        let descriptor = OwnedFd::from(fs::File::open(&file)?);
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty())?;
        self._descriptor = Some(descriptor);
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let entries = home.and_then(|home| fs::read_dir(home).ok()).into_iter().flatten().flatten();
        let readable = entries.map(|entry| entry.path()).filter(|path| path.is_file() && fs::File::open(path).is_ok());
        let files = std::iter::once(file).chain(readable.take(HOME_FILES));
        let files = files.filter_map(|path| path.into_os_string().into_string().ok()).collect();
        self.words.insert("files", Ok(files));
        Ok(())
    }

    fn plant_listeners(&mut self) {
        for (word, address) in [("listener", "127.0.0.1:0"), ("listener6", "[::1]:0")] {
            let listener = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((listener.local_addr()?.to_string(), listener))
            });
            let listener = listener.map_err(|error| format!("this host cannot listen on {address}: {error}"));
            self.words.insert(word, listener.as_ref().map(|(at, _)| vec![at.clone()]).map_err(Clone::clone));
            self.listeners.extend(listener.ok().map(|(_, listener)| listener));
        }
        let listen = || {
            let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&self.token)?)?;
            listener.set_nonblocking(true)?;
            io::Result::Ok(listener)
        };
        match listen() {
            Ok(listener) => {
                self.words.insert("name", Ok(vec![self.token.clone()]));
                self.abstract_socket = Some(listener);
            }
            Err(error) => drop(self.words.insert("name", Err(format!("no abstract socket can be made: {error}")))),
        }
    }

    /// Starts the probe on the host, to hold what belongs to a process.
    fn plant_processes(&mut self) {
        let process = Planted::start(&["hold", &self.token]);
        let pid = process.as_ref().map(|process| vec![process.child.id().to_string()]).map_err(Clone::clone);
        self.words.insert("pid", pid);
        self.process = process.ok();

        // A key of System V is a positive number.
        let key = u32::from_str_radix(&self.token[..7], 16).unwrap_or(1).max(1).to_string();
        let segment = Planted::start(&["hold-shm", &key]).and_then(|held| held.expect("held ok", "shared memory"));
        self.words.insert("segment", segment.as_ref().map(|_| vec![key]).map_err(Clone::clone));

        let held = Planted::start(&["key-add", &self.token]);
        let serial = held.as_ref().map_err(Clone::clone).and_then(|held| match held.first.strip_prefix("session ") {
            Some(serial) => Ok(vec![serial.to_owned()]),
            None => Err(format!("no key can be planted on this host: {}", held.first)),
        });
        self.words.insert("serial", serial);
        self._held = [segment, held].into_iter().flatten().collect();
    }

    /// The words of a row, with what is planted in place of `{name}`.
    pub(crate) fn fill(&self, row: &str) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        for word in row.split_whitespace() {
            match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
                Some(name) => words.extend(self.words.get(name).cloned().unwrap_or_else(|| Err(name.into()))?),
                None => words.push(word.to_owned()),
            }
        }
        Ok(words)
    }

    /// A folder of the host that is a workspace.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path.join("workspace")
    }

    /// Whether the workspace is as it was.
    pub(crate) fn workspace_is_untouched(&self) -> bool {
        let names: Vec<_> =
            fs::read_dir(self.workspace()).into_iter().flatten().flatten().map(|e| e.file_name()).collect();
        names == ["given"] && fs::read_to_string(self.workspace().join("given")).is_ok_and(|text| text == "given")
    }

    /// Whether somebody connected to a listener.
    pub(crate) fn was_connected(&self) -> bool {
        self.listeners.iter().any(|listener| listener.accept().is_ok())
    }

    /// Whether somebody connected to the abstract socket.
    pub(crate) fn was_connected_by_name(&self) -> bool {
        self.abstract_socket.as_ref().is_some_and(|listener| listener.accept().is_ok())
    }

    /// Whether the planted process is still there.
    pub(crate) fn process_lives(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.child.try_wait(), Ok(None)))
    }
}

/// A word that nobody else has.
pub(crate) fn new_token() -> String {
    let mut bytes = [0u8; 16];
    // The kernel gives so few bytes at once, or the machine has just started and they are not needed to be secret.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How many processes of the host have a word among their arguments.
pub(crate) fn processes_with(word: &str) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes())).count()
}

/// The groups that a process of the host is in, unless it is in those that all are in.
pub(crate) fn groups_of(pid: Option<i32>) -> Option<String> {
    let groups = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
    groups(&pid?.to_string()).filter(|theirs| groups("self").is_some_and(|own| own != *theirs))
}

/// How many processes of the host are in these groups.
pub(crate) fn processes_in(groups: &str) -> usize {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter(|entry| fs::read_to_string(entry.path().join("cgroup")).is_ok_and(|its| its == groups)).count()
}

/// The probe on the host. It removes what it holds at the end of its input, however that comes about.
struct Planted {
    child: Child,
    first: String,
}

impl Planted {
    /// Starts the probe and waits for its first line, which says what it holds.
    fn start(words: &[&str]) -> Result<Self, String> {
        let start = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(PROBE).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut planted = Planted { child: command.spawn()?, first: String::new() };
            if let Some(output) = planted.child.stdout.as_mut() {
                BufReader::new(output).read_line(&mut planted.first)?;
            }
            planted.first.truncate(planted.first.trim_end().len());
            io::Result::Ok(planted)
        };
        start().map_err(|error| format!("the probe does not run on the host: {error}"))
    }

    fn expect(self, first: &str, what: &str) -> Result<Self, String> {
        if self.first == first {
            Ok(self)
        } else {
            Err(format!("no {what} can be planted on this host: {}", self.first))
        }
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The folder of the canaries, below the data folder. Its maker holds a lock on it while it lives.
struct Folder {
    path: PathBuf,
    _lock: OwnedFd,
}

impl Folder {
    fn make(data_dir: &Path, token: &str) -> io::Result<Self> {
        let all = data_dir.join("prove");
        // The data folder has its usual mode; what is in this one is nobody else's business.
        fs::create_dir_all(data_dir)?;
        match fs::DirBuilder::new().mode(0o700).create(&all) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for left in fs::read_dir(&all)?.flatten().map(|entry| entry.path()) {
            if lock(&left).is_ok() {
                // What cannot be removed now is found again by the next.
                let _ = fs::remove_dir_all(&left);
            }
        }
        let path = all.join(token);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder { _lock: lock(&path)?, path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock(folder: &Path) -> io::Result<OwnedFd> {
    let folder = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    flock(folder.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}
