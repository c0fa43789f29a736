//! etcd's Range and Put, as unary gRPC calls over HTTP/2 without TLS.

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request, Uri};
use prost::Message;
use tokio::net::TcpStream;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Bytes that the server may send before it has to wait, per stream and per connection.
const WINDOW: u32 = 16 << 20;
/// What precedes a message: whether it is compressed (it never is here), and its length in four bytes.
const PREFIX: usize = 5;

/// etcd's `RangeRequest` of a single key. Reads are linearizable unless asked otherwise.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// What is used of etcd's `RangeResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    /// The number of keys in the range.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

/// etcd's `PutRequest` without a lease.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// A connection to an etcd server. Clones share it, each with one call at a time.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: SendRequest<Bytes>,
    range: Uri,
    put: Uri,
}

impl Connection {
    pub(crate) async fn open(server: &str) -> Result<Self, Error> {
        let connected = TcpStream::connect(server).await;
        let stream = connected.map_err(|error| format!("cannot connect to {server}: {error}"))?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(stream)
            .await?;
        // If it breaks, the calls fail that are in flight on it.
        tokio::spawn(connection);
        let uri = |method: &str| format!("http://{server}/etcdserverpb.KV/{method}").parse();
        Ok(Self {
            requests,
            range: uri("Range")?,
            put: uri("Put")?,
        })
    }

    pub(crate) async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Error> {
        let response = self.call(self.range.clone(), request).await?;
        Ok(RangeResponse::decode(response)?)
    }

    pub(crate) async fn put(&self, request: &PutRequest) -> Result<(), Error> {
        self.call(self.put.clone(), request).await.map(drop)
    }

    /// The response's message.
    async fn call(&self, uri: Uri, message: &impl Message) -> Result<Bytes, Error> {
        let mut framed = BytesMut::with_capacity(PREFIX + message.encoded_len());
        framed.put_u8(0);
        framed.put_u32(message.encoded_len().try_into()?);
        message.encode(&mut framed)?;
        let request = Request::post(uri)
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        // It waits as long as the server allows no more streams.
        let mut ready = self.requests.clone().ready().await?;
        let (response, mut body) = ready.send_request(request.body(())?, false)?;
        body.send_data(framed.freeze(), true)?;
        let (head, mut body) = response.await?.into_parts();
        let mut received = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            received.extend_from_slice(&part);
        }
        // A call that fails at once has no trailers, and its status is in the head.
        let trailers = body.trailers().await?;
        check_status(trailers.as_ref().unwrap_or(&head.headers))?;
        if received.len() < PREFIX {
            return Err("a response without a message".into());
        }
        Ok(received.split_off(PREFIX).freeze())
    }
}

fn check_status(fields: &HeaderMap) -> Result<(), Error> {
    let field = |name| {
        let value = fields.get(name).map(|value| value.as_bytes());
        String::from_utf8_lossy(value.unwrap_or_default())
    };
    match &*field("grpc-status") {
        "0" => Ok(()),
        status => Err(format!("gRPC status {status:?}: {}", field("grpc-message")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use tokio::net::TcpListener;

    /// A server of one connection. It answers each call with two messages of bytes and these trailers.
    async fn serve(listener: TcpListener, answer: &'static [u8], status: &'static str) {
        let (stream, _) = listener.accept().await.expect("a client");
        let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.uri().path(), "/etcdserverpb.KV/Range");
            assert_eq!(request.headers()["te"], "trailers");
            let (first, second) = answer.split_at(answer.len() / 2);
            let mut body = respond
                .send_response(Response::new(()), false)
                .expect("sent");
            body.send_data(Bytes::from_static(first), false)
                .expect("sent");
            body.send_data(Bytes::from_static(second), false)
                .expect("sent");
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.parse().expect("a value"));
            trailers.insert("grpc-message", "in words".parse().expect("a value"));
            body.send_trailers(trailers).expect("sent");
        }
    }

    fn ask(answer: &'static [u8], status: &'static str) -> Result<RangeResponse, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound").to_string();
            tokio::spawn(serve(listener, answer, status));
            let connection = Connection::open(&address).await.expect("connected");
            connection.range(&RangeRequest { key: b"k".to_vec() }).await
        })
    }

    #[test]
    fn a_response_is_joined_and_read() {
        // Field 1 is a header, field 4 the number 1.
        let found = ask(&[0, 0, 0, 0, 6, 0x0a, 2, 8, 1, 0x20, 1], "0").expect("a response");
        assert_eq!(found.count, 1);
        let none = ask(&[0, 0, 0, 0, 4, 0x0a, 2, 8, 1], "0").expect("a response");
        assert_eq!(none.count, 0);
    }

    #[test]
    fn a_failed_call_is_an_error_in_the_servers_words() {
        let error = ask(&[], "8").expect_err("refused").to_string();
        assert!(error.contains('8') && error.contains("in words"), "{error}");
    }

    #[test]
    fn a_request_is_what_the_format_says() {
        let request = PutRequest {
            key: b"k".to_vec(),
            value: vec![7; 300],
        };
        assert_eq!(
            request.encode_to_vec()[..6],
            [0x0a, 1, b'k', 0x12, 0xac, 0x02]
        );
    }
}
