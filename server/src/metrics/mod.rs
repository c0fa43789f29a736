//! Metrics and health over HTTP, away from the data path. The replica's loop publishes a snapshot of its numbers a few
//! times a second. Separate threads answer from the latest one.

mod accept;
mod families;
mod health;
mod host;
mod http;
mod listen;
pub mod request;
mod room;
mod slots;
mod snapshot;
mod stages;
mod text;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use self::accept::Format;
use self::health::{live, ready};
pub use self::host::OwnNames;
use self::http::Response;
pub use self::listen::Listen;
use self::request::{HttpRequest, Status};
pub use self::snapshot::{Published, Snapshot};

use crate::exposure::Exposed;
use crate::logs::Logs;
use crate::tls::Tls;
use trine_base::announce::note;
use trine_base::failure::{Failure, Trouble};

/// The most letters of a foreign name that an answer repeats.
const HOST_SHOWN_MAX: usize = 100;

/// The state behind the endpoint's answers.
struct Service {
    published: Arc<Published>,
    logs: Option<Arc<Logs>>,
    /// Asks for the room of the data directory, if there is one.
    room: Option<room::RoomProbe>,
}

/// The metrics endpoint: its address, and the place for the loop's numbers.
pub struct Endpoint {
    /// Its URL.
    pub url: String,
    /// The replica publishes its numbers here.
    pub published: Arc<Published>,
}

/// Who may ask.
pub struct Guard {
    /// The password that a request has to give.
    pub password: Option<Vec<u8>>,
    /// The certificate, if requests come over TLS.
    pub tls: Option<Tls>,
    /// Whether a scraper has to show a certificate.
    pub asks_certificate: bool,
    /// By which names it may call the endpoint, where it has to show nothing.
    pub names: OwnNames,
}

impl Guard {
    /// Refuses a request that does not show what it has to, or that a page of a web site may have made.
    fn refuse(&self, request: &HttpRequest) -> Option<Response> {
        let only_reads = ["GET", "HEAD"].contains(&request.method.as_str());
        if request.is_of_a_page && !only_reads {
            let text = "a page of a web site changes nothing here: it has sent Origin\n";
            return Some(Response::text(Status::Forbidden, text));
        }
        match &self.password {
            Some(password) => (!request.gives(password)).then(Response::unauthorized),
            // No page of another site has the certificate or the password of this one.
            None if self.asks_certificate => None,
            None => {
                let mut hosts = request.hosts.iter();
                hosts
                    .find(|host| !self.names.has(host))
                    .map(|host| misdirected(host))
            }
        }
    }

    fn exposed(&self, address: SocketAddr) -> Exposed<'static> {
        Exposed {
            asks: self.password.is_some(),
            asks_certificate: self.asks_certificate,
            tls: self.tls.is_some(),
            ..exposed(address)
        }
    }
}

/// An endpoint at this address that nothing protects.
pub(crate) fn exposed(address: SocketAddr) -> Exposed<'static> {
    Exposed {
        what: "the address of --metrics",
        address,
        asks: false,
        asks_certificate: false,
        tls: false,
        hint: "add --metrics-password-file FILE, or TLS with --tls-client-ca FILE",
    }
}

/// A page that has let the name of its site stand for this machine asks in that name.
fn misdirected(host: &str) -> Response {
    let host: String = host.chars().take(HOST_SHOWN_MAX).collect();
    Response::text(
        Status::Misdirected,
        format!(
            "{host:?} is not a name of this endpoint: call it by an address, by localhost or by \
             this machine's name; start the replica with --metrics-names NAME for another name, \
             or with --metrics-password-file FILE\n"
        ),
    )
}

/// Opens the endpoint at `listen`, for [`start`].
///
/// # Errors
/// Nothing protects it, or the address cannot be opened.
pub fn open(listen: &Listen, guard: &Guard) -> Result<TcpListener, Failure> {
    let address = listen.resolve()?;
    guard.exposed(address).check()?;
    TcpListener::bind(address).map_err(|error| cannot_serve(address, &error))
}

fn cannot_serve(address: SocketAddr, error: &std::io::Error) -> Failure {
    Failure::usage(
        format!("cannot serve metrics at {address}: {error}"),
        "give --metrics another port, or stop what uses this one",
    )
    .with_trouble(Trouble::of(error))
}

/// Starts the endpoint on its socket. It tells the room of `data_directory`.
pub fn start(
    listener: TcpListener,
    guard: Guard,
    logs: Option<Arc<Logs>>,
    data_directory: Option<PathBuf>,
) -> Result<Endpoint, Failure> {
    let address = listener
        .local_addr()
        .map_err(|error| Failure::usage(format!("cannot serve metrics: {error}"), ""))?;
    if let Some(warning) = guard.exposed(address).warning() {
        note(warning);
    }
    let cannot = |error: std::io::Error| cannot_serve(address, &error);
    let scheme = if guard.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    let published = Arc::new(Published::default());
    let service = Service {
        published: Arc::clone(&published),
        logs,
        room: data_directory.map(room::RoomProbe::new),
    };
    let tls = guard.tls.clone();
    let answer = move |request: &HttpRequest, peer: SocketAddr| {
        guard
            .refuse(request)
            .unwrap_or_else(|| service.answer(request, peer))
    };
    http::serve(listener, tls, answer).map_err(cannot)?;
    Ok(Endpoint { url, published })
}

impl Service {
    fn answer(&self, request: &HttpRequest, peer: SocketAddr) -> Response {
        let snapshot = self.published.latest();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => {
                let format = Format::preferred(request.accept.as_deref());
                let told = text::MetricsInput {
                    snapshot: snapshot.as_deref(),
                    dropped_lines: self.logs.as_ref().map(|logs| logs.dropped_lines()),
                    room: self.room.as_ref().and_then(room::RoomProbe::ask),
                };
                Response {
                    status: Status::Ok,
                    content_type: format.content_type().into(),
                    body: text::encode(format, &told),
                }
            }
            ("GET" | "HEAD", "/livez") => verdict(live(Instant::now(), snapshot.as_deref())),
            ("GET" | "HEAD", "/readyz") => verdict(ready(
                Instant::now(),
                snapshot.as_deref(),
                self.published.waiting(),
            )),
            ("GET" | "HEAD", "/log-level") => match &self.logs {
                Some(logs) => Response::text(Status::Ok, format!("{}\n", logs.level())),
                None => Response::text(Status::NotFound, "this process writes no log\n"),
            },
            ("PUT", "/log-level") => self.set_level(request, peer),
            (_, "/metrics" | "/livez" | "/readyz" | "/log-level") => Response::text(
                Status::MethodNotAllowed,
                "GET and HEAD are; PUT for /log-level\n",
            ),
            _ => Response::text(
                Status::NotFound,
                "there are /metrics, /livez, /readyz and /log-level\n",
            ),
        }
    }

    /// Only this machine may set the level. The right to read metrics does not include the right to change anything.
    fn set_level(&self, request: &HttpRequest, peer: SocketAddr) -> Response {
        if !request.from_this_host {
            return Response::text(Status::Forbidden, "only from this machine\n");
        }
        let (Some(logs), Ok(wanted)) = (&self.logs, std::str::from_utf8(&request.body)) else {
            return Response::text(
                Status::BadRequest,
                "levels are text, such as info,raft=debug\n",
            );
        };
        match logs.set_level(wanted.trim(), &format!("PUT /log-level from {peer}")) {
            Ok(()) => Response::text(Status::Ok, format!("{}\n", logs.level())),
            Err(why) => Response::text(Status::BadRequest, format!("{why}\n")),
        }
    }
}

/// The response to a health check: yes, or no and why.
fn verdict(verdict: Result<String, String>) -> Response {
    match verdict {
        Ok(text) => Response::text(Status::Ok, format!("ok: {text}\n")),
        Err(why) => Response::text(Status::Unavailable, format!("no: {why}\n")),
    }
}
