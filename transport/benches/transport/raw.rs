//! The baselines: bare UDP sockets that do the least that the kernel allows.
#![allow(unsafe_code)]

use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trine_report::median;
use trine_report::pin::pin;

/// A thread that answers until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(
        core: usize,
        body: impl FnOnce(UdpSocket, &AtomicBool) + Send + 'static,
    ) -> Self {
        let socket = socket();
        let address = socket.local_addr().expect("a bound socket has an address");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            pin(core);
            body(socket, &seen);
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server thread did not panic");
        }
    }
}

/// A non-blocking socket on loopback.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has free ports");
    socket
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    socket
}

/// Answers each datagram with itself, polling.
pub(crate) fn echo_one_by_one(socket: UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0u8; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let _lost_is_lost = socket.send_to(&buffer[..len], peer);
        }
    }
}

/// Median round trip in nanoseconds of `rounds` datagrams of `len` bytes, one at a time, polling.
pub(crate) fn ping_pong(server: SocketAddr, len: usize, rounds: usize) -> f64 {
    let socket = socket();
    let mut buffer = [0u8; 2048];
    let round = |_| {
        let start = Instant::now();
        socket
            .send_to(&buffer[..len], server)
            .expect("loopback takes a datagram");
        while socket.recv_from(&mut buffer).is_err() {
            assert!(start.elapsed() < Duration::from_secs(5), "the echo is gone");
        }
        start.elapsed().as_nanos() as f64
    };
    median((0..rounds).map(round))
}

/// Batches of one-datagram messages for `recvmmsg` and `sendmmsg`.
struct Batch {
    headers: Vec<libc::mmsghdr>,
    _iovecs: Vec<libc::iovec>,
    _names: Vec<libc::sockaddr_in>,
    _memory: Vec<[u8; 2048]>,
}

const BATCH: usize = 64;

impl Batch {
    fn new() -> Self {
        let mut memory = vec![[0u8; 2048]; BATCH];
        // SAFETY: a `sockaddr_in` is plain data, for which zeros are valid.
        let mut names: Vec<libc::sockaddr_in> = (0..BATCH).map(|_| unsafe { zeroed() }).collect();
        let mut iovecs: Vec<libc::iovec> = memory
            .iter_mut()
            .map(|bytes| libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            })
            .collect();
        let header = |(name, iovec): (&mut libc::sockaddr_in, &mut libc::iovec)| {
            // SAFETY: an `mmsghdr` is plain data, for which zeros are valid.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_name = ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = names.iter_mut().zip(&mut iovecs).map(header).collect();
        Self {
            headers,
            _iovecs: iovecs,
            _names: names,
            _memory: memory,
        }
    }

    fn set_len(&mut self, index: usize, len: usize) {
        let iovec = self.headers[index].msg_hdr.msg_iov;
        // SAFETY: each header's iovec lies in `_iovecs`, which is not used otherwise.
        unsafe { (*iovec).iov_len = len };
    }

    fn set_peer(&mut self, index: usize, peer: libc::sockaddr_in) {
        let name = self.headers[index]
            .msg_hdr
            .msg_name
            .cast::<libc::sockaddr_in>();
        // SAFETY: each header's name lies in `_names`, which is not used otherwise.
        unsafe { name.write(peer) };
    }

    fn receive(&mut self, socket: &UdpSocket) -> usize {
        for index in 0..BATCH {
            self.set_len(index, 2048);
        }
        let headers = self.headers.as_mut_ptr();
        // SAFETY: the headers describe memory of this value, which outlives the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                BATCH as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        usize::try_from(count).unwrap_or(0)
    }

    fn send(&mut self, socket: &UdpSocket, count: usize) {
        let mut sent = 0;
        while sent < count {
            let rest = &mut self.headers[sent..count];
            // SAFETY: as in `receive`.
            let result = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0)
            };
            sent += usize::try_from(result).unwrap_or(0);
        }
    }
}

/// Answers datagrams in batches, polling.
pub(crate) fn echo_batches(socket: UdpSocket, stop: &AtomicBool) {
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        let count = batch.receive(&socket);
        for index in 0..count {
            let len = batch.headers[index].msg_len as usize;
            batch.set_len(index, len);
        }
        batch.send(&socket, count);
    }
}

/// Echoes a second with `window` datagrams of `len` bytes under way, one message each.
pub(crate) fn echo_rate(server: SocketAddr, len: usize, window: usize, span: Duration) -> f64 {
    assert!(window <= BATCH, "the window fits one batch");
    let SocketAddr::V4(server) = server else {
        panic!("the baseline speaks IPv4")
    };
    // SAFETY: plain data, zeros are valid.
    let mut peer: libc::sockaddr_in = unsafe { zeroed() };
    peer.sin_family = libc::AF_INET as u16;
    peer.sin_port = server.port().to_be();
    peer.sin_addr.s_addr = u32::from_ne_bytes(server.ip().octets());
    let socket = socket();
    let mut batch = Batch::new();
    let start = Instant::now();
    let (mut echoes, mut to_send) = (0u64, window);
    while start.elapsed() < span {
        for index in 0..to_send {
            batch.set_len(index, len);
            batch.set_peer(index, peer);
        }
        batch.send(&socket, to_send);
        let idle_since = Instant::now();
        to_send = loop {
            let count = batch.receive(&socket);
            if count > 0 {
                break count;
            }
            assert!(
                idle_since.elapsed() < Duration::from_secs(5),
                "the echo lost the whole window"
            );
        };
        echoes += to_send as u64;
    }
    echoes as f64 / start.elapsed().as_secs_f64()
}

/// Receives and forgets, counting bytes.
pub(crate) fn sink(socket: UdpSocket, stop: &AtomicBool, received: &AtomicU64) {
    let mut buffer = vec![0u8; 65_536];
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20);
    set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    while !stop.load(Ordering::Relaxed) {
        while let Ok(len) = socket.recv(&mut buffer) {
            received.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

/// Received bytes a second of a stream of packets of `len` bytes, sent and received with
/// segmentation offload.
pub(crate) fn stream_rate(
    server: SocketAddr,
    len: usize,
    received: &AtomicU64,
    span: Duration,
) -> f64 {
    let socket = socket();
    set(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, len as i32);
    let burst = vec![0u8; 65_507 / len * len];
    let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
    while start.elapsed() < span {
        // A full queue is the receiver's limit, which is measured here.
        let _refused_is_lost = socket.send_to(&burst, server);
    }
    (received.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64()
}

/// Sends and receives `bytes` in packets of `len` bytes with segmentation offload, both on this
/// thread.
pub(crate) fn stream_to_self(len: usize, bytes: u64) {
    let (from, to) = (socket(), socket());
    let address = to.local_addr().expect("a bound socket has an address");
    set(&from, libc::SOL_UDP, libc::UDP_SEGMENT, len as i32);
    set(&to, libc::SOL_UDP, libc::UDP_GRO, 1);
    let burst = vec![1u8; 65_507 / len * len];
    let mut buffer = vec![0u8; 65_536];
    let mut received = 0;
    while received < bytes {
        let _refused_is_lost = from.send_to(&burst, address);
        while let Ok(len) = to.recv(&mut buffer) {
            received += len as u64;
        }
    }
}

/// As `stream_to_self`, out of messages of `message` bytes, two in turn, and copied into two others: what any RPC of
/// that size does at least.
pub(crate) fn messages_to_self(len: usize, message: usize, bytes: u64) {
    let (from, to) = (socket(), socket());
    let address = to.local_addr().expect("a bound socket has an address");
    set(&from, libc::SOL_UDP, libc::UDP_SEGMENT, len as i32);
    set(&to, libc::SOL_UDP, libc::UDP_GRO, 1);
    let source = vec![1u8; 2 * message];
    let (mut target, mut buffer) = (vec![0u8; 2 * message], vec![0u8; 65_536]);
    let train = 65_507 / len * len;
    let (mut sent, mut received) = (0, 0);
    while (received as u64) < bytes {
        let start = sent % (2 * message - train);
        let _refused_is_lost = from.send_to(&source[start..start + train], address);
        sent += train;
        while let Ok(len) = to.recv(&mut buffer) {
            let start = received % (2 * message - train);
            target[start..start + len].copy_from_slice(&buffer[..len]);
            received += len;
        }
    }
    std::hint::black_box(&target);
}

fn set(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    // SAFETY: pointer and length describe a live integer that the kernel reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert!(
        result == 0,
        "setsockopt: {}",
        std::io::Error::last_os_error()
    );
}
