//! A mutex in memory that both processes share: the replica's thread holds it as long as it runs.
//!
//! The kernel marks a robust mutex once the thread that holds it has ended, before it frees the process's memory. A pipe
//! closes only after that, which takes half a second for a store of a gigabyte on some machines.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, memfd_create};

/// Bytes of the memory: one page holds the mutex.
const BYTES: usize = 4096;
const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= BYTES);

/// The mutex, locked by the thread that made it until that thread ends. It stays there: no other thread may release it.
pub(super) struct LifeLock {
    shared: MappedMutex,
    memory: File,
}

/// The mutex in memory of this process. Being a pointer, it is neither `Send` nor `Sync`.
struct MappedMutex(NonNull<libc::pthread_mutex_t>);

impl LifeLock {
    /// Makes the mutex and locks it.
    ///
    /// # Errors
    /// The operating system gives no such memory, or has no robust mutexes.
    pub(super) fn new() -> io::Result<Self> {
        // Some systems refuse memory that might be executed, and older ones do not know the flag.
        let create = |flags| memfd_create("trine-companion", MemfdFlags::CLOEXEC | flags);
        let memory = create(MemfdFlags::NOEXEC_SEAL).or_else(|_| create(MemfdFlags::empty()))?;
        let memory = File::from(memory);
        memory.set_len(BYTES as u64)?;
        let shared = MappedMutex::map(&memory)?;
        shared.init()?;
        // SAFETY: the mutex was initialized, and no other thread knows it yet.
        check(unsafe { libc::pthread_mutex_lock(shared.0.as_ptr()) })?;
        Ok(Self { shared, memory })
    }

    /// The memory, for [`has_ended`] in another process.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.try_clone().map(OwnedFd::from)
    }
}

impl Drop for LifeLock {
    fn drop(&mut self) {
        // SAFETY: this thread locked the mutex in `new`: `LifeLock` cannot leave it.
        unsafe { libc::pthread_mutex_unlock(self.shared.0.as_ptr()) };
    }
}

/// Waits until the mutex in `memory` is free. Whether that is because the thread that held it has ended.
///
/// # Errors
/// `memory` is none that [`LifeLock`] has made.
pub(super) fn has_ended(memory: &File) -> io::Result<bool> {
    // Beyond the end of a file that is too short, an access would end this process.
    if memory.metadata()?.len() != BYTES as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let shared = MappedMutex::map(memory)?;
    // SAFETY: `LifeLock::new` initialized the mutex before it gave the memory away, by the same program.
    let result = unsafe { libc::pthread_mutex_lock(shared.0.as_ptr()) };
    if result == libc::EOWNERDEAD {
        // The mutex stays locked by this thread: its memory must stay as long.
        std::mem::forget(shared);
        return Ok(true);
    }
    check(result)?;
    // SAFETY: this thread has just locked it.
    unsafe { libc::pthread_mutex_unlock(shared.0.as_ptr()) };
    Ok(false)
}

impl MappedMutex {
    fn map(memory: &File) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory. The descriptor is open.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast())
            .map(Self)
            .ok_or_else(|| io::ErrorKind::Other.into())
    }

    fn init(&self) -> io::Result<()> {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are memory of this function.
        check(unsafe { libc::pthread_mutexattr_init(attributes) })?;
        let shared = libc::PTHREAD_PROCESS_SHARED;
        // SAFETY: the attributes were initialized.
        check(unsafe { libc::pthread_mutexattr_setpshared(attributes, shared) })?;
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        // SAFETY: as above.
        check(unsafe { libc::pthread_mutexattr_setrobust(attributes, robust) })?;
        // SAFETY: as above. The mutex is writable memory of a whole page, which no other thread or process knows yet.
        check(unsafe { libc::pthread_mutex_init(self.0.as_ptr(), attributes) })
    }
}

impl Drop for MappedMutex {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping, this is its only owner, and this thread holds the mutex no more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// The error that a function of threads returns.
fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A thread holds such a mutex and ends with `end`. Returns the answer that another one gets, which waits for it.
    fn told_of(end: impl FnOnce(LifeLock) + Send + 'static) -> bool {
        let (memory, given) = mpsc::channel();
        let (go_on, may_end) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            let life_lock = LifeLock::new().expect("a mutex");
            memory
                .send(life_lock.descriptor().expect("a descriptor"))
                .expect("it is awaited");
            may_end.recv().expect("it may end");
            end(life_lock);
        });
        let memory = File::from(given.recv().expect("the memory"));
        let (tell, told) = mpsc::channel();
        thread::spawn(move || tell.send(has_ended(&memory)));
        // Whether the waiter waits already makes no difference to what it is told.
        go_on.send(()).expect("it waits");
        holder.join().expect("it ends");
        let told = told.recv_timeout(Duration::from_secs(60));
        told.expect("it is told").expect("a mutex")
    }

    #[test]
    fn a_thread_that_has_ended_is_told_from_one_that_let_go() {
        for _ in 0..20 {
            assert!(told_of(std::mem::forget));
            assert!(!told_of(drop));
        }
    }

    #[test]
    fn other_memory_is_refused() {
        let other = File::from(memfd_create("other", MemfdFlags::CLOEXEC).expect("memory"));
        assert!(has_ended(&other).is_err());
        let null = File::open("/dev/null").expect("it is there");
        assert!(has_ended(&null).is_err());
    }
}
