//! The part of HTTP/2 (RFC 9113) for unary gRPC calls over one connection. It has no server push and no priorities.
//! Sent headers use a header table, received headers none.

use std::collections::BTreeMap;

use loona_hpack::Decoder;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER: usize = 9;
/// The size limit of received frames: the protocol's default, which is not changed.
const FRAME_BYTES_MAX: usize = 16 << 10;
/// The bytes that the server may send on a stream, and on the connection, before it has to wait.
const WINDOW: u32 = 1 << 30;
/// No expected message is larger than this.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// A call that has ended: its stream, and the message or the server's error.
pub type EndedCall = (u32, Result<Vec<u8>, String>);

/// One connection's state. Bytes to send go to an `out` buffer of the caller.
pub struct Http2 {
    authority: String,
    next_stream: u32,
    streams: BTreeMap<u32, Http2Stream>,
    /// The bytes that may be sent on the connection, and on a new stream.
    window: i64,
    window_initial: i64,
    streams_max: usize,
    /// Bytes that were received and not yet returned to the server's window.
    consumed: u32,
    decoder: Decoder<'static>,
    /// The stream and flags of an incomplete header block, and its bytes so far.
    headers: Option<(u32, u8, Vec<u8>)>,
    indexed: bool,
}

#[derive(Debug, Default)]
struct Http2Stream {
    message: Vec<u8>,
    status: Option<String>,
    reason: String,
    /// The bytes that may still be sent on it.
    window: i64,
    /// The rest of the request, which waits for the window.
    unsent: Vec<u8>,
}

impl Http2 {
    /// Begins a connection.
    pub fn new(authority: &str, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(PREFACE);
        let settings = [(1_u16, 0_u32), (2, 0), (4, WINDOW)];
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        frame(SETTINGS, 0, 0, &payload, out);
        frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes(), out);
        let mut decoder = Decoder::new();
        decoder.set_max_table_size(0);
        Self {
            authority: authority.to_owned(),
            next_stream: 1,
            streams: BTreeMap::new(),
            window: 65_535,
            window_initial: 65_535,
            streams_max: usize::MAX,
            consumed: 0,
            decoder,
            headers: None,
            indexed: false,
        }
    }

    /// Whether one more call may begin.
    pub fn has_room(&self) -> bool {
        self.streams.len() < self.streams_max && self.next_stream < 1 << 31
    }

    /// Begins a call and returns its stream.
    pub fn call(&mut self, path: &str, message: &[u8], out: &mut Vec<u8>) -> u32 {
        let id = self.next_stream;
        self.next_stream += 2;
        let block = self.header_block(path);
        frame(HEADERS, END_HEADERS, id, &block, out);
        let mut body = Vec::with_capacity(5 + message.len());
        body.push(0);
        body.extend_from_slice(
            &u32::try_from(message.len())
                .expect("checked by the caller")
                .to_be_bytes(),
        );
        body.extend_from_slice(message);
        let mut stream = Http2Stream {
            window: self.window_initial,
            unsent: body,
            ..Http2Stream::default()
        };
        send_data(id, &mut stream, &mut self.window, out);
        self.streams.insert(id, stream);
        id
    }

    /// HPACK (RFC 7541): the first call puts the constant headers into the server's table. Later calls refer to them by
    /// number.
    fn header_block(&mut self, path: &str) -> Vec<u8> {
        // Static entries: `:method: POST`, `:scheme: http`; then `:path` as a literal that is not remembered.
        let mut block = vec![0x83, 0x86, 0x04];
        string(path, &mut block);
        if self.indexed {
            // The table's newest entry is number 62: `te`, `content-type`, `:authority`.
            block.splice(2..2, [0x80 | 64]);
            block.extend_from_slice(&[0x80 | 63, 0x80 | 62]);
            return block;
        }
        self.indexed = true;
        let mut authority = vec![0x41];
        string(&self.authority, &mut authority);
        block.splice(2..2, authority);
        block.push(0x40 | 31);
        string("application/grpc", &mut block);
        block.push(0x40);
        string("te", &mut block);
        string("trailers", &mut block);
        block
    }

    /// Processes received bytes, returns the calls that have ended, and removes the processed bytes from `input`.
    pub fn receive(
        &mut self,
        input: &mut Vec<u8>,
        out: &mut Vec<u8>,
        answers: &mut Vec<EndedCall>,
    ) -> Result<(), String> {
        let mut at = 0;
        while let Some(header) = input.get(at..at + FRAME_HEADER) {
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags) = (header[3], header[4]);
            let id = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
            if length > FRAME_BYTES_MAX {
                return Err(format!("a frame of {length} bytes"));
            }
            let Some(payload) = input.get(at + FRAME_HEADER..at + FRAME_HEADER + length) else {
                break;
            };
            self.on_frame(kind, flags, id, payload, out, answers)?;
            at += FRAME_HEADER + length;
        }
        input.drain(..at);
        if self.consumed > WINDOW / 2 {
            frame(WINDOW_UPDATE, 0, 0, &self.consumed.to_be_bytes(), out);
            self.consumed = 0;
        }
        Ok(())
    }

    fn on_frame(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<EndedCall>,
    ) -> Result<(), String> {
        if self.headers.is_some() && kind != CONTINUATION {
            return Err("a header block that does not go on".into());
        }
        match kind {
            DATA => self.on_data(flags, id, payload, answers),
            HEADERS => {
                let skip = if flags & PRIORITY != 0 { 5 } else { 0 };
                let block = without_padding(flags, payload)?
                    .get(skip..)
                    .ok_or("short headers")?;
                self.on_header_block(flags, id, block.to_vec(), answers)
            }
            CONTINUATION => {
                let (first, first_flags, mut block) =
                    self.headers.take().ok_or("nothing goes on")?;
                if first != id || block.len() > FRAME_BYTES_MAX * 4 {
                    return Err("a header block of two streams, or without end".into());
                }
                block.extend_from_slice(payload);
                self.on_header_block(first_flags | flags, id, block, answers)
            }
            RST_STREAM => {
                if self.streams.remove(&id).is_some() {
                    answers.push((id, Err("the server reset the stream".into())));
                }
                Ok(())
            }
            SETTINGS if flags & ACK == 0 => self.on_settings(payload, out),
            PING if flags & ACK == 0 => {
                frame(PING, ACK, 0, payload, out);
                Ok(())
            }
            GOAWAY => Err(format!(
                "the server ends the connection: {}",
                String::from_utf8_lossy(payload.get(8..).unwrap_or_default())
            )),
            WINDOW_UPDATE => self.on_window(id, payload, out),
            // All other frames may be ignored.
            _ => Ok(()),
        }
    }

    fn on_data(
        &mut self,
        flags: u8,
        id: u32,
        payload: &[u8],
        answers: &mut Vec<EndedCall>,
    ) -> Result<(), String> {
        self.consumed += u32::try_from(payload.len()).expect("frames are small");
        let data = without_padding(flags, payload)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.message.extend_from_slice(data);
        if stream.message.len() > MESSAGE_BYTES_MAX {
            return Err("an answer without end".into());
        }
        if flags & END_STREAM != 0 {
            self.finish(id, answers);
        }
        Ok(())
    }

    fn on_header_block(
        &mut self,
        flags: u8,
        id: u32,
        block: Vec<u8>,
        answers: &mut Vec<EndedCall>,
    ) -> Result<(), String> {
        if flags & END_HEADERS == 0 {
            self.headers = Some((id, flags, block));
            return Ok(());
        }
        let headers = self
            .decoder
            .decode(&block)
            .map_err(|error| format!("{error:?} in headers"))?;
        if let Some(stream) = self.streams.get_mut(&id) {
            for (name, value) in headers {
                let value = String::from_utf8_lossy(&value).into_owned();
                match name.as_slice() {
                    b"grpc-status" => stream.status = Some(value),
                    b"grpc-message" => stream.reason = value,
                    b":status" if value != "200" => stream.reason = format!("HTTP status {value}"),
                    _ => {}
                }
            }
        }
        if flags & END_STREAM != 0 {
            self.finish(id, answers);
        }
        Ok(())
    }

    fn finish(&mut self, id: u32, answers: &mut Vec<EndedCall>) {
        let Some(stream) = self.streams.remove(&id) else {
            return;
        };
        let message = stream.message.get(5..).filter(|_| stream.message[0] == 0);
        let result = match (stream.status.as_deref(), message) {
            (Some("0"), Some(message)) => Ok(message.to_vec()),
            (Some("0"), None) => Err("an answer without a message".into()),
            (Some(status), _) => Err(format!("gRPC status {status}: {}", stream.reason)),
            (None, _) => Err(format!("no gRPC status: {}", stream.reason)),
        };
        answers.push((id, result));
    }

    fn on_settings(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        for setting in payload.chunks_exact(6) {
            let name = u16::from_be_bytes([setting[0], setting[1]]);
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match name {
                3 => self.streams_max = value as usize,
                4 => {
                    let change = i64::from(value) - self.window_initial;
                    self.window_initial = i64::from(value);
                    self.streams
                        .values_mut()
                        .for_each(|stream| stream.window += change);
                }
                _ => {}
            }
        }
        frame(SETTINGS, ACK, 0, &[], out);
        self.send_what_waits(out);
        Ok(())
    }

    fn on_window(&mut self, id: u32, payload: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let bytes: [u8; 4] = payload
            .try_into()
            .map_err(|_| "a window update of a wrong size")?;
        let more = i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff);
        match id {
            0 => self.window += more,
            id => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.window += more;
                }
            }
        }
        self.send_what_waits(out);
        Ok(())
    }

    fn send_what_waits(&mut self, out: &mut Vec<u8>) {
        for (id, stream) in &mut self.streams {
            if !stream.unsent.is_empty() {
                send_data(*id, stream, &mut self.window, out);
            }
        }
    }
}

/// Sends as much of a stream's request as the windows allow; the last part ends it.
fn send_data(id: u32, stream: &mut Http2Stream, window: &mut i64, out: &mut Vec<u8>) {
    let mut sent = 0;
    while sent < stream.unsent.len() {
        let allowed = usize::try_from(stream.window.min(*window)).unwrap_or(0);
        let count = allowed.min(FRAME_BYTES_MAX).min(stream.unsent.len() - sent);
        if count == 0 {
            break;
        }
        let last = sent + count == stream.unsent.len();
        let flags = if last { END_STREAM } else { 0 };
        frame(DATA, flags, id, &stream.unsent[sent..sent + count], out);
        sent += count;
        stream.window -= count as i64;
        *window -= count as i64;
    }
    stream.unsent.drain(..sent);
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(payload.len())
        .expect("frames are small")
        .to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A string literal without Huffman coding.
fn string(text: &str, block: &mut Vec<u8>) {
    assert!(text.len() < 127, "paths and names of hosts are short");
    block.push(text.len() as u8);
    block.extend_from_slice(text.as_bytes());
}

fn without_padding(flags: u8, payload: &[u8]) -> Result<&[u8], String> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or("no room for padding")?;
    let end = rest
        .len()
        .checked_sub(usize::from(*padding))
        .ok_or("more padding than payload")?;
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames that a server sends for one call: headers, a message in two frames, trailers.
    fn answer(id: u32, trailers: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9], &mut bytes);
        frame(HEADERS, END_HEADERS, id, &[0x88], &mut bytes);
        frame(
            DATA,
            PADDED,
            id,
            &[1, 0, 0, 0, 0, 3, b'a', 0xff],
            &mut bytes,
        );
        frame(DATA, 0, id, b"bc", &mut bytes);
        frame(HEADERS, END_HEADERS | END_STREAM, id, trailers, &mut bytes);
        bytes
    }

    fn status(code: &str) -> Vec<u8> {
        let mut block = vec![0];
        string("grpc-status", &mut block);
        string(code, &mut block);
        block
    }

    #[test]
    fn an_answer_is_put_together_byte_by_byte() {
        let mut out = Vec::new();
        let mut connection = Http2::new("h:1", &mut out);
        let id = connection.call("/x", b"question", &mut out);
        let (mut input, mut answers) = (Vec::new(), Vec::new());
        for byte in answer(id, &status("0")) {
            assert!(answers.is_empty());
            input.push(byte);
            connection
                .receive(&mut input, &mut out, &mut answers)
                .expect("sound");
        }
        assert_eq!(answers, [(id, Ok(b"abc".to_vec()))]);
        assert!(input.is_empty() && connection.streams_max == 9);
    }

    #[test]
    fn what_goes_wrong_is_said_in_the_servers_words() {
        let mut out = Vec::new();
        let mut connection = Http2::new("h:1", &mut out);
        let id = connection.call("/x", b"question", &mut out);
        let mut trailers = status("8");
        trailers.push(0);
        string("grpc-message", &mut trailers);
        string("no space", &mut trailers);
        let (mut input, mut answers) = (answer(id, &trailers), Vec::new());
        connection
            .receive(&mut input, &mut out, &mut answers)
            .expect("sound");
        assert_eq!(answers, [(id, Err("gRPC status 8: no space".into()))]);

        let mut gone = Vec::new();
        frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0too many", &mut gone);
        let why = connection
            .receive(&mut gone, &mut out, &mut answers)
            .expect_err("gone");
        assert!(why.contains("too many"), "{why}");
    }

    #[test]
    fn nothing_is_sent_beyond_the_window() {
        let mut out = Vec::new();
        let mut connection = Http2::new("h:1", &mut out);
        out.clear();
        connection.call("/x", &[7; 100_000], &mut out);
        let sent = out.len();
        assert!((65_535..66_000).contains(&sent), "{sent}");
        let mut input = Vec::new();
        frame(WINDOW_UPDATE, 0, 0, &50_000_u32.to_be_bytes(), &mut input);
        frame(WINDOW_UPDATE, 0, 1, &50_000_u32.to_be_bytes(), &mut input);
        connection
            .receive(&mut input, &mut out, &mut Vec::new())
            .expect("sound");
        assert!(out.len() > 100_000 && connection.streams[&1].unsent.is_empty());
    }

    #[test]
    fn headers_are_named_by_number_after_the_first_call() {
        let mut connection = Http2::new("h:1", &mut Vec::new());
        let first = connection.header_block("/a");
        let second = connection.header_block("/b");
        assert!(second.len() < 10 && first.len() > 40);
        // A decoder with a table reads the same of both.
        let mut decoder = Decoder::new();
        let mut read = |block: &[u8]| {
            let headers = decoder.decode(block).expect("sound");
            let pairs = headers.into_iter().map(|(name, value)| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(&name), text(&value))
            });
            pairs.collect::<BTreeMap<_, _>>()
        };
        let (mut first, mut second) = (read(&first), read(&second));
        assert_eq!(first.remove(":path").as_deref(), Some("/a"));
        assert_eq!(second.remove(":path").as_deref(), Some("/b"));
        assert_eq!(first, second);
        assert_eq!(first[":authority"], "h:1");
        assert_eq!(first["te"], "trailers");
    }
}
