//! A process with an event loop forks: what its child does with the copy.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration as Patience;

use trine_child::fork;

use super::*;
use crate::backend::wake::WakeEvent;
use crate::session::ConnectParams;

const LIMIT: Patience = Patience::from_secs(30);

fn check(is_right: bool, what: &str) -> Result<(), String> {
    is_right.then_some(()).ok_or_else(|| what.to_owned())
}

/// The descriptors of this process that lead to sockets or eventfds.
fn open_ends() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc");
    let links = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let links = links.map(|link| link.to_string_lossy().into_owned());
    links
        .filter(|link| link.starts_with("socket:") || link.contains("eventfd"))
        .collect()
}

/// Other tests of this program have sockets of their own, so only what vanishes counts.
#[test]
fn a_child_sends_nothing_and_lets_go_of_what_it_shares() {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_nonblocking(true).expect("a setting");
    let route = peer.local_addr().expect("an address");
    let mut event_loop = event_loop_over(udp(), Duration::ZERO);
    let child = fork(|| {
        let before = open_ends().len();
        event_loop.with(|_, cx| {
            // A handshake is ready to be sent.
            cx.connect(route, ConnectParams::default())
                .map_err(|_| "no room")
        })?;
        let turn = event_loop.turn();
        check(turn == Err(BackendError::OtherProcess), "a turn ran")?;
        let pause = event_loop.pause(None);
        check(pause == Err(BackendError::OtherProcess), "it slept")?;
        check(
            before - open_ends().len() == 2,
            "socket and eventfd are open",
        )?;
        drop(event_loop_over(udp(), Duration::ZERO));
        Ok(())
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    let mut bytes = [0; 2048];
    let came = peer.recv_from(&mut bytes);
    assert!(came.is_err(), "the child sent {came:?}");
    // The parent's socket is what it was.
    event_loop.with(|_, cx| cx.connect(route, ConnectParams::default()).expect("room"));
    event_loop.turn().expect("it works");
    let (_, from) = peer.recv_from(&mut bytes).expect("a packet came");
    assert_eq!(from, event_loop.backend().local_addr());
}

/// The eventfd is one for both processes: a child that wrote it would wake its parent, one that read it would
/// take the parent's wake.
#[test]
fn a_child_neither_wakes_its_parent_nor_takes_its_wake() {
    let event = Arc::new(WakeEvent::new().expect("an eventfd"));
    let waker = Waker::new(Arc::clone(&event) as _);
    let event = event.descriptor().as_raw_fd();
    let wakes = || {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{event}")).expect("proc");
        let line = info.lines().find(|line| line.starts_with("eventfd-count"));
        line.expect("an eventfd")
            .split_whitespace()
            .last()
            .map(str::to_owned)
    };
    let child = fork(|| {
        waker.wake();
        waker.abandon();
        Ok(())
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(wakes().as_deref(), Some("0"));
    waker.wake();
    let child = fork(|| {
        waker.abandon();
        Ok(())
    });
    assert_eq!(child.join(LIMIT), Ok(()));
    assert_eq!(wakes().as_deref(), Some("1"));
}

/// The application forks in the middle of a turn, and its child comes back into the loop.
#[test]
fn a_turn_in_which_the_application_forks_sends_only_once() {
    struct Forks {
        route: std::net::SocketAddr,
        side: Option<trine_child::Side>,
    }

    impl App<std::net::SocketAddr> for Forks {
        fn on_request(&mut self, _: &mut Cx<'_, std::net::SocketAddr>, _: Request<'_>) -> Reply {
            Reply::Later
        }

        fn on_completion(&mut self, _: &mut Cx<'_, std::net::SocketAddr>, _: u64, _: Completion) {}

        fn on_turn(&mut self, cx: &mut Cx<'_, std::net::SocketAddr>) {
            if self.side.is_none() {
                cx.connect(self.route, ConnectParams::default())
                    .expect("room");
                self.side = Some(trine_child::split());
            }
        }
    }

    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let route = peer.local_addr().expect("an address");
    let app = Forks { route, side: None };
    let (config, identity) = (Config::default(), Identity::default());
    let mut event_loop =
        EventLoop::new(udp(), MonotonicClock, app, config, identity, 1).expect("sound");
    let turn = event_loop.turn();
    match event_loop.app_mut().side.take() {
        Some(trine_child::Side::Child(report)) => report.end(check(
            turn == Err(BackendError::OtherProcess),
            "it was sent",
        )),
        Some(trine_child::Side::Parent(child)) => {
            assert_eq!(child.join(LIMIT), Ok(()));
            assert_eq!(turn, Ok(true));
        }
        None => panic!("no turn"),
    }
    let mut bytes = [0; 2048];
    peer.recv_from(&mut bytes).expect("the parent's packet");
    peer.set_nonblocking(true).expect("a setting");
    let more = peer.recv_from(&mut bytes);
    assert!(more.is_err(), "somebody sent it once more: {more:?}");
}
