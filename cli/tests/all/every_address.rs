//! Servers at `0.0.0.0` and `[::]` answer from the address that the client asked.
//!
//! They answered from the address that the kernel's routes prefer. On a machine with several addresses the clients that asked
//! at another one got no answer.

use std::net::{IpAddr, SocketAddr};

use trine_base::ports::free_addresses;
use trine_testnet::Hosts;

use super::common::serving::Serving;
use super::common::{TempFile, command, finish, leave_out, program, trine};

/// The kernel answers a client on this machine from 127.0.0.1 by itself.
#[test]
fn every_application_answers_where_it_was_asked() {
    let state = TempFile::new("every-address.state");
    let applications: [(&str, &[&str], &[&str], i32); 3] = [
        ("cache", &["--memory", "16MiB"], &["put", "key", "value"], 0),
        ("index", &[], &["get", "1"], 1),
        ("sequencer", &["--state", state.path()], &["next"], 0),
    ];
    for (application, options, request, status) in applications {
        let port = free_addresses(1).expect("a free port")[0].port();
        let options = [options, &["--insecure"]].concat();
        let any = SocketAddr::from(([0, 0, 0, 0], port));
        let _server = Serving::start_by(command(&[], ""), application, any, &options);
        for ip in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let at = SocketAddr::from((ip, port)).to_string();
            let words = [&[application], request, &["--connect", &at]].concat();
            trine(&words, "", b"").expect_status(status);
        }
    }
}

/// An interface with two addresses of each family, seen from another host. An IPv4 client of a socket at `[::]` is a mapped
/// one.
#[test]
fn two_addresses_of_one_interface_answer_where_they_were_asked() {
    const SERVER: usize = 0;
    const CLIENT: usize = 1;
    let hosts = match Hosts::bridged(&[1_500; 2]) {
        Ok(hosts) => hosts,
        Err(why) => return leave_out(&why, "TRINE_NEED_SANDBOX"),
    };
    let second: [IpAddr; 2] = ["10.79.0.77", "fd79::77"].map(|ip| ip.parse().expect("an address"));
    for (ip, bits) in second.iter().zip([24, 64]) {
        let mut add = hosts.command(SERVER, "ip");
        add.args(["addr", "add", &format!("{ip}/{bits}"), "dev", "e0"]);
        if ip.is_ipv6() {
            add.arg("nodad");
        }
        assert!(add.status().expect("ip").success());
    }
    // An answer of many packets, and as many of the request.
    let value = TempFile::holding("every-address.value", &"12345678".repeat(20_000));
    for any in ["0.0.0.0:7471", "[::]:7471"] {
        let any: SocketAddr = any.parse().expect("an address");
        let inside = hosts.command(SERVER, program());
        let options = ["--memory", "16MiB", "--insecure"];
        let _server = Serving::start_by(inside, "cache", any, &options);
        for ip in second
            .iter()
            .copied()
            .flat_map(|second| [second, hosts.address(SERVER, second.is_ipv6())])
        {
            if any.is_ipv4() && ip.is_ipv6() {
                continue;
            }
            let at = SocketAddr::new(ip, any.port()).to_string();
            let ask = |words: &[&str], stdin| {
                let mut client = hosts.command(CLIENT, program());
                client.args(["cache"]).args(words).args(["--connect", &at]);
                client.stdin(stdin).stdout(std::process::Stdio::piped());
                let client = client.stderr(std::process::Stdio::piped()).spawn();
                finish(client.expect("starts")).expect_status(0).stdout
            };
            let file = std::fs::File::open(&value.0).expect("it is there");
            ask(&["put", "key", "-"], file.into());
            let got = ask(&["get", "key"], std::process::Stdio::null());
            assert!(got == std::fs::read(&value.0).expect("it is there"), "{at}");
        }
    }
}
