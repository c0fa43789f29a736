//! A frame from a port: every application treats it as its reference does, whatever the batch size.

use std::sync::LazyLock;

use trine_packets::application::Application;
use trine_packets::check::verdicts;
use trine_packets::config::FRAME_BYTES_MAX;
use trine_packets::echo::{Echo, EchoReference};
use trine_packets::ipv4::{Ipv4, Ipv4Reference, bgp_like};
use trine_packets::ipv6::{Ipv6, Ipv6Reference, random_routes};
use trine_packets::names::{Names, NamesReference, random_names};
use trine_packets::patterns::{Patterns, PatternsReference, random_patterns};
use trine_packets::reference::Reference;
use trine_packets::switch::{Switch, SwitchReference, random_stations};
use trine_transport::prng::Prng;

/// Output ports.
const PORTS: u8 = 3;
/// Entries of the tables: the headers are what is tried.
const ENTRIES: usize = 64;

/// Treats a frame with one application, and compares.
type Judge = Box<dyn Fn(&[u8]) + Send + Sync>;

static JUDGES: LazyLock<[Judge; 6]> = LazyLock::new(|| {
    let prng = &mut Prng::new(1);
    let routes4 = bgp_like(ENTRIES, prng);
    let routes6 = random_routes(ENTRIES, prng);
    let stations = random_stations(ENTRIES, PORTS, prng);
    let names = random_names(ENTRIES, PORTS, prng);
    let patterns = random_patterns(ENTRIES, prng);
    let ports = PORTS;
    [
        judge(Echo { ports }, EchoReference { ports }),
        judge(
            Ipv4::new(&routes4, ports).expect("a table"),
            Ipv4Reference::new(&routes4, ports),
        ),
        judge(
            Ipv6::new(&routes6, ports).expect("a table"),
            Ipv6Reference::new(&routes6, ports),
        ),
        judge(
            Switch::new(&stations, prng).expect("a table"),
            SwitchReference::new(&stations),
        ),
        judge(
            Names::new(&names, prng).expect("a table"),
            NamesReference::new(&names),
        ),
        judge(
            Patterns::new(&patterns).expect("a table"),
            PatternsReference::new(&patterns),
        ),
    ]
});

/// The first byte chooses the application, the others are the frame.
pub fn frame(data: &[u8]) {
    if let Some((&first, frame)) = data.split_first() {
        let frame = &frame[..frame.len().min(FRAME_BYTES_MAX)];
        JUDGES[usize::from(first) % JUDGES.len()](frame);
    }
}

fn judge(
    application: impl Application + Send + 'static,
    reference: impl Reference + Sync + 'static,
) -> Judge {
    Box::new(move |frame| {
        let mut expected = frame.to_vec();
        let verdict = reference.judge(&mut expected);
        let mut alone = [frame.to_vec()];
        assert_eq!(verdicts::<1, _>(&application, &mut alone)[0], verdict);
        assert_eq!(alone[0], expected);
        let mut batch = vec![frame.to_vec(); 5];
        assert_eq!(
            verdicts::<4, _>(&application, &mut batch)[..5],
            [verdict; 5]
        );
        assert!(batch.iter().all(|frame| *frame == expected));
    })
}
