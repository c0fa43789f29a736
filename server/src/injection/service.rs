//! Takes requests to the fault injector on a replica's Unix socket, from its own user alone.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

use super::Injector;
use trine_base::endpoint::random_seed;
use trine_base::failure::Failure;
use trine_local::faults::{FaultCommand, State, line, socket_name};

/// Takes requests for `injector` in a separate thread, for as long as the process lives.
pub fn serve(own: SocketAddr, injector: Arc<Injector>) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Failure::usage(
            format!("--fault-injection: cannot listen for requests for {own}: {error}"),
            "this process may have too many files open (ulimit -n), or the machine too little memory",
        )
    };
    let name = socket_name(own, random_seed()?).map_err(cannot)?;
    let listener = UnixListener::bind_addr(&name).map_err(cannot)?;
    let accept = move || {
        // Callers are served one after the other. A request takes no time, and a silent caller is dropped at the limit.
        for stream in listener.incoming().flatten() {
            // A caller that went away meanwhile gets no answer.
            let _ = converse(&stream, &injector);
        }
    };
    std::thread::Builder::new()
        .name("faults".into())
        .spawn(accept)
        .map(drop)
        .map_err(cannot)
}

fn converse(stream: &UnixStream, injector: &Injector) -> io::Result<()> {
    line::set_limits(stream)?;
    let caller = socket_peercred(stream)?.uid;
    let answer = match caller == geteuid() || caller.is_root() {
        true => obey(stream, injector)?,
        false => Err("only the user whose replica it is may do that, and root".to_owned()),
    };
    line::send(stream, &answer)
}

fn obey(stream: &UnixStream, injector: &Injector) -> io::Result<Result<State, String>> {
    Ok(
        match serde_json::from_str::<FaultCommand>(&line::receive(stream)?) {
            Ok(command) => injector.follow(&command),
            Err(error) => Err(format!(
                "the request cannot be read ({error}); is it the same release?"
            )),
        },
    )
}
