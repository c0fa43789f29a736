//! A descriptor that a process and its child share.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The number of a descriptor, and what it stood for when this was made. It does not own the descriptor.
#[derive(Debug)]
pub struct DescriptorRef {
    number: RawFd,
    file: File,
}

/// Tells open files apart. Eventfds may share theirs; sockets and files do not.
#[derive(PartialEq, Eq, Debug)]
struct File {
    device: libc::dev_t,
    inode: libc::ino_t,
}

impl DescriptorRef {
    /// Remembers a descriptor.
    ///
    /// # Errors
    ///
    /// The system's, if there is no such descriptor.
    pub fn of(descriptor: &impl AsFd) -> io::Result<Self> {
        let number = descriptor.as_fd().as_raw_fd();
        let file = file_of(number)?;
        Ok(Self { number, file })
    }

    /// To be called in a child: lets go of what the parent uses, too. The number then stands for `/dev/null` and stays its
    /// owner's to close, who may be in the child or may be gone. Nothing happens if the number stands for
    /// something else by now: a child that closes everything and opens files of its own keeps those.
    pub fn give_up(&self) {
        if !file_of(self.number).is_ok_and(|file| file == self.file) {
            return;
        }
        // SAFETY: the path is a string that ends with a zero.
        let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if null < 0 {
            // Without that file it stays open until the child ends. Nothing uses it.
            return;
        }
        // SAFETY: no pointers. The number still stands for the file that was remembered, whose owner lets go of it here. It
        // keeps a valid descriptor.
        unsafe { libc::dup3(null, self.number, libc::O_CLOEXEC) };
        // SAFETY: it was just opened, and only this function knows it.
        unsafe { libc::close(null) };
    }
}

fn file_of(number: RawFd) -> io::Result<File> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the pointer is to memory of that type, which the call fills if it succeeds.
    if unsafe { libc::fstat(number, status.as_mut_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded.
    let status = unsafe { status.assume_init() };
    Ok(File {
        device: status.st_dev,
        inode: status.st_ino,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use trine_child::fork;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// Where the number leads to.
    fn target(descriptor: &impl AsFd) -> String {
        let number = descriptor.as_fd().as_raw_fd();
        let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
        link.expect("it is open").to_string_lossy().into_owned()
    }

    /// In a process of its own: a child that a neighbouring test forks would hold a copy of the socket for a moment.
    #[test]
    fn the_number_stays_and_the_socket_goes() {
        let child = fork(|| {
            let (ours, theirs) = UnixDatagram::pair().expect("sockets");
            let shared = DescriptorRef::of(&ours).expect("open");
            shared.give_up();
            assert_eq!(target(&ours), "/dev/null");
            assert!(theirs.send(b"hello").is_err(), "nobody is at the other end");
            // Once more is harmless.
            shared.give_up();
            assert_eq!(target(&ours), "/dev/null");
            Ok(())
        });
        assert_eq!(child.join(LIMIT), Ok(()));
    }

    /// A daemon closes all that it has inherited, opens a log, and then first uses a client of its parent.
    #[test]
    fn a_number_that_was_used_again_is_left_alone() {
        let (ours, _theirs) = UnixDatagram::pair().expect("sockets");
        let (other, _its_peer) = UnixDatagram::pair().expect("sockets");
        let mut shared = DescriptorRef::of(&ours).expect("open");
        shared.number = other.as_raw_fd();
        let before = target(&other);
        shared.give_up();
        assert_eq!(target(&other), before);
    }
}
