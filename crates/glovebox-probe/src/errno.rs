//! Names of error numbers.

macro_rules! names {
    ($($name:ident)*) => {
        /// The name of an error number, or the number itself where the name is not in the list.
        pub(crate) fn name(errno: i32) -> String {
            match errno {
                $(libc::$name => stringify!($name).to_owned(),)*
                other => format!("errno-{other}"),
            }
        }
    };
}

names! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECHILD ECONNREFUSED ECONNRESET
    EDQUOT EEXIST EFAULT EFBIG EHOSTUNREACH EINPROGRESS EINTR EINVAL EIO EISDIR EKEYEXPIRED EKEYREVOKED ELOOP EMFILE
    EMLINK ENAMETOOLONG ENETDOWN ENETUNREACH ENFILE ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOMEM ENOPROTOOPT
    ENOSPC ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTSOCK ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EPERM EPIPE
    EPROTONOSUPPORT ERANGE EROFS ESOCKTNOSUPPORT ESPIPE ESRCH ETIMEDOUT ETXTBSY EUSERS EXDEV
}
