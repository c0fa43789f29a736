//! The rules of a replica's fault injector, which outlive the replica's incarnations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trine_protocol::RouteOf;
use trine_protocol::message::NodeId;
use trine_transport::backend::{Direction, FaultCounts, FaultHandle, Faults, Route};

use trine_local::faults::{FaultCommand, Linked, State, Way};

/// The most links with their own rules: more than a group has.
const LINKS_MAX: usize = 1_024;

/// See the module's description.
pub struct Injector {
    node_id: u32,
    own: SocketAddr,
    /// The names of links.
    peers: Vec<(NodeId, SocketAddr)>,
    inner: Mutex<Inner>,
}

struct Inner {
    rules: Rules,
    /// Access to the backend of the present incarnation, if there is one.
    present: Option<Present>,
}

/// The rules, by direction: what is sent, what is received.
#[derive(Clone, Default)]
struct Rules {
    all: [Faults; 2],
    links: BTreeMap<SocketAddr, [Option<Faults>; 2]>,
}

/// The fault injector of one incarnation. Packets pass it without a lock; it only reads a counter of changes.
struct Present {
    apply: Box<dyn Fn(&Rules) + Send>,
    fired: Box<dyn Fn() -> FaultCounts + Send>,
}

impl Injector {
    /// Makes the injector for the replica of `node_id` at `own`. It starts with `faults` in what the replica sends.
    pub fn new(
        node_id: u32,
        own: SocketAddr,
        peers: Vec<(NodeId, SocketAddr)>,
        faults: Faults,
    ) -> Arc<Self> {
        let mut rules = Rules::default();
        rules.all[index(Direction::Outbound)] = faults;
        Arc::new(Self {
            node_id,
            own,
            peers,
            inner: Mutex::new(Inner {
                rules,
                present: None,
            }),
        })
    }

    /// An incarnation starts with the present rules. Returns `route_of` for the replica's own use.
    pub fn attach<R: Route>(&self, handle: FaultHandle<R>, route_of: RouteOf<R>) -> RouteOf<R> {
        let route_of = Arc::new(Mutex::new(route_of));
        let shared = Arc::clone(&route_of);
        let route = move |address| shared.lock().unwrap_or_else(PoisonError::into_inner)(address);
        let counts = handle.clone();
        let apply = move |rules: &Rules| {
            let links = rules.links.iter();
            let routed = links.filter_map(|(&address, faults)| Some((route(address)?, *faults)));
            handle.replace(rules.all, routed);
        };
        let present = Present {
            apply: Box::new(apply),
            fired: Box::new(move || counts.total()),
        };
        let mut inner = self.lock();
        (present.apply)(&inner.rules);
        inner.present = Some(present);
        Box::new(move |address| route_of.lock().unwrap_or_else(PoisonError::into_inner)(address))
    }

    /// The faults that fired in the present incarnation.
    pub fn fired(&self) -> FaultCounts {
        let inner = self.lock();
        inner
            .present
            .as_ref()
            .map_or_else(FaultCounts::default, |present| (present.fired)())
    }

    /// Follows a request, or returns why it cannot.
    pub fn follow(&self, command: &FaultCommand) -> Result<State, String> {
        let mut inner = self.lock();
        let mut rules = inner.rules.clone();
        match command {
            FaultCommand::Show => return Ok(self.state(&inner)),
            FaultCommand::Set { link, way, faults } => {
                let faults = faults.parse().map_err(
                    |error: trine_transport::backend::ParseFaultsError| error.to_string(),
                )?;
                let link = link.as_deref().map(|name| self.link(name)).transpose()?;
                rules.set(link, *way, faults)?;
            }
            FaultCommand::Clear { link: None } => rules = Rules::default(),
            FaultCommand::Clear { link: Some(name) } => {
                rules.links.remove(&self.link(name)?);
            }
        }
        inner.rules = rules;
        if let Some(present) = &inner.present {
            (present.apply)(&inner.rules);
        }
        Ok(self.state(&inner))
    }

    /// The address of a node, or the address that is given directly.
    fn link(&self, name: &str) -> Result<SocketAddr, String> {
        let known = || {
            let others = self
                .peers
                .iter()
                .filter(|(_, address)| *address != self.own);
            let names: Vec<String> = others
                .map(|(node_id, address)| format!("{} ({address})", node_id.0))
                .collect();
            names.join(", ")
        };
        if let Ok(address) = name.parse() {
            return Ok(address);
        }
        let node_id = name.parse::<u32>().map_err(|_| {
            format!(
                "{name:?} is no link: write a node id or an address; replica {} knows {}",
                self.node_id,
                known()
            )
        })?;
        if node_id == self.node_id {
            return Err(format!(
                "replica {node_id} has no link to itself; it knows {}",
                known()
            ));
        }
        let found = self.peers.iter().find(|(known, _)| known.0 == node_id);
        found.map(|(_, address)| *address).ok_or_else(|| {
            format!(
                "replica {} was not told of node {node_id}; it knows {}; or write its address",
                self.node_id,
                known()
            )
        })
    }

    fn state(&self, inner: &Inner) -> State {
        let [out, inward] = inner.rules.all.map(|faults| show(&faults));
        let node_id_of = |address: SocketAddr| {
            let mut known = self.peers.iter();
            known
                .find(|(_, at)| *at == address)
                .map(|(node_id, _)| node_id.0)
        };
        let linked = |(&address, faults): (&SocketAddr, &[Option<Faults>; 2])| Linked {
            address,
            node_id: node_id_of(address),
            out: faults[0].map(|faults| show(&faults)),
            inward: faults[1].map(|faults| show(&faults)),
        };
        let fired = inner.present.as_ref().map(|present| (present.fired)());
        State {
            node_id: self.node_id,
            address: self.own,
            pid: std::process::id(),
            out,
            inward,
            links: inner.rules.links.iter().map(linked).collect(),
            fired: fired.unwrap_or_default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn set(&mut self, link: Option<SocketAddr>, way: Way, faults: Faults) -> Result<(), String> {
        let full = self.links.len() >= LINKS_MAX;
        let own = match link {
            None => {
                for direction in way.directions() {
                    self.all[index(*direction)] = faults;
                }
                return Ok(());
            }
            Some(address) if full && !self.links.contains_key(&address) => {
                return Err(format!(
                    "{LINKS_MAX} links have rules of their own; clear some first"
                ));
            }
            Some(address) => self.links.entry(address).or_default(),
        };
        for direction in way.directions() {
            own[index(*direction)] = Some(faults);
        }
        assert!(self.links.len() <= LINKS_MAX, "room was looked for");
        Ok(())
    }
}

fn index(direction: Direction) -> usize {
    match direction {
        Direction::Outbound => 0,
        Direction::Inbound => 1,
    }
}

/// Formats the faults as a command can give them.
fn show(faults: &Faults) -> String {
    match *faults == Faults::CUT {
        true => "blocked".to_owned(),
        false => faults.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::backend::{Faulty, MonotonicClock, RingBackend, RingConfig};

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn injector() -> Arc<Injector> {
        let peers = (1..=3).map(|node_id| (NodeId(node_id), address(node_id as u16)));
        let loss = "loss=5%".parse().expect("faults");
        Injector::new(2, address(2), peers.collect(), loss)
    }

    fn set(link: Option<&str>, way: Way, faults: &str) -> FaultCommand {
        FaultCommand::Set {
            link: link.map(str::to_owned),
            way,
            faults: faults.to_owned(),
        }
    }

    #[test]
    fn rules_change_by_link_and_direction_and_are_told() {
        let injector = injector();
        let state = injector.follow(&FaultCommand::Show).expect("shown");
        assert_eq!((state.out.as_str(), state.inward.as_str()), ("loss=5%", ""));
        injector
            .follow(&set(Some("3"), Way::In, "blocked"))
            .expect("set");
        let state = injector
            .follow(&set(None, Way::Both, "delay=1ms"))
            .expect("set");
        assert_eq!(state.out, state.inward);
        let expected = Linked {
            address: address(3),
            node_id: Some(3),
            out: None,
            inward: Some("blocked".into()),
        };
        assert_eq!(state.links, [expected]);
        let link = Some("127.0.0.1:3".to_owned());
        let state = injector
            .follow(&FaultCommand::Clear { link })
            .expect("cleared");
        assert!(state.links.is_empty() && !state.is_clear());
        let state = injector
            .follow(&FaultCommand::Clear { link: None })
            .expect("cleared");
        assert!(state.is_clear());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can_and_changes_nothing() {
        let injector = injector();
        for (link, faults, part) in [
            (Some("2"), "blocked", "no link to itself"),
            (Some("7"), "blocked", "it knows 1 (127.0.0.1:1), 3"),
            (Some("x"), "blocked", "a node id or an address"),
            (None, "gremlins=1%", "known are loss"),
            (None, "loss=101%", "5%"),
        ] {
            let error = injector
                .follow(&set(link, Way::Both, faults))
                .expect_err(faults);
            assert!(error.contains(part), "{error}");
        }
        let state = injector.follow(&FaultCommand::Show).expect("shown");
        assert_eq!(
            (state.out.as_str(), state.links.len()),
            ("loss=5%", 0),
            "nothing was changed"
        );
    }

    /// A replica that restarts in the same process keeps its injected faults.
    #[test]
    fn a_new_incarnation_has_the_rules_of_the_one_before() {
        let injector = injector();
        injector
            .follow(&set(None, Way::Out, "blocked"))
            .expect("set");
        let (backend, _peer) = RingBackend::pair(RingConfig::default());
        let faulty = Faulty::new(backend, MonotonicClock, 1);
        let route_of = injector.attach(faulty.handle(), Box::new(|_| None));
        assert!(route_of(address(1)).is_none());
        assert_eq!(injector.fired(), FaultCounts::default());
    }
}
