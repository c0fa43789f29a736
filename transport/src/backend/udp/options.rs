//! Socket options: integers, and the kernel's counters.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an integer socket option.
pub(super) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe a live integer that the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Reads an integer socket option.
pub(super) fn option(socket: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of::<i32>() as u32;
    // SAFETY: the pointers and the length describe live integers that the kernel may write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// Datagrams that the kernel dropped at this socket, mostly for want of room in its receive queue. Read only when the
/// statistics are read, so that no datagram carries the count (`SO_RXQ_OVFL`).
pub(super) fn drops(socket: BorrowedFd<'_>) -> Option<u64> {
    /// `SK_MEMINFO_DROPS`, the last value of the kernel's table.
    const DROPS: usize = 8;
    let mut values = [0u32; DROPS + 1];
    let mut len = size_of_val(&values) as u32;
    // SAFETY: the pointers and the length describe a live array that the kernel may write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    let is_whole = len as usize == size_of_val(&values);
    (result == 0 && is_whole).then_some(u64::from(values[DROPS]))
}

/// A message header that describes nothing. Its layout is the C library's own. The types of its lengths differ between
/// glibc and musl (hence `as _` where they are set), and musl's has padding that has no name.
pub(super) fn empty_header() -> libc::mmsghdr {
    // SAFETY: pointers and integers, for all of which zero is a value.
    unsafe { std::mem::zeroed() }
}
