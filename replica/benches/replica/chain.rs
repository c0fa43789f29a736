//! The least that a replicated write can be on this machine: bare datagrams from a client to a leader, from there to
//! two followers, back to the leader, and at the first acknowledgement to the client. Every hop polls and yields.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::{KEY, VALUE};

/// What a request carries beyond key and value: the sizes are those of the protocol's packets.
const OVERHEAD: usize = 80;
const ACK: usize = 80;

pub(crate) struct Chain {
    leader: SocketAddr,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Chain {
    pub(crate) fn start() -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let followers: Vec<UdpSocket> = (0..2).map(|_| socket()).collect();
        let addresses: Vec<SocketAddr> = followers.iter().map(local).collect();
        let leader_socket = socket();
        let leader = local(&leader_socket);
        let mut threads: Vec<_> = followers
            .into_iter()
            .map(|socket| {
                let stopping = Arc::clone(&stopping);
                std::thread::spawn(move || follow(&socket, &stopping))
            })
            .collect();
        let flag = Arc::clone(&stopping);
        threads.push(std::thread::spawn(move || {
            lead(&leader_socket, &addresses, &flag)
        }));
        Self {
            leader,
            stopping,
            threads,
        }
    }

    /// Median time of one round, in microseconds.
    pub(crate) fn latency_us(&self, rounds: usize) -> f64 {
        let client = socket();
        let request = [1; KEY + VALUE + OVERHEAD];
        let mut buffer = [0; 2048];
        let never = AtomicBool::new(false);
        let mut times: Vec<f64> = (0..rounds)
            .map(|_| {
                let start = Instant::now();
                client
                    .send_to(&request, self.leader)
                    .expect("loopback takes a datagram");
                receive(&client, &mut buffer, &never).expect("the leader answers");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn lead(socket: &UdpSocket, followers: &[SocketAddr], stopping: &AtomicBool) {
    let mut buffer = [0; 2048];
    let mut client = None;
    while let Some((len, from)) = receive(socket, &mut buffer, stopping) {
        if followers.contains(&from) {
            // The first acknowledgement is a majority; the second finds nobody waiting.
            if let Some(client) = client.take() {
                socket
                    .send_to(&buffer[..ACK], client)
                    .expect("loopback takes a datagram");
            }
            continue;
        }
        client = Some(from);
        for follower in followers {
            socket
                .send_to(&buffer[..len], follower)
                .expect("loopback takes a datagram");
        }
    }
}

fn follow(socket: &UdpSocket, stopping: &AtomicBool) {
    let mut buffer = [0; 2048];
    while let Some((_, from)) = receive(socket, &mut buffer, stopping) {
        socket
            .send_to(&buffer[..ACK], from)
            .expect("loopback takes a datagram");
    }
}

fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    stopping: &AtomicBool,
) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(received) => return Some(received),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("receive: {error}"),
        }
        if stopping.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::yield_now();
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a free port on loopback");
    socket
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    socket
}

fn local(socket: &UdpSocket) -> SocketAddr {
    socket.local_addr().expect("a bound socket has an address")
}
