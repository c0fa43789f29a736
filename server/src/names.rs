//! The names in a replica's list of peers: looked up at the start, and again while it runs.
//!
//! A name without an address is a silent peer. Nothing but the replica's own name has to be known at the start, and a
//! lookup that fails later takes no address away.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::json;
use trine_base::announce::Announcer;
use trine_base::config::LOOKUP_GRACE;
use trine_base::failure::Failure;
use trine_base::lookup::{LookupResult, Lookups};
use trine_base::{interrupt, peers};
use trine_protocol::message::NodeId;
use trine_protocol::route::is_same_address;
use trine_replica::config::CANDIDATES_MAX;

use crate::logs::ROLE;
use crate::options::{ServeArguments, own_of};
use crate::startup::StartupStatus;

/// A name is asked for again so soon while its replica is silent, or has no address.
const ASK_SILENT_EVERY: Duration = Duration::from_secs(5);
/// The same while its replica is heard from.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The own name is asked for again so soon at the start.
const ASK_OWN_EVERY: Duration = Duration::from_secs(1);
/// How long a wait for a lookup lasts before it looks for Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a node's name stands for since now.
pub(crate) type AddressChange = (NodeId, Vec<SocketAddr>);

/// The list of peers of one process, with what its names stand for.
pub(crate) struct PeerNames {
    own: Own,
    /// The other replicas, in the order of the list.
    listed: Vec<Listed>,
    /// None where all are numbers.
    lookups: Option<Lookups>,
}

/// This replica's own entry.
struct Own {
    item: String,
    /// Chosen at the start, and kept.
    address: Option<SocketAddr>,
}

/// The entry of another replica.
struct Listed {
    node_id: NodeId,
    item: String,
    is_name: bool,
    /// Of both families at the start, afterwards of the own one: at most [`CANDIDATES_MAX`], the present one first.
    addresses: Vec<SocketAddr>,
    /// Since when it is being looked up.
    asked_at: Option<Instant>,
    /// When it was looked up last.
    answered_at: Option<Instant>,
    /// Why the last lookup has brought no address that can be used.
    problem: Option<String>,
    /// What was said of it last.
    status: Option<EntryStatus>,
}

/// The result of looking up an entry of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryStatus {
    Fine(SocketAddr),
    /// An earlier entry stands for the same address.
    Shared(SocketAddr),
    Missing,
}

/// The number of the own name in lookups.
const OWN: usize = usize::MAX;

impl PeerNames {
    /// Reads the list of peers, and begins to look its names up. Threads for that run where the calling one may run.
    pub(crate) fn start(arguments: &ServeArguments) -> Result<Self, Failure> {
        let items = peers::items(&arguments.peers)?;
        let (own, own_index) = match &arguments.listen {
            Some(listen) => (listen.trim(), None),
            None => {
                let places: Vec<usize> = (0..items.len()).collect();
                let place = own_of(arguments.id, &places)?;
                (items[place], Some(place))
            }
        };
        // A list that does not name this replica only says whom to ask: its node ids are made up.
        let made_up = (1..).filter(|&n| n != arguments.id);
        let node_ids: Vec<u32> = match own_index {
            Some(_) => (1..).take(items.len()).collect(),
            None => made_up.take(items.len()).collect(),
        };
        let others = items.iter().zip(node_ids).enumerate();
        let listed: Vec<Listed> = others
            .filter(|&(index, (item, _))| Some(index) != own_index && *item != own)
            .map(|(_, (item, node_id))| Listed::new(NodeId(node_id), item))
            .collect();
        let is_other = |listed: &Listed| listed.node_id.0 != arguments.id;
        assert!(listed.iter().all(is_other), "nobody is its own peer");
        let mut names = Self {
            own: Own {
                item: own.to_owned(),
                address: own.parse().ok(),
            },
            listed,
            lookups: None,
        };
        names.begin()?;
        Ok(names)
    }

    /// Begins the first lookup of every name.
    fn begin(&mut self) -> Result<(), Failure> {
        let others = self.listed.iter().filter(|listed| listed.is_name).count();
        let count = others + usize::from(self.own.address.is_none());
        if count == 0 {
            return Ok(());
        }
        let lookups = Lookups::start(count)
            .map_err(|error| Failure::usage(format!("cannot start a thread: {error}"), ""))?;
        if self.own.address.is_none() {
            lookups.begin(OWN, &self.own.item);
        }
        for (number, listed) in self.listed.iter_mut().enumerate() {
            if listed.is_name {
                listed.asked_at = Some(Instant::now());
                lookups.begin(number, &listed.item);
            }
        }
        self.lookups = Some(lookups);
        Ok(())
    }

    /// Waits for this replica's own address, and a moment for those of the others. With `is_ip` it has to be one of this
    /// machine. Returns nothing if the user ends the process meanwhile.
    ///
    /// # Errors
    /// The own address is one that the others cannot reach.
    pub(crate) fn wait(
        &mut self,
        is_ip: bool,
        startup: &mut StartupStatus,
    ) -> Result<Option<SocketAddr>, Failure> {
        let Some(found) = self.wait_for_own(is_ip, startup) else {
            return Ok(None);
        };
        self.wait_for_others();
        let own = self.choose_own(&found);
        self.own.address = Some(own);
        for listed in &mut self.listed {
            let found = std::mem::take(&mut listed.addresses);
            if !found.is_empty() {
                listed.keep(own, found);
            }
        }
        if is_ip {
            self.check_own()?;
        }
        Ok(Some(own))
    }

    /// The addresses of this machine that the own name stands for; at least one.
    fn wait_for_own(
        &mut self,
        is_ip: bool,
        startup: &mut StartupStatus,
    ) -> Option<Vec<SocketAddr>> {
        if let Some(address) = self.own.address {
            return Some(vec![address]);
        }
        let (mut asked_at, mut is_under_way) = (Instant::now(), true);
        while !interrupt::interrupted() {
            if !is_under_way && asked_at.elapsed() >= ASK_OWN_EVERY {
                (asked_at, is_under_way) = (Instant::now(), true);
                self.lookups().begin(OWN, &self.own.item);
            }
            if is_under_way && asked_at.elapsed() >= ASK_OWN_EVERY {
                startup.tell(&self.no_own_address("the name service does not answer"));
            }
            match self.next_answer() {
                Some((OWN, Ok(found))) => {
                    is_under_way = false;
                    let here = |address: &&SocketAddr| !is_ip || is_of_this_machine(**address);
                    let own: Vec<SocketAddr> = found.iter().filter(here).copied().collect();
                    if !own.is_empty() {
                        return Some(own);
                    }
                    startup.tell(&self.foreign(&found));
                }
                Some((OWN, Err(why))) => {
                    is_under_way = false;
                    startup.tell(&self.no_own_address(&why));
                }
                Some((number, found)) => self.listed[number].take_first(found),
                None => {}
            }
        }
        None
    }

    fn no_own_address(&self, why: &str) -> String {
        let item = &self.own.item;
        format!("the name of this replica, {item}, has no address yet: {why}")
    }

    fn foreign(&self, found: &[SocketAddr]) -> String {
        let item = &self.own.item;
        let first = found.first().map(SocketAddr::ip);
        let first = first.map_or_else(String::new, |ip| ip.to_string());
        format!(
            "the name of this replica, {item}, stands for {first}, which belongs to no interface of this machine yet; \
             `ip addr` lists those that do"
        )
    }

    /// Waits for the first answers about the others, but not for long.
    fn wait_for_others(&mut self) {
        let until = Instant::now() + LOOKUP_GRACE;
        let is_open = |listed: &Listed| listed.asked_at.is_some();
        while self.listed.iter().any(is_open) && Instant::now() < until && !interrupt::interrupted()
        {
            if let Some((number, found)) = self.next_answer()
                && let Some(listed) = self.listed.get_mut(number)
            {
                listed.take_first(found);
            }
        }
    }

    /// One of the own addresses: of the family that most names have, and none on loopback where another one will do.
    fn choose_own(&self, found: &[SocketAddr]) -> SocketAddr {
        let others = self.listed.iter().map(|listed| &listed.addresses[..]);
        let all = others.filter(|known| !known.is_empty()).chain([found]);
        let number = self.listed.iter().find(|listed| !listed.is_name);
        let is_v4 = match number.and_then(|listed| listed.addresses.first()) {
            Some(number) => number.is_ipv4(),
            None => peers::prefers_v4(all),
        };
        let local = self.is_on_loopback() == Some(true);
        let rank = |address: &SocketAddr| {
            let fits_family = address.is_ipv4() == is_v4;
            (!fits_family, address.ip().is_loopback() != local)
        };
        // The first of the best: `min_by_key` keeps the order of the name service.
        *found
            .iter()
            .min_by_key(|address| rank(address))
            .expect("the caller has found one")
    }

    /// Whether the other replicas are on loopback, all of them, as far as their addresses are known. Nothing if some are
    /// and some are not, or none is known.
    fn is_on_loopback(&self) -> Option<bool> {
        let mut known = self.listed.iter().flat_map(|listed| &listed.addresses);
        let first = known.next()?.ip().is_loopback();
        known
            .all(|address| address.ip().is_loopback() == first)
            .then_some(first)
    }

    /// Refuses an own address on loopback where all others are on other machines: a packet from there reaches none of them.
    pub(crate) fn check_own(&self) -> Result<(), Failure> {
        let Some(own) = self.own.address.filter(|own| own.ip().is_loopback()) else {
            return Ok(());
        };
        if self.is_on_loopback() != Some(false) {
            return Ok(());
        }
        let named = match self.own.item.parse::<SocketAddr>() {
            Ok(_) => format!("the address of this replica, {own}, is a loopback address"),
            Err(_) => format!(
                "the name of this replica, {}, stands for the loopback address {own} here",
                self.own.item
            ),
        };
        Err(Failure::usage(
            format!("{named}, and the other replicas are on other machines, which cannot reach it"),
            "name the address by which the others reach this machine; if /etc/hosts has this machine's own name at 127.0.1.1, \
             as on Debian, write that address there",
        ))
    }

    /// The other nodes in the list, with what their names stand for now. Each is there, also without an address.
    pub(crate) fn present(&self) -> impl Iterator<Item = AddressChange> {
        let listed = self.listed.iter();
        listed.map(|listed| (listed.node_id, listed.addresses.clone()))
    }

    /// One address of each other node that has one, and this replica's own.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let others = self.listed.iter();
        let others = others.filter_map(|listed| listed.addresses.first().copied());
        self.own.address.into_iter().chain(others).collect()
    }

    /// Takes the answers that have come, and asks again where that is due. `is_silent` tells of which nodes nothing is
    /// heard. Returns the nodes whose addresses have changed.
    pub(crate) fn attend(
        &mut self,
        is_silent: impl Fn(NodeId) -> bool,
        announcer: Announcer,
    ) -> Vec<AddressChange> {
        let Some(own) = self.own.address.filter(|_| self.lookups.is_some()) else {
            return Vec::new();
        };
        let mut changes = Vec::new();
        // One answer a lookup: there are no more than entries.
        while let Some((number, found)) = self.lookups().next(Duration::ZERO) {
            let Some(listed) = self.listed.get_mut(number) else {
                continue;
            };
            if listed.take(own, found) {
                changes.push((listed.node_id, listed.addresses.clone()));
            }
        }
        self.tell(announcer);
        self.ask_again(is_silent);
        changes
    }

    fn ask_again(&mut self, is_silent: impl Fn(NodeId) -> bool) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (number, listed) in self.listed.iter().enumerate() {
            let urgent = listed.addresses.is_empty() || is_silent(listed.node_id);
            if listed.is_due(now, urgent) {
                due.push((!urgent, number));
            }
        }
        // Silent ones first: threads are few, and a lookup may hang.
        due.sort_unstable();
        for (_, number) in due {
            self.listed[number].asked_at = Some(now);
            self.lookups().begin(number, &self.listed[number].item);
        }
    }

    /// Says of each entry what has changed.
    fn tell(&mut self, announcer: Announcer) {
        for number in 0..self.listed.len() {
            let state = self.state_of(number);
            let listed = &mut self.listed[number];
            let before = listed.status.replace(state);
            // An entry that was fine from the beginning is nothing to talk about.
            let is_news = before.is_some() || !matches!(state, EntryStatus::Fine(_));
            if before == Some(state) || !is_news {
                continue;
            }
            let text = listed.words(state);
            tracing::info!(target: ROLE, name = listed.item, text, "list of peers");
            announcer.json_line(&json!({ "name": listed.item, "is": text }));
            announcer.line_of_role(format_args!("{} {text}", listed.item));
        }
    }

    fn state_of(&self, number: usize) -> EntryStatus {
        let Some(&address) = self.listed[number].addresses.first() else {
            return EntryStatus::Missing;
        };
        let mut before = self.listed[..number].iter();
        match before.any(|other| other.addresses.first() == Some(&address)) {
            true => EntryStatus::Shared(address),
            false => EntryStatus::Fine(address),
        }
    }

    fn lookups(&self) -> &Lookups {
        self.lookups
            .as_ref()
            .expect("there are names, or nobody asks")
    }

    fn next_answer(&self) -> Option<(usize, LookupResult)> {
        self.lookups.as_ref()?.next(LOOK_EVERY)
    }
}

impl Listed {
    fn new(node_id: NodeId, item: &str) -> Self {
        let number = item.parse::<SocketAddr>().ok();
        Self {
            node_id,
            item: item.to_owned(),
            is_name: number.is_none(),
            addresses: number.into_iter().collect(),
            asked_at: None,
            answered_at: None,
            problem: None,
            status: None,
        }
    }

    /// The first answer: which family counts is not known yet.
    fn take_first(&mut self, found: LookupResult) {
        (self.asked_at, self.answered_at) = (None, Some(Instant::now()));
        match found {
            Ok(found) => self.addresses = found,
            Err(why) => self.problem = Some(why),
        }
    }

    /// A later answer. Returns whether it changes the addresses; a failure leaves them.
    fn take(&mut self, own: SocketAddr, found: LookupResult) -> bool {
        (self.asked_at, self.answered_at) = (None, Some(Instant::now()));
        match found {
            Ok(found) => self.keep(own, found),
            Err(why) => {
                self.problem = Some(why);
                false
            }
        }
    }

    /// Keeps the addresses that this replica can send to. The present one stays first while it is among them.
    fn keep(&mut self, own: SocketAddr, found: Vec<SocketAddr>) -> bool {
        let present = self.addresses.first().copied();
        let leads_elsewhere = |address: &SocketAddr| !is_same_address(*address, own);
        let of_family = |address: &SocketAddr| address.is_ipv4() == own.is_ipv4();
        let mut fit = found;
        fit.retain(of_family);
        if fit.is_empty() {
            self.problem
                .get_or_insert_with(|| peers::no_address_of(own.is_ipv4()));
            return false;
        }
        fit.retain(leads_elsewhere);
        if fit.is_empty() {
            self.problem = Some("it stands for this replica's own address".to_owned());
            return false;
        }
        fit.sort_unstable();
        fit.dedup();
        if let Some(place) = present.and_then(|present| fit.iter().position(|at| *at == present)) {
            fit[..=place].rotate_right(1);
        }
        fit.truncate(CANDIDATES_MAX);
        assert!(!fit.is_empty(), "a failed lookup takes no address away");
        self.problem = None;
        let changes = fit != self.addresses;
        self.addresses = fit;
        changes
    }

    fn is_due(&self, now: Instant, urgent: bool) -> bool {
        if !self.is_name || self.asked_at.is_some() {
            return false;
        }
        let pause = if urgent { ASK_SILENT_EVERY } else { ASK_EVERY };
        self.answered_at
            .is_none_or(|answered| now.saturating_duration_since(answered) >= pause)
    }

    fn words(&self, state: EntryStatus) -> String {
        match state {
            EntryStatus::Fine(address) => format!("stands for {address}"),
            EntryStatus::Shared(address) => {
                format!(
                    "stands for {address}, as another name in --peers does: one of them is wrong"
                )
            }
            EntryStatus::Missing => {
                let why = self.problem.as_deref();
                let why = why.unwrap_or("the name service does not answer");
                let node_id = self.node_id;
                format!(
                    "has no address yet: {why}; continuing without node {node_id}, and retrying \
                     every {} s",
                    ASK_SILENT_EVERY.as_secs()
                )
            }
        }
    }
}

/// Whether packets can be sent from this address here.
fn is_of_this_machine(address: SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests;
