//! A Redis client that shows replies in their wire format.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit of a reply.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Self {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Sends a request without waiting for its reply.
    pub(crate) fn send(&mut self, parts: &[&str]) {
        let mut request = format!("*{}\r\n", parts.len());
        for part in parts {
            request += &format!("${}\r\n{part}\r\n", part.len());
        }
        self.send_bytes(request.as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("written");
    }

    /// Sends the words of a line as one request and returns its reply.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let parts: Vec<&str> = line.split(' ').collect();
        self.send(&parts);
        self.reply()
    }

    /// The next reply, its lines joined by spaces.
    #[track_caller]
    pub(crate) fn reply(&mut self) -> String {
        self.try_reply().expect("a reply")
    }

    /// The bytes of the next reply, or of what is sent without having been asked for.
    #[track_caller]
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.take_frame(&mut bytes);
        bytes
    }

    fn take_frame(&mut self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        self.reader.read_until(b'\n', bytes).expect("a line");
        let line = String::from_utf8_lossy(&bytes[start..]).into_owned();
        let kind = line.chars().next().expect("no end of the connection");
        let Ok(count @ 0..) = line[1..].trim_end().parse::<i64>() else {
            return;
        };
        match kind {
            '$' | '=' => {
                let from = bytes.len();
                bytes.resize(from + count as usize + 2, 0);
                self.reader.read_exact(&mut bytes[from..]).expect("all");
            }
            '*' | '~' | '>' => (0..count).for_each(|_| self.take_frame(bytes)),
            '%' => (0..2 * count).for_each(|_| self.take_frame(bytes)),
            _ => {}
        }
    }

    /// Returns `None` at the end of the connection.
    pub(crate) fn try_reply(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).ok()?;
        if read == 0 {
            return None;
        }
        let line = line.trim_end_matches("\r\n").to_owned();
        let count = || line[1..].parse::<i64>().expect("a count");
        match line.as_bytes()[0] {
            b'$' | b'=' if count() >= 0 => {
                let mut bytes = vec![0; count() as usize + 2];
                self.reader.read_exact(&mut bytes).expect("the whole value");
                bytes.truncate(bytes.len() - 2);
                Some(format!("\"{}\"", String::from_utf8_lossy(&bytes)))
            }
            kind @ (b'*' | b'%' | b'~' | b'>') if count() >= 0 => {
                let each = if kind == b'%' { 2 } else { 1 };
                let items: Vec<String> = (0..count() * each).map(|_| self.reply()).collect();
                Some(format!("{}[{}]", char::from(kind), items.join(" ")))
            }
            _ => Some(line),
        }
    }
}
