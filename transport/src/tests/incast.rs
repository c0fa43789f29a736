//! Many clients send 8 MB requests to one server behind one port (paper 6.5, table 5): congestion
//! control must shorten the port's queue and keep the link busy.

use super::net::{Bottleneck, Net, caps};
use crate::backend::Caps;
use crate::config::CongestionConfig;
use crate::time::Duration;
use crate::{Config, Identity};

const LINK: u64 = 3_125_000_000;
const MESSAGE: usize = 8 << 20;

/// What went through the port once things had settled.
#[derive(Debug)]
struct Outcome {
    /// Share of the link, in percent.
    utilization: u64,
    wait_us_p50: u64,
    wait_us_p99: u64,
    /// The slowest flow's bytes over the fastest's, in percent.
    fairness: u64,
}

fn incast(flows: usize, enabled: bool) -> Outcome {
    let congestion = CongestionConfig {
        enabled,
        link_bytes_per_second: LINK,
        ..CongestionConfig::default()
    };
    let config = Config {
        congestion,
        ..Config::default()
    };
    let caps = Caps {
        rto_floor: Duration::from_micros(50),
        ..caps()
    };
    let mut net = Net::new(1, 0, &config);
    for node in 0..=flows {
        net.add(
            &config,
            caps,
            Identity {
                cluster: 0,
                incarnation: node as u64,
            },
        );
    }
    let sessions: Vec<_> = (1..=flows).map(|node| net.connected(node, 0)).collect();
    net.bottleneck = Some(Bottleneck::new(0, LINK, 12 << 20));
    for (node, session) in sessions.iter().enumerate() {
        net.request_for(node + 1, *session, node as u64, MESSAGE, 64, None);
    }
    let warm_up = Duration::from_millis(30);
    let measured = Duration::from_millis(20);
    net.run_for(warm_up);
    let port = net.bottleneck.as_mut().expect("set above");
    port.bytes = 0;
    port.waits.clear();
    let before: Vec<u64> = (1..=flows)
        .map(|node| net.nodes[node].endpoint.stats().packets_sent)
        .collect();
    net.run_for(measured);
    let shares =
        (1..=flows).map(|node| net.nodes[node].endpoint.stats().packets_sent - before[node - 1]);
    let (least, most) = shares.fold((u64::MAX, 1), |(least, most), share| {
        (least.min(share), most.max(share))
    });
    let port = net.bottleneck.as_mut().expect("set above");
    port.waits.sort_unstable();
    let at = |percent: usize| port.waits[(port.waits.len() - 1) * percent / 100].as_micros();
    Outcome {
        utilization: port.bytes * 100 / (LINK / 1_000 * measured.as_millis()),
        wait_us_p50: at(50),
        wait_us_p99: at(99),
        fairness: least * 100 / most,
    }
}

#[test]
fn congestion_control_shortens_the_queue_and_keeps_the_link_busy() {
    // As in the paper, an incast of 100 is more than an RTT can steer well.
    let cases = [(20, 20), (50, 50), (100, 80)];
    let cases = if cfg!(debug_assertions) {
        &cases[..1]
    } else {
        &cases[..]
    };
    for &(flows, part_of_wait) in cases {
        let (with, without) = (incast(flows, true), incast(flows, false));
        println!("{flows:3} flows with    {with:?}\n{flows:3} flows without {without:?}");
        assert!(with.utilization >= 90, "{flows} flows: {with:?}");
        let is_shorter = with.wait_us_p50 * 100 <= without.wait_us_p50 * part_of_wait;
        assert!(is_shorter, "{flows} flows: {with:?}, without {without:?}");
        assert!(
            with.wait_us_p99 < without.wait_us_p99,
            "{flows} flows: {with:?}, without {without:?}"
        );
    }
    let fair = incast(20, true);
    assert!(fair.fairness >= 80, "{fair:?}");
}
