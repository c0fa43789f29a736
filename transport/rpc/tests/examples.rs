//! Runs every example to its end. The examples are part of the documentation, and check their own results.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/large_transfer.rs"]
mod large_transfer;
#[path = "../examples/nested.rs"]
mod nested;
#[path = "../examples/worker.rs"]
mod worker;

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
fn hello() {
    ends(hello::main);
}

#[test]
fn large_transfer() {
    ends(large_transfer::main);
}

#[test]
fn nested() {
    ends(nested::main);
}

#[test]
fn worker() {
    ends(worker::main);
}
