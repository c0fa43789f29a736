//! The bytes of a Redis client's socket, as they are or over TLS. No call waits.
//!
//! TLS keeps bytes of its own: what was read and is not whole yet, and what the socket has not taken. The second are
//! pending, and count as output that the client does not read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use rustls::ServerConnection;

use crate::tls::Tls;

/// Bytes of memory that a TLS connection counts while nothing is pending: its keys, and buffers of one record.
const TLS_CHARGE_BYTES: usize = 40 * 1024;
/// Bytes that are encrypted before the socket has taken those before.
const PENDING_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Encrypted>>,
}

struct Encrypted {
    connection: ServerConnection,
    /// Bytes that were given to be encrypted since the socket had taken all.
    pending: usize,
    /// Why the client's packets could not be read, if so.
    error: Option<rustls::Error>,
}

impl Stream {
    /// The stream of a socket.
    pub(super) fn new(socket: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        let encrypted = |tls: &Tls| {
            let mut connection = tls.accept().map_err(io::Error::other)?;
            connection.set_buffer_limit(Some(PENDING_BYTES_MAX));
            Ok::<_, io::Error>(Box::new(Encrypted {
                connection,
                pending: 0,
                error: None,
            }))
        };
        let tls = tls.map(encrypted).transpose()?;
        Ok(Self { socket, tls })
    }

    /// For the registration of events.
    pub(super) fn socket_mut(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// Whether the keys are not agreed on yet.
    pub(super) fn is_handshaking(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// Whether a read that does not fill its buffer has emptied the socket.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Whether the socket has still to take bytes that [`Stream::write`] took.
    pub(super) fn has_pending(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.connection.wants_write())
    }

    /// Bytes of memory beside the connection's.
    pub(super) fn held_bytes(&self) -> usize {
        let tls = self.tls.as_ref();
        tls.map_or(0, |tls| TLS_CHARGE_BYTES + tls.pending)
    }

    /// Why the client's side of TLS failed, if it did.
    pub(super) fn take_tls_error(&mut self) -> Option<rustls::Error> {
        self.tls.as_mut()?.error.take()
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.read(buffer);
        };
        loop {
            match tls.connection.reader().read(buffer) {
                // The end without a farewell is the end of a connection without TLS, too.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            if tls.connection.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            let taken = tls.connection.process_new_packets().map(drop);
            if let Err(error) = taken {
                tls.error = Some(error.clone());
                // The client is told why, if it reads.
                let _ = tls.push(&mut self.socket);
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
            match tls.push(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return self.socket.write(bytes);
        };
        tls.push(&mut self.socket)?;
        let taken = tls.connection.writer().write(bytes)?;
        tls.pending += taken;
        match tls.push(&mut self.socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => {}
            other => other?,
        }
        match taken {
            // Nothing is taken before the keys are agreed on and the buffer is full.
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Gives the socket what is pending, as far as it takes it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.push(&mut self.socket),
            None => Ok(()),
        }
    }

    /// No more bytes follow.
    pub(super) fn end_writing(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            // A client that does not read misses the farewell alone.
            let _ = tls.push(&mut self.socket);
        }
        self.socket.shutdown(Shutdown::Write)
    }

    /// Reads the socket's bytes to discard them.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        self.socket.read(scratch)
    }
}

impl Encrypted {
    fn push(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        self.pending = 0;
        Ok(())
    }
}
