//! One connection to a server, in clear or in TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use trine_server::tls::Encrypted;

/// A connection. Its socket does not block.
#[derive(Debug)]
pub(super) enum StoreStream {
    /// In clear.
    Clear(TcpStream),
    /// In TLS.
    Encrypted(Box<Encrypted>),
}

impl StoreStream {
    /// What the kernel has of it.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Encrypted(stream) => &stream.sock,
        }
    }

    /// Whether what was read so far can be all that the kernel had, because less came than had room. Records of TLS are
    /// smaller than that.
    pub(super) fn is_read_whole(&self, count: usize, room: usize) -> bool {
        matches!(self, Self::Clear(_)) && count < room
    }

    /// Sends what TLS has encrypted and the kernel has not taken. False if that has to wait.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        let Self::Encrypted(stream) = self else {
            return Ok(true);
        };
        while stream.conn.wants_write() {
            match stream.conn.write_tls(&mut stream.sock) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Read for StoreStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for StoreStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
