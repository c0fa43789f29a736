//! The event loops of a server: where they listen, and how they run until Ctrl-C.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use trine_base::failure::Failure;
use trine_base::interrupt;
use trine_transport::backend::{Backend, BackendError, BackendStats, MonotonicClock, Waker};
use trine_transport::{App, EventLoop};

/// The addresses of a server's threads: the first one's, and the ports that follow.
pub(crate) fn addresses_from(first: SocketAddr, threads: u32) -> Result<Vec<SocketAddr>, Failure> {
    (0..threads)
        .map(|thread| {
            address_of(first, thread).ok_or_else(|| {
                Failure::usage(
                    format!(
                        "{threads} threads need as many ports from {} on",
                        first.port()
                    ),
                    "use a lower port, or fewer threads",
                )
            })
        })
        .collect()
}

/// The address of this thread in a server that begins at `first`.
pub(crate) fn address_of(first: SocketAddr, thread: u32) -> Option<SocketAddr> {
    let port = first.port().checked_add(u16::try_from(thread).ok()?)?;
    Some(SocketAddr::new(first.ip(), port))
}

/// What a thread of a server does.
pub(crate) trait ServerThread: Send {
    /// Ends its sleep.
    fn waker(&self) -> Waker;

    /// Serves until `is_over` says so. It is asked after each turn.
    fn run(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), BackendError>;

    /// What its backend has done.
    fn backend_stats(&self) -> BackendStats;
}

impl<B, A> ServerThread for EventLoop<B, MonotonicClock, A>
where
    B: Backend + Send,
    A: App<B::Route> + Send,
{
    fn waker(&self) -> Waker {
        EventLoop::waker(self)
    }

    fn run(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), BackendError> {
        self.run_until(None, |_| is_over()).map(|_| ())
    }

    fn backend_stats(&self) -> BackendStats {
        self.backend().stats()
    }
}

/// Runs each of them in a thread until Ctrl-C, or until one of them fails. What their backends have done.
pub(crate) fn run_all(loops: Vec<impl ServerThread>) -> Result<Vec<BackendStats>, BackendError> {
    let wakers: Vec<Waker> = loops.iter().map(ServerThread::waker).collect();
    let wake_all = {
        let wakers = wakers.clone();
        move || wakers.iter().for_each(Waker::wake)
    };
    interrupt::on_interrupt(wake_all);
    let failed = AtomicBool::new(false);
    let is_over = || interrupt::interrupted() || failed.load(Ordering::SeqCst);
    let run = &|server: &mut dyn ServerThread| {
        let ended = server.run(&is_over);
        if ended.is_err() {
            // A server that lost a thread would answer only a part of its clients, so all threads stop.
            failed.store(true, Ordering::SeqCst);
            wakers.iter().for_each(Waker::wake);
        }
        ended.map(|()| server.backend_stats())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = loops
            .into_iter()
            .map(|mut server| scope.spawn(move || run(&mut server)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            // All have to end before one failure is the result.
            .collect::<Vec<Result<_, _>>>()
            .into_iter()
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_end_at_the_last_one() {
        let first = "127.0.0.1:65534".parse().expect("an address");
        assert_eq!(addresses_from(first, 2).expect("two")[1].port(), 65535);
        assert_eq!(
            addresses_from(first, 3)
                .expect_err("no third")
                .exit_status(),
            2
        );
    }
}
