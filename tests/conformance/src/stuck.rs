//! A mount of the host that does not answer: a file system in user space whose server takes the opening of a file and never
//! says how it went. Whoever opens one waits in the kernel, and once it was killed nothing wakes it but the end of the mount.

use std::{
    ffi::CString,
    fs::File,
    io::{Read, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::Duration,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The kernel's numbers of what it asks for (fuse_kernel.h).
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const NO_SUCH_THING: i32 = -38;
const FOLDER: u32 = 0o040_755;
const REGULAR: u32 = 0o100_644;
/// Longer than what the kernel sends at once.
const LONGEST: usize = 256 * 1024;

/// A mount that does not answer. It is gone when this is dropped.
pub(crate) struct Stuck {
    place: PathBuf,
    opened: Receiver<()>,
    server: Option<JoinHandle<()>>,
}

impl Stuck {
    /// Mounts one. Every name in it is a file that nobody gets to open.
    pub(crate) fn mount(place: &Path) -> Stuck {
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("there is fuse");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options).expect("no NUL");
        mount("stuck", place, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
            .expect("a fuse file system can be mounted");
        let (told, opened) = channel();
        let server = std::thread::spawn(move || serve(device, &told));
        Stuck { place: place.to_owned(), opened, server: Some(server) }
    }

    /// Waits until somebody opens a file.
    pub(crate) fn wait_until_opened(&self) {
        self.opened.recv_timeout(Duration::from_secs(10)).expect("somebody opens a file");
    }

    /// Lets all who wait go: the mount is no more.
    pub(crate) fn let_go(&mut self) {
        if let Some(server) = self.server.take() {
            unmount(&self.place, UnmountFlags::FORCE | UnmountFlags::DETACH).expect("it can be unmounted");
            server.join().expect("the server ends with its mount");
        }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Answers all but the opening of files, until the mount is gone.
fn serve(mut device: File, opened: &std::sync::mpsc::Sender<()>) {
    let mut request = vec![0; LONGEST];
    while let Ok(length) = device.read(&mut request) {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let unique = &request[8..16];
        assert!(length >= 40, "a request has a header");
        let answer: Result<Vec<u8>, i32> = match number(4) {
            INIT => Ok([7u32, 31, 0, 0, 0, 4096, 1].iter().flat_map(|n| n.to_ne_bytes()).chain([0; 36]).collect()),
            GETATTR => Ok([longs(&[60, 0]), attributes(number(16))].concat()),
            LOOKUP => Ok([longs(&[2, 0, 60, 60, 0]), attributes(2)].concat()),
            STATFS => Ok(vec![0; 80]),
            OPEN => {
                let _ = opened.send(());
                continue;
            }
            FORGET | BATCH_FORGET | INTERRUPT => continue,
            _ => Err(NO_SUCH_THING),
        };
        let (error, body) = answer.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let head = [(16 + body.len() as u32).to_ne_bytes(), error.to_ne_bytes()].concat();
        // Nobody may want the answer any more.
        let _ = device.write(&[&head[..], unique, &body].concat());
    }
}

fn longs(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// The attributes of the root, whose number is 1, or of a file.
fn attributes(node: u32) -> Vec<u8> {
    let mode = if node == 1 { FOLDER } else { REGULAR };
    let times = longs(&[node.into(), 0, 0, 0, 0, 0]);
    let rest = [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    times.into_iter().chain(rest.iter().flat_map(|number| number.to_ne_bytes())).collect()
}
