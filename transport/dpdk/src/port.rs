//! An Ethernet port of DPDK: found, configured with a queue pair per endpoint, started, and released again.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use trine_dpdk_sys as sys;

use super::arguments::is_memif_client;
use super::config::{BURST, DpdkConfig, IP_OVERHEAD, PortChoice, QUEUES_MAX, UdpChecksum};
use super::eal::{Eal, logged};
use super::error::DpdkError;
use super::mac::MacAddr;
use super::neighbours::Neighbours;
use super::rss::Steering;
use super::template::{Checksums, Fill};

/// Packet buffers that the mempool's per-core cache keeps from others.
const MEMPOOL_CACHE: u32 = 256;
/// Bursts per queue that are neither in a descriptor nor in a cache: borrowed by the core, or being written.
const BURSTS_IN_HAND: u32 = 4;
/// Pause between two attempts to start a port whose peer is not there yet.
const START_RETRY: StdDuration = StdDuration::from_millis(20);

/// How long a peer's handshake may take before the port is started again. Not less, for hanging up on a memif server
/// that polls can crash it (`DPDK.md`).
const CONNECTED_WITHIN: StdDuration = StdDuration::from_secs(2);

/// One port is opened at a time: DPDK's log of that time belongs to it.
static OPENING: Mutex<()> = Mutex::new(());

/// A started port. Released when the last of its endpoints goes.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) mac: MacAddr,
    pub(super) descriptors: u16,
    pub(super) checksums: Checksums,
    pub(super) pool: Mempool,
    pub(super) config: DpdkConfig,
    /// The driver connects to its peer when the port starts, and never again.
    pub(super) connects_at_start: bool,
    /// Drivers add up the port's losses on request, and not for two threads at a time.
    asks: Mutex<()>,
    neighbours: Mutex<Neighbours>,
    /// The neighbours' generation, readable without their lock.
    generation: AtomicU64,
    /// Last, because the port must be released before EAL stops.
    _eal: Arc<Eal>,
}

/// Packet buffers in memory that the port can reach.
#[derive(Debug)]
pub(super) struct Mempool(NonNull<sys::rte_mempool>);

// SAFETY: DPDK's mempools are made for concurrent use by all threads.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// What the queue pairs of a port are for.
#[derive(Copy, Clone)]
pub(super) enum Queues<'a> {
    /// One for each of these UDP ports, whose datagrams the port steers there.
    OfUdpPorts(&'a [u16]),
    /// So many, for frames of all kinds and to all stations, as the port distributes them. Another port may send their
    /// buffers.
    ForForwarding(u16),
}

impl Queues<'_> {
    fn count(self) -> u16 {
        match self {
            Self::OfUdpPorts(ports) => {
                u16::try_from(ports.len().min(QUEUES_MAX)).expect("at most QUEUES_MAX")
            }
            Self::ForForwarding(count) => count.min(QUEUES_MAX as u16),
        }
    }
}

/// The settings that are decided before the port is started.
struct PortSetup {
    id: u16,
    name: String,
    queues: u16,
    descriptors: (u16, u16),
    rx_offloads: u64,
    tx_offloads: u64,
    checksums: Checksums,
    connects_at_start: bool,
    /// How RSS would lead datagrams to their queues, or why it cannot; only asked for several queues.
    rss: Result<Steering, &'static str>,
}

impl Port {
    /// Finds and starts the port, with these queue pairs.
    pub(super) fn open(
        eal: &Arc<Eal>,
        config: &DpdkConfig,
        queues: Queues<'_>,
    ) -> Result<Arc<Self>, DpdkError> {
        let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let id = find(eal, &config.device)?;
        let name = name_of(id);
        let mut plan = PortSetup::make(id, name, queues, config)?;
        plan.connects_at_start = is_memif_client(eal.arguments(), &plan.name);
        let pool = Mempool::new(&plan)?;
        set_mtu(&plan, config.mtu + IP_OVERHEAD)?;
        plan.configure(&pool)?;
        if let Some(mac) = config.mac {
            set_mac(&plan, mac)?;
        }
        plan.start(config)?;
        // From here on dropping the port stops it.
        let mut neighbours = Neighbours::default();
        for (ip, mac) in &config.neighbours {
            neighbours.fix(*ip, *mac);
        }
        let rss = plan.rss.clone();
        let port = Self {
            id,
            mac: mac_of(&plan)?,
            descriptors: plan.descriptors.0,
            checksums: plan.checksums,
            name: plan.name,
            pool,
            config: config.clone(),
            connects_at_start: plan.connects_at_start,
            generation: AtomicU64::new(neighbours.generation()),
            asks: Mutex::new(()),
            neighbours: Mutex::new(neighbours),
            _eal: Arc::clone(eal),
        };
        match queues {
            Queues::OfUdpPorts(udp_ports) if udp_ports.len() > 1 => port.steer(udp_ports, rss)?,
            Queues::OfUdpPorts(_) => {}
            Queues::ForForwarding(_) => port.take_all(),
        }
        Ok(Arc::new(port))
    }

    /// Asks for the frames to other stations, too. A port without a filter says that it cannot, and has them anyway.
    fn take_all(&self) {
        // SAFETY: the port is started.
        unsafe { sys::rte_eth_promiscuous_enable(self.id) };
    }

    /// Several endpoints on one port need the port to tell their datagrams apart: by flow rules, else by RSS.
    fn steer(
        &self,
        udp_ports: &[u16],
        rss: Result<Steering, &'static str>,
    ) -> Result<(), DpdkError> {
        let Err(no_rules) = self.steer_by_rules(udp_ports) else {
            return Ok(());
        };
        let by_rss = rss.map_err(str::to_owned);
        by_rss
            .and_then(|steering| self.fill_table(&steering.table))
            .map_err(|no_rss| DpdkError::CannotSteer {
                port: self.name.clone(),
                reason: format!("flow rules: {no_rules}; RSS: {no_rss}"),
            })
    }

    /// The reason if the port takes no flow rules.
    fn steer_by_rules(&self, udp_ports: &[u16]) -> Result<(), String> {
        for (queue, udp_port) in (0..).zip(udp_ports) {
            let mut reason: *const c_char = ptr::null();
            // SAFETY: the port is started and has that queue; `reason` is a live value.
            let result =
                unsafe { sys::trine_steer_udp(self.id, queue, *udp_port, &raw mut reason) };
            if result != 0 {
                return Err(text(reason)
                    .unwrap_or_else(|| std::io::Error::from_raw_os_error(-result).to_string()));
            }
        }
        Ok(())
    }

    /// Writes the redirection table of RSS, then reads it back: some drivers say yes and do nothing.
    fn fill_table(&self, table: &[u16]) -> Result<(), String> {
        let system = |result: i32| std::io::Error::from_raw_os_error(-result).to_string();
        let size = u16::try_from(table.len()).map_err(|_| "too large a table".to_owned())?;
        let mut groups = table_groups(table);
        // SAFETY: the port is started; the groups hold `size` entries and are only read.
        let result =
            unsafe { sys::rte_eth_dev_rss_reta_update(self.id, groups.as_mut_ptr(), size) };
        if result != 0 {
            return Err(system(result));
        }
        groups
            .iter_mut()
            .for_each(|group| group.reta.fill(u16::MAX));
        // SAFETY: as above; the call fills the groups.
        let result = unsafe { sys::rte_eth_dev_rss_reta_query(self.id, groups.as_mut_ptr(), size) };
        if result != 0 {
            return Err(system(result));
        }
        let kept = groups.iter().flat_map(|group| group.reta);
        if kept.zip(table).any(|(kept, wanted)| kept != *wanted) {
            return Err("the port did not keep the redirection table".to_owned());
        }
        Ok(())
    }

    /// Whether the port has a link just now. A memif port has one while its peer is connected.
    pub(super) fn link_is_up(&self) -> bool {
        link_is_up(self.id)
    }

    /// Frames that the port had no free receive descriptor for, since it was started: those of all its queues.
    /// Drivers that do not count them say 0.
    pub(super) fn missed(&self) -> u64 {
        let _one_at_a_time = self.asks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stats = sys::rte_eth_stats::default();
        // SAFETY: the port is started as long as `self` lives, and `stats` is a live value that the call fills.
        let result = unsafe { sys::rte_eth_stats_get(self.id, &raw mut stats) };
        if result == 0 { stats.imissed } else { 0 }
    }

    /// Stops and starts the port, which makes its driver connect again.
    ///
    /// Only for a port with a single queue, and by the thread that polls that queue.
    pub(super) fn restart(&self) {
        // SAFETY: the port is started, and no thread polls it during the call, as the contract above says.
        unsafe { sys::rte_eth_dev_stop(self.id) };
        // A failure, because the peer is still away, is tried again by the caller.
        // SAFETY: the port is configured and stopped.
        unsafe { sys::rte_eth_dev_start(self.id) };
    }

    /// The ARP cache, shared by the port's endpoints.
    pub(super) fn neighbours(&self) -> Locked<'_> {
        let guard = self
            .neighbours
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Locked {
            guard,
            generation: &self.generation,
        }
    }

    /// Changes whenever a neighbour's address did.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// The locked ARP cache; publishes its generation when it is let go.
pub(super) struct Locked<'a> {
    guard: MutexGuard<'a, Neighbours>,
    generation: &'a AtomicU64,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Neighbours;
    fn deref(&self) -> &Neighbours {
        &self.guard
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Neighbours {
        &mut self.guard
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.generation
            .store(self.guard.generation(), Ordering::Release);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the port was started, and no endpoint polls it any more: each holds an `Arc` of it.
        unsafe { sys::rte_eth_dev_stop(self.id) };
        // SAFETY: as above; nothing names the port afterwards.
        unsafe { sys::rte_eth_dev_close(self.id) };
        // The pool goes next, then EAL: the order of the fields.
    }
}

impl Mempool {
    fn new(plan: &PortSetup) -> Result<Self, DpdkError> {
        let per_queue = u32::from(plan.descriptors.0)
            + u32::from(plan.descriptors.1)
            + BURSTS_IN_HAND * BURST as u32;
        // The ring behind a mempool uses its memory best with one less than a power of two.
        let buffers =
            (u32::from(plan.queues) * per_queue + 2 * MEMPOOL_CACHE + 1).next_power_of_two() - 1;
        let name = CString::new(format!("trine{}", plan.id)).expect("no zero byte");
        // SAFETY: the name is a string that outlives the call; EAL runs.
        let pool = unsafe {
            sys::rte_pktmbuf_pool_create(
                name.as_ptr(),
                buffers,
                MEMPOOL_CACHE,
                0,
                sys::RTE_MBUF_DEFAULT_BUF_SIZE as u16,
                SOCKET_ANY,
            )
        };
        match NonNull::new(pool) {
            Some(pool) => Ok(Self(pool)),
            None => Err(DpdkError::NoMemory {
                buffers,
                os_error: errno(),
            }),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.0.as_ptr()
    }

    /// Free buffers.
    pub(super) fn available(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { sys::rte_mempool_avail_count(self.as_ptr()) }
    }
}

/// Memory on any NUMA node.
const SOCKET_ANY: i32 = -1;

impl Drop for Mempool {
    fn drop(&mut self) {
        // SAFETY: the port whose queues used it is closed, see the order of fields in `Port`; endpoints return their
        // buffers before they let go of the port.
        unsafe { sys::rte_mempool_free(self.as_ptr()) };
    }
}

impl PortSetup {
    fn make(
        id: u16,
        name: String,
        queues: Queues<'_>,
        config: &DpdkConfig,
    ) -> Result<Self, DpdkError> {
        let mut info = sys::rte_eth_dev_info::default();
        // SAFETY: the port exists; `info` is a live value that the call fills.
        let result = unsafe { sys::rte_eth_dev_info_get(id, &raw mut info) };
        check(&name, "rte_eth_dev_info_get", result)?;
        let most = info.max_rx_queues.min(info.max_tx_queues);
        let count = queues.count();
        if count > most {
            return Err(DpdkError::TooFewQueues {
                port: name,
                queues: usize::from(most),
                endpoints: usize::from(count),
            });
        }
        let (mut rx, mut tx) = (config.descriptors, config.descriptors);
        // SAFETY: the port exists; both counts are live values.
        let result = unsafe { sys::rte_eth_dev_adjust_nb_rx_tx_desc(id, &raw mut rx, &raw mut tx) };
        check(&name, "rte_eth_dev_adjust_nb_rx_tx_desc", result)?;
        let offloads = Offloads::get();
        let (checksums, tx_checksums) =
            offloads.checksums(config.udp_checksum, info.tx_offload_capa);
        let (rss, fast_free) = match queues {
            Queues::OfUdpPorts(udp_ports) => (Self::rss(&info, udp_ports), offloads.fast_free),
            // The fast way to free buffers takes all of them for the port's own.
            Queues::ForForwarding(_) => (Err("forwarded frames are not steered"), 0),
        };
        Ok(Self {
            id,
            name,
            queues: count,
            descriptors: (rx, tx),
            rx_offloads: info.rx_offload_capa & offloads.rx,
            tx_offloads: tx_checksums | (info.tx_offload_capa & fast_free),
            checksums,
            connects_at_start: false,
            rss,
        })
    }

    fn rss(info: &sys::rte_eth_dev_info, udp_ports: &[u16]) -> Result<Steering, &'static str> {
        // SAFETY: returns a constant.
        let udp = unsafe { sys::trine_rss_udp_over_ipv4() };
        if info.flow_type_rss_offloads & udp == 0 {
            return Err("the port does not hash UDP");
        }
        Steering::new(
            udp_ports,
            usize::from(info.hash_key_size),
            usize::from(info.reta_size),
        )
    }

    fn configure(&self, pool: &Mempool) -> Result<(), DpdkError> {
        let mut conf = sys::rte_eth_conf::default();
        conf.rxmode.offloads = self.rx_offloads;
        conf.txmode.offloads = self.tx_offloads;
        // Written by the driver only if it is asked what it uses; alive until the call returns.
        let mut key = Vec::new();
        if let (Ok(steering), true) = (&self.rss, self.queues > 1) {
            key.clone_from(&steering.key);
            conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode_RTE_ETH_MQ_RX_RSS;
            conf.rx_adv_conf.rss_conf = sys::rte_eth_rss_conf {
                rss_key: key.as_mut_ptr(),
                rss_key_len: key.len() as u8,
                // SAFETY: returns a constant.
                rss_hf: unsafe { sys::trine_rss_udp_over_ipv4() },
            };
        }
        // SAFETY: the port exists and is stopped; `conf` and the key are only read.
        let result = unsafe {
            sys::rte_eth_dev_configure(self.id, self.queues, self.queues, &raw const conf)
        };
        check(&self.name, "rte_eth_dev_configure", result)?;
        for queue in 0..self.queues {
            let (rx, tx) = self.descriptors;
            // SAFETY: the port is configured with that queue; no configuration means the driver's default; the pool
            // outlives the port's queues, see `Port`.
            let result = unsafe {
                sys::rte_eth_rx_queue_setup(self.id, queue, rx, 0, ptr::null(), pool.as_ptr())
            };
            check(&self.name, "rte_eth_rx_queue_setup", result)?;
            // SAFETY: as above.
            let result = unsafe { sys::rte_eth_tx_queue_setup(self.id, queue, tx, 0, ptr::null()) };
            check(&self.name, "rte_eth_tx_queue_setup", result)?;
        }
        Ok(())
    }

    /// Starts the port, for some time again and again: a memif client finds no server, or one that is not ready and
    /// hangs up.
    fn start(&self, config: &DpdkConfig) -> Result<(), DpdkError> {
        let deadline = StdInstant::now() + StdDuration::from(config.start_timeout);
        loop {
            // SAFETY: the port is configured.
            let (result, log) = logged(|| unsafe { sys::rte_eth_dev_start(self.id) });
            if result == 0 && (!self.connects_at_start || self.becomes_connected()) {
                return Ok(());
            }
            if result == 0 {
                // SAFETY: the port is started, and no thread polls it yet.
                unsafe { sys::rte_eth_dev_stop(self.id) };
            }
            if StdInstant::now() >= deadline {
                // SAFETY: the port is stopped and no other thread knows it yet.
                unsafe { sys::rte_eth_dev_close(self.id) };
                return Err(DpdkError::NotStarted {
                    port: self.name.clone(),
                    os_error: -result,
                    log,
                });
            }
            std::thread::sleep(START_RETRY);
        }
    }

    fn becomes_connected(&self) -> bool {
        let deadline = StdInstant::now() + CONNECTED_WITHIN;
        while !link_is_up(self.id) {
            if StdInstant::now() >= deadline {
                return false;
            }
            std::thread::sleep(StdDuration::from_millis(1));
        }
        true
    }
}

/// A redirection table as DPDK takes it, all entries to be written.
fn table_groups(table: &[u16]) -> Vec<sys::rte_eth_rss_reta_entry64> {
    let mut groups = Vec::new();
    for entries in table.chunks(64) {
        let mut group = sys::rte_eth_rss_reta_entry64 {
            mask: u64::MAX >> (64 - entries.len()),
            ..Default::default()
        };
        group.reta[..entries.len()].copy_from_slice(entries);
        groups.push(group);
    }
    groups
}

fn link_is_up(id: u16) -> bool {
    let mut link = sys::rte_eth_link::default();
    // SAFETY: the port exists, and `link` is a live value that the call fills.
    let result = unsafe { sys::rte_eth_link_get_nowait(id, &raw mut link) };
    result == 0 && link.link_status() != 0
}

/// The port's abilities that matter here, as bits.
struct Offloads {
    rx: u64,
    ip: u64,
    udp: u64,
    fast_free: u64,
}

impl Offloads {
    fn get() -> Self {
        // SAFETY: these four return constants.
        let rx = unsafe { sys::trine_rx_offload_checksums() };
        // SAFETY: as above.
        let ip = unsafe { sys::trine_tx_offload_ip_checksum() };
        // SAFETY: as above.
        let udp = unsafe { sys::trine_tx_offload_udp_checksum() };
        // SAFETY: as above.
        let fast_free = unsafe { sys::trine_tx_offload_fast_free() };
        Self {
            rx,
            ip,
            udp,
            fast_free,
        }
    }

    /// Whether the port or the core makes each checksum, and the offloads to switch on for that.
    fn checksums(&self, policy: UdpChecksum, able: u64) -> (Checksums, u64) {
        let by_port = |offload| able & offload != 0;
        let ip = if by_port(self.ip) {
            Fill::Port
        } else {
            Fill::Software
        };
        let udp = match policy {
            UdpChecksum::Never => Fill::Nobody,
            UdpChecksum::Auto | UdpChecksum::Always if by_port(self.udp) => Fill::Port,
            UdpChecksum::Auto => Fill::Nobody,
            UdpChecksum::Always => Fill::Software,
        };
        let bit = |fill, offload| if fill == Fill::Port { offload } else { 0 };
        (Checksums { ip, udp }, bit(ip, self.ip) | bit(udp, self.udp))
    }
}

fn find(eal: &Eal, device: &PortChoice) -> Result<u16, DpdkError> {
    let present: Vec<(u16, String)> = ports().map(|id| (id, name_of(id))).collect();
    let found = match device {
        PortChoice::First => present.first(),
        PortChoice::Name(wanted) => present.iter().find(|(_, name)| name == wanted),
    };
    if let Some((id, _)) = found {
        return Ok(*id);
    }
    let asked = match device {
        PortChoice::First => String::new(),
        PortChoice::Name(name) => format!(" named `{name}`"),
    };
    let present = present.into_iter().map(|(_, name)| name).collect();
    Err(DpdkError::missing_port(
        asked,
        present,
        eal.log().to_owned(),
    ))
}

/// The names of all ports, in DPDK's order. EAL runs.
pub(super) fn port_names() -> Vec<String> {
    ports().map(name_of).collect()
}

fn ports() -> impl Iterator<Item = u16> {
    // SAFETY: asks whether a number is a port's; EAL runs.
    (0..MAX_PORTS).filter(|id| unsafe { sys::rte_eth_dev_is_valid_port(*id) } != 0)
}

/// RTE_MAX_ETHPORTS of Debian's build; other builds have fewer.
const MAX_PORTS: u16 = 32;

fn name_of(id: u16) -> String {
    let mut name = [0_u8; sys::RTE_ETH_NAME_MAX_LEN as usize];
    // SAFETY: the buffer has the length that DPDK demands.
    let result = unsafe { sys::rte_eth_dev_get_name_by_port(id, name.as_mut_ptr().cast()) };
    let name = CStr::from_bytes_until_nul(&name)
        .ok()
        .filter(|_| result == 0);
    name.map_or_else(
        || format!("port {id}"),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn mac_of(plan: &PortSetup) -> Result<MacAddr, DpdkError> {
    let mut address = sys::rte_ether_addr::default();
    // SAFETY: the port exists; `address` is a live value that the call fills.
    let result = unsafe { sys::rte_eth_macaddr_get(plan.id, &raw mut address) };
    check(&plan.name, "rte_eth_macaddr_get", result)?;
    Ok(MacAddr(address.addr_bytes))
}

fn set_mac(plan: &PortSetup, mac: MacAddr) -> Result<(), DpdkError> {
    let mut address = sys::rte_ether_addr { addr_bytes: mac.0 };
    // SAFETY: the port exists; `address` is a live value.
    let result = unsafe { sys::rte_eth_dev_default_mac_addr_set(plan.id, &raw mut address) };
    check(&plan.name, "rte_eth_dev_default_mac_addr_set", result)
}

/// The port must carry IP packets of `needed` bytes. Many are told so; some only say what they can.
fn set_mtu(plan: &PortSetup, needed: usize) -> Result<(), DpdkError> {
    let mut mtu = 0;
    // SAFETY: the port exists; `mtu` is a live value that the call fills.
    let result = unsafe { sys::rte_eth_dev_get_mtu(plan.id, &raw mut mtu) };
    check(&plan.name, "rte_eth_dev_get_mtu", result)?;
    if usize::from(mtu) >= needed {
        return Ok(());
    }
    let wanted = u16::try_from(needed).expect("the configuration bounds the MTU");
    // SAFETY: the port exists.
    let result = unsafe { sys::rte_eth_dev_set_mtu(plan.id, wanted) };
    if result == 0 {
        return Ok(());
    }
    Err(DpdkError::MtuTooSmall {
        port: plan.name.clone(),
        mtu: usize::from(mtu),
        needed,
    })
}

fn check(port: &str, call: &'static str, result: i32) -> Result<(), DpdkError> {
    if result >= 0 {
        return Ok(());
    }
    Err(DpdkError::Port {
        port: port.to_owned(),
        call,
        os_error: -result,
    })
}

fn errno() -> i32 {
    // SAFETY: reads a thread-local variable.
    unsafe { sys::trine_errno() }
}

fn text(message: *const c_char) -> Option<String> {
    let message = NonNull::new(message.cast_mut())?;
    // SAFETY: DPDK's messages are string literals.
    let message = unsafe { CStr::from_ptr(message.as_ptr()) };
    Some(message.to_string_lossy().into_owned())
}
