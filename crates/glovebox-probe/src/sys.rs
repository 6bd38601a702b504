//! Every unsafe call of the probe. The rest of the program is safe Rust.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

/// An argument of a raw system call. Pointers are only ever to memory that stays valid.
#[derive(Clone, Copy)]
pub(crate) enum Arg {
    /// A plain number.
    Int(i64),
    /// A text that ends with NUL.
    Text(&'static CStr),
    /// A page of these bytes, the rest zero, that is never freed.
    Page(&'static [u8]),
}

impl Arg {
    fn word(self) -> i64 {
        match self {
            Arg::Int(number) => number,
            Arg::Text(text) => text.as_ptr() as i64,
            Arg::Page(bytes) => {
                let page = Box::leak(vec![0u8; 4096].into_boxed_slice());
                page[..bytes.len()].copy_from_slice(bytes);
                page.as_mut_ptr() as i64
            }
        }
    }
}

/// Makes one system call by its number. Only for calls that neither free nor map memory of this process.
pub(crate) fn call(number: i64, args: &[Arg]) -> Result<i64, i32> {
    let mut words = [0i64; 6];
    for (word, arg) in words.iter_mut().zip(args) {
        *word = arg.word();
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: every pointer is to a static text or a leaked page, so the kernel reads and writes valid memory; the
    // callers name no call that changes the memory map of this process.
    answer(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Stands for the address of the word in [`call_for_word`].
pub(crate) const WORD: i64 = i64::MIN;

/// Makes one system call that writes a word, and forgets the word. Only for calls as in [`call`].
pub(crate) fn call_for_word(number: i64, arguments: [i64; 3]) -> Result<i64, i32> {
    let mut word = 0u64;
    let address = (&raw mut word) as i64;
    let [a, b, c] = arguments.map(|argument| if argument == WORD { address } else { argument });
    // SAFETY: the only pointer is to a word that lives through the call; the callers name no call that changes the memory
    // map of this process or keeps the pointer.
    answer(unsafe { libc::syscall(number, a, b, c) })
}

fn answer(result: i64) -> Result<i64, i32> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Forks by `clone` with further flags. The child runs `child` and ends with the code it returns.
pub(crate) fn fork_with(flags: i32, child: impl FnOnce() -> i32) -> Result<i32, i32> {
    let flags = i64::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with no new stack, clone is fork: the child has its own copy of everything, and
    // this program is single-threaded when it forks.
    let pid = answer(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })?;
    if pid == 0 {
        let code = child();
        // SAFETY: ends the child without running what the parent registered for its own exit.
        unsafe { libc::_exit(code) };
    }
    Ok(pid as i32)
}

/// Forks by `clone3` with further flags; the child ends at once.
pub(crate) fn clone3(flags: u64) -> Result<i32, i32> {
    let mut args = [0u64; 11];
    args[0] = flags;
    args[4] = libc::SIGCHLD as u64;
    // SAFETY: the structure of eleven words lives through the call; without CLONE_VM this is fork.
    let pid = answer(unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) })?;
    if pid == 0 {
        // SAFETY: ends the child without running what the parent registered for its own exit.
        unsafe { libc::_exit(0) };
    }
    Ok(pid as i32)
}

/// Waits for a child and says how it ended: `exited N`, `signaled N` or `stopped N`.
pub(crate) fn wait_for(pid: i32) -> String {
    let mut status = 0;
    // SAFETY: the status lives through the call.
    if unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) } != pid {
        return format!("lost {}", crate::errno::name(last_errno()));
    }
    if libc::WIFSTOPPED(status) {
        format!("stopped {}", libc::WSTOPSIG(status))
    } else if libc::WIFSIGNALED(status) {
        format!("signaled {}", libc::WTERMSIG(status))
    } else {
        format!("exited {}", libc::WEXITSTATUS(status))
    }
}

/// Calls the 32-bit system call table from 64-bit code. Only in a child: the filter is expected to kill it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80_getpid() -> i32 {
    let result: i32;
    // SAFETY: call 20 of the 32-bit table is getpid, which has no arguments; the registers that the gate clobbers
    // are named.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("eax") 20 => result,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
        );
    }
    result
}

/// Maps shared anonymous memory and touches every page of it.
pub(crate) fn touch_shared_memory(bytes: usize) -> Result<(), i32> {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let map = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)
    };
    if map == libc::MAP_FAILED {
        return Err(last_errno());
    }
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: the offset is inside the mapping, which is writable and never unmapped.
        unsafe { map.cast::<u8>().add(offset).write_volatile(1) };
    }
    Ok(())
}

/// Sets what a signal does: `SIG_IGN` or `SIG_DFL`.
pub(crate) fn set_signal(signal: i32, what: libc::sighandler_t) {
    // SAFETY: no handler of ours is installed, only one of the two fixed dispositions.
    unsafe { libc::signal(signal, what) };
}

/// Waits for signals for ever.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        // SAFETY: takes nothing and only waits.
        unsafe { libc::pause() };
    }
}

/// Sends a signal to this process by number, any number included.
pub(crate) fn raise(signal: i32) {
    // SAFETY: takes a number.
    unsafe { libc::raise(signal) };
}

/// Shortens a file to nothing by its path.
pub(crate) fn truncate(path: &std::path::Path) -> rustix::io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default();
    // SAFETY: the path lives through the call.
    match answer(unsafe { libc::truncate(path.as_ptr(), 0) }.into()) {
        Ok(_) => Ok(()),
        Err(errno) => Err(rustix::io::Errno::from_raw_os_error(errno)),
    }
}

/// Names of all network interfaces.
pub(crate) fn interface_names() -> Result<Vec<String>, i32> {
    // SAFETY: the list is read up to its end, which has index 0, and is freed afterwards.
    unsafe {
        let list = libc::if_nameindex();
        if list.is_null() {
            return Err(last_errno());
        }
        let mut names = Vec::new();
        let mut entry = list;
        while (*entry).if_index != 0 {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(list);
        Ok(names)
    }
}

/// Adds a user key to a keyring and returns its serial number.
pub(crate) fn add_key(name: &str, value: &str, keyring: i32) -> Result<i64, i32> {
    let (name, value) = (CString::new(name).map_err(|_| libc::EINVAL)?, value.as_bytes());
    // SAFETY: type, description and payload live through the call and the length is that of the payload.
    answer(unsafe {
        libc::syscall(libc::SYS_add_key, c"user".as_ptr(), name.as_ptr(), value.as_ptr(), value.len(), keyring)
    })
}

/// Searches a keyring for a user key.
pub(crate) fn search_key(name: &str, keyring: i32) -> Result<i64, i32> {
    let name = CString::new(name).map_err(|_| libc::EINVAL)?;
    // SAFETY: type and description live through the call.
    answer(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_SEARCH, keyring, c"user".as_ptr(), name.as_ptr(), 0) })
}

/// Reads the payload of a key.
pub(crate) fn read_key(serial: i64) -> Result<i64, i32> {
    let mut page = [0u8; 4096];
    // SAFETY: the buffer lives through the call and its length is given.
    answer(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_READ, serial, page.as_mut_ptr(), page.len()) })
}

/// Lets go of a key.
pub(crate) fn unlink_key(serial: i64, keyring: i32) -> Result<i64, i32> {
    // SAFETY: takes numbers only.
    answer(unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_UNLINK, serial, keyring) })
}
