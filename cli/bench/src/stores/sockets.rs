//! TCP connections of one thread. Written bytes leave at the next poll; received bytes go to a parser.
//!
//! Like the transport of trine's own clients, the thread polls for a while before it sleeps. So no target pays more for
//! wake-ups than another.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration as StdDuration;

use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use trine_protocol::endpoint_config;
use trine_transport::backend::MonotonicClock;
use trine_transport::time::{Clock, Duration, Instant};

use super::stream::StoreStream;
use trine_base::failure::Failure;

/// The longest time limit of connecting.
const CONNECT_LIMIT: StdDuration = StdDuration::from_secs(5);
/// Bytes taken from a connection at once.
const READ_BYTES: usize = 64 << 10;
/// The most connections handled in one round.
const EVENTS_MAX: usize = 256;

/// The other side no longer sends. The kernel reports this edge once.
const ENDED: epoll::EventFlags = epoll::EventFlags::RDHUP
    .union(epoll::EventFlags::HUP)
    .union(epoll::EventFlags::ERR);

/// The buffered bytes of one connection.
#[derive(Debug)]
pub(super) struct BufferedConnection {
    stream: StoreStream,
    /// Bytes that were written and not yet sent.
    pub(super) out: Vec<u8>,
    /// Bytes that were received and not yet parsed.
    pub(super) input: Vec<u8>,
    /// Whether the kernel took only a part. It then reports when it takes more.
    blocked: bool,
}

/// All connections to a server.
pub(super) struct Sockets {
    epoll: OwnedFd,
    pub(super) connections: Vec<BufferedConnection>,
    /// Connections with something to send.
    dirty: Vec<usize>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    active_at: Instant,
    spin: Duration,
}

impl Sockets {
    /// Connects `count` times to the servers of `list`, round robin. Each connection may take `limit`.
    pub(super) fn connect(list: &str, count: usize, limit: Duration) -> Result<Self, Failure> {
        Self::greet(list, count, limit, |_, socket| {
            Ok(StoreStream::Clear(socket))
        })
    }

    /// The same. `greet` makes of each new socket, which blocks for at most `limit` at a time, a connection that is ready for
    /// requests.
    pub(super) fn greet(
        list: &str,
        count: usize,
        limit: Duration,
        greet: impl Fn(&str, TcpStream) -> Result<StoreStream, Failure>,
    ) -> Result<Self, Failure> {
        let limit = CONNECT_LIMIT.min(limit.into());
        let servers: Vec<&str> = list.split(',').map(str::trim).collect();
        let failure = |server: &str, error: io::Error| {
            Failure::not_reachable(
                format!("cannot connect to {server}: {error}"),
                "is the server running there?",
            )
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| failure(list, error.into()))?;
        let mut connections = Vec::new();
        for index in 0..count {
            let server = servers[index % servers.len()];
            let socket = connect(server, limit).map_err(|error| failure(server, error))?;
            let stream = greet(server, socket)?;
            let nonblocking = stream.socket().set_nonblocking(true);
            nonblocking.map_err(|error| failure(server, error))?;
            let interest = epoll::EventFlags::IN
                | epoll::EventFlags::RDHUP
                | epoll::EventFlags::OUT
                | epoll::EventFlags::ET;
            epoll::add(
                &epoll,
                stream.socket(),
                epoll::EventData::new_u64(index as u64),
                interest,
            )
            .map_err(|error| failure(server, error.into()))?;
            connections.push(BufferedConnection {
                stream,
                out: Vec::new(),
                input: Vec::new(),
                blocked: false,
            });
        }
        Ok(Self {
            epoll,
            connections,
            dirty: Vec::new(),
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; READ_BYTES],
            active_at: MonotonicClock.now(),
            spin: endpoint_config().spin,
        })
    }

    /// The send buffer of a connection; it leaves at the next [`Self::exchange`].
    pub(super) fn out(&mut self, index: usize) -> &mut Vec<u8> {
        let connection = &mut self.connections[index];
        if connection.out.is_empty() {
            self.dirty.push(index);
        }
        &mut connection.out
    }

    /// Sends the buffered bytes, waits for answers until `until` at most, and lists the connections with answers.
    pub(super) fn exchange(&mut self, until: Instant, readable: &mut Vec<usize>) -> io::Result<()> {
        readable.clear();
        for index in std::mem::take(&mut self.dirty) {
            self.connections[index].flush()?;
        }
        loop {
            let now = MonotonicClock.now();
            let spinning = now.saturating_since(self.active_at) < self.spin;
            let left = match spinning || now >= until {
                true => Duration::from_nanos(0),
                false => until.saturating_since(now),
            };
            self.wait(left)?;
            for event in std::mem::take(&mut self.events) {
                let (data, flags) = (event.data, event.flags);
                let index = data.u64() as usize;
                let connection = &mut self.connections[index];
                if connection.blocked && flags.contains(epoll::EventFlags::OUT) {
                    connection.flush()?;
                }
                if connection.fill(&mut self.buffer, flags.intersects(ENDED))? {
                    readable.push(index);
                }
            }
            let now = MonotonicClock.now();
            if !readable.is_empty() {
                self.active_at = now;
                return Ok(());
            }
            if now >= until {
                return Ok(());
            }
            if spinning {
                std::thread::yield_now();
            }
        }
    }

    fn wait(&mut self, left: Duration) -> io::Result<()> {
        let ns = left.as_nanos();
        let limit = Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        };
        self.events.clear();
        self.events.reserve(EVENTS_MAX);
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, spare, Some(&limit)) {
            // A signal: the caller checks whether it ends the process.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl BufferedConnection {
    fn flush(&mut self) -> io::Result<()> {
        self.blocked = false;
        let mut sent = 0;
        while sent < self.out.len() {
            match self.stream.write(&self.out[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.drain(..sent);
        self.blocked |= !self.stream.push()?;
        Ok(())
    }

    /// Reads all bytes that have arrived; returns false if there were none. A read that does not fill the buffer is
    /// usually the last. Later bytes cause a new event. Only the end of the connection may have shared the event of the
    /// last bytes, so then reading continues.
    fn fill(&mut self, buffer: &mut [u8], ended: bool) -> io::Result<bool> {
        let before = self.input.len();
        loop {
            match self.stream.read(buffer) {
                Ok(0) => {
                    let why = "the server closed the connection";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    if self.stream.is_read_whole(count, buffer.len()) && !ended {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.input.len() > before)
    }
}

fn connect(server: &str, limit: StdDuration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in server.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(limit))?;
                stream.set_write_timeout(Some(limit))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that answered and closed the connection before its client polled made `trine bench` wait forever. The
    /// end of the connection was in the same event as the answer, and only the answer was read.
    #[test]
    fn an_end_that_comes_with_the_last_answer_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let limit = Duration::from_secs(5);
        let mut sockets = Sockets::connect(&address, 1, limit).expect("connects");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"+OK\r\n").expect("sent");
        drop(stream);
        // Over loopback both are there when the calls return.
        let soon = || MonotonicClock.now() + Duration::from_millis(100);
        let mut readable = Vec::new();
        let mut looks = (0..2).map(|_| sockets.exchange(soon(), &mut readable));
        let error = looks.find_map(Result::err).expect("the end is told");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
