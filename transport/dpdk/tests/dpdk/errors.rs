//! Mistakes a user makes, and the messages that must help.

use std::net::Ipv4Addr;

use trine_dpdk::{DpdkBackend, DpdkConfig, DpdkError, Eal, arguments};
use trine_transport::buf::PoolConfig;

use crate::process::{become_nobody, start};
use crate::{Case, Role};

pub(crate) const CASES: &[Case] = &[
    ("errors::no_huge_pages", || {
        fails(
            "nobody",
            "--in-memory --no-pci",
            "",
            &["nr_hugepages", "--no-huge"],
        )
    }),
    ("errors::no_driver", || {
        fails(
            "root",
            "--no-huge --no-pci --vdev=net_nosuch0",
            "",
            &["`net_nosuch0`", "librte_net_", "-d FILE"],
        );
    }),
    ("errors::no_device", || {
        fails(
            "root",
            "--no-huge --no-pci --vdev=net_af_packet0,iface=nosuch",
            "",
            &["No such device"],
        );
    }),
    ("errors::no_port_at_all", || {
        fails(
            "nobody",
            "--no-huge --no-pci",
            "",
            &["no port at all", "--vdev="],
        )
    }),
    ("errors::another_name", || {
        fails(
            "nobody",
            "--no-huge --no-pci --vdev=net_null0",
            "device=net_null7",
            &["`net_null7`", "found net_null0"],
        );
    }),
    ("errors::no_permission", || {
        fails(
            "nobody",
            "--no-huge --no-pci --vdev=net_af_packet0,iface=lo",
            "",
            &["CAP_NET_RAW"],
        );
    }),
    ("errors::no_such_core", || {
        fails(
            "nobody",
            "--no-huge --no-pci -l 999",
            "",
            &["does not start", "999"],
        )
    }),
    ("errors::small_mtu", || {
        fails(
            "nobody",
            "--no-huge --no-pci --vdev=net_null0",
            "mtu=1900",
            &["MTU of 1500", "1928", "mtu=1472"],
        );
    }),
    ("errors::no_memory", || {
        fails(
            "nobody",
            "--no-huge -m 8 --no-pci --vdev=net_null0",
            "descriptors=8192",
            &["packet buffers", "-m 128"],
        );
    }),
    ("errors::peer_missing", || {
        fails(
            "nobody",
            "--no-huge --no-pci --vdev=net_memif0,role=client,socket=@trine-nobody",
            "",
            &["its server"],
        );
    }),
    ("errors::steering_by_rss", || {
        start("steer_by_rss", &[]).finish();
    }),
    ("errors::no_steering", || {
        start("steer_in_vain", &[]).finish();
    }),
    ("errors::started_twice", || {
        start("start_twice", &[]).finish();
    }),
];

pub(crate) const ROLES: &[Role] = &[
    ("open_in_vain", open_in_vain),
    ("steer_by_rss", steer_by_rss),
    ("steer_in_vain", steer_in_vain),
    ("start_twice", start_twice),
];

/// A process that opens a port like this fails, and its message has all these words.
fn fails(user: &str, eal: &str, options: &str, words: &[&str]) {
    let mut process = start("open_in_vain", &[user, eal, options]);
    let message = process.expect("error: ");
    process.finish();
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
    assert!(!message.contains('\n'), "one line: {message}");
}

fn open_in_vain(arguments: &[String]) {
    if arguments[0] == "nobody" {
        become_nobody();
    }
    let mut config: DpdkConfig = format!("ip=10.0.0.1/24,{}", arguments[2])
        .parse()
        .expect("options");
    config.start_timeout = trine_transport::time::Duration::from_millis(100);
    let opened = Eal::start(&arguments::split(&arguments[1]))
        .and_then(|eal| DpdkBackend::open(&eal, &config, 7000, PoolConfig::default()));
    match opened {
        Ok(backend) => panic!("{} opened", backend.port_name()),
        Err(error) => println!("error: {error}"),
    }
}

/// Two endpoints on a port without flow rules, whose redirection table of RSS takes what we write.
fn steer_by_rss(_arguments: &[String]) {
    become_nobody();
    let eal = Eal::start(&arguments::split(
        "--no-huge --no-pci --vdev=net_null0,no-rx=1",
    ))
    .expect("EAL");
    let config = DpdkConfig::new(Ipv4Addr::new(10, 0, 0, 1));
    let ports = [7000, 7001, 7002];
    let backends = DpdkBackend::open_several(&eal, &config, &ports, PoolConfig::default());
    let backends = backends.unwrap_or_else(|error| panic!("{error}"));
    let served: Vec<u16> = backends.iter().map(|b| b.local_addr().port()).collect();
    assert_eq!(served, ports);
}

/// Two endpoints on a port that cannot tell their datagrams apart.
fn steer_in_vain(_arguments: &[String]) {
    become_nobody();
    let eal = Eal::start(&arguments::split("--no-huge --no-pci --vdev=net_ring0")).expect("EAL");
    let config = DpdkConfig::new(Ipv4Addr::new(10, 0, 0, 1));
    let opened = DpdkBackend::open_several(&eal, &config, &[7000, 7001], PoolConfig::default());
    let error = opened.err().expect("net_ring has no flow rules");
    assert!(matches!(error, DpdkError::CannotSteer { .. }), "{error}");
    for words in ["flow rules", "RSS", "a port for each"] {
        assert!(error.to_string().contains(words), "{error}");
    }
}

fn start_twice(_arguments: &[String]) {
    become_nobody();
    let line = arguments::split("--no-huge --no-pci --vdev=net_null0");
    let eal = Eal::start(&line).expect("the first start");
    let config = DpdkConfig::new(Ipv4Addr::new(10, 0, 0, 1));
    let backend = DpdkBackend::open(&eal, &config, 7000, PoolConfig::default()).expect("the port");
    assert_eq!(Eal::start(&line).err(), Some(DpdkError::AlreadyStarted));
    drop((backend, eal));
    assert_eq!(
        Eal::start(&line).err(),
        Some(DpdkError::AlreadyStarted),
        "EAL does not start again"
    );
}
