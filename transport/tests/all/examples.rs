//! Runs every example to its end. The examples are part of the documentation, and check their own results.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

#[allow(dead_code)] // its `main` reads the command line
#[path = "../../examples/echo_client.rs"]
mod echo_client;
#[allow(dead_code)]
#[path = "../../examples/echo_server.rs"]
mod echo_server;

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs an example in a thread of its own, so that one that hangs fails with its name.
fn ends(example: fn() -> Result<(), Box<dyn Error>>) {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(example().map_err(|error| error.to_string())));
    let end = told
        .recv_timeout(PATIENCE)
        .expect("it hangs or has panicked");
    assert_eq!(end, Ok(()));
}

#[test]
fn echo_server_and_client() {
    ends(|| {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let (tell, told) = mpsc::channel();
        let server = std::thread::spawn(move || {
            let any = "127.0.0.1:0".parse().expect("an address");
            let listening = |local| tell.send(local).expect("the test listens");
            let served = echo_server::serve(any, listening, || stop.load(Ordering::SeqCst));
            served.map_err(|error| error.to_string())
        });
        let measured = echo_client::measure(told.recv()?, 100, 2);
        is_over.store(true, Ordering::SeqCst);
        server.join().expect("no panic")?;
        measured
    });
}
