//! A counter in a server's memory, which clients add to by RC FETCH_ADD: the sequencer of atomic operations.
//!
//! Those of `trine sequencer` are measured against it. It is no replacement for them: a client adds what it likes, and
//! nobody else can tell. Server and clients are in one process, which connects them.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::connected_pair::{CompletionQueue, ConnectedPair, OtherEnd, PairConfig, PairPurpose};
use super::remote_memory::RemoteMemory;
use crate::backend::device::Device;
use crate::backend::error::ConnectionFault;
use crate::backend::memory::{Access, Registry};
use crate::backend::{VerbsConfig, VerbsError};
use crate::config::SLOTS;
use crate::one_sided::Area;
use crate::route::{VerbsAddress, VerbsRoute};

/// The most numbers that a client takes at a time. With the end of numbers below [`END_MAX`] a counter cannot wrap.
const COUNT_MAX: u32 = 1 << 16;
/// The number behind the last of any counter.
const END_MAX: u64 = 1 << 62;
/// FETCH_ADDs that a client may have under way: as many as READs.
const UNDER_WAY_MAX: usize = SLOTS;
/// Each begins at RESET.
const FIRST_PSN: u32 = 0;
const WORD_BYTES: usize = size_of::<u64>();

/// A counter.
pub struct CounterServer {
    // Each of these is gone before what follows it is.
    pairs: Vec<ConnectedPair>,
    /// Its first word is the counter.
    memory: RemoteMemory,
    /// Nothing completes here.
    silent: CompletionQueue,
    numbers: Range<u64>,
    device: Arc<Device>,
}

/// A client of a counter.
pub struct CounterClient {
    // Each of these is gone before what follows it is.
    pair: ConnectedPair,
    /// Where the numbers come, each FETCH_ADD has its word.
    buffer: RemoteMemory,
    completions: CompletionQueue,
    counter: Area,
    /// Those of the counter.
    numbers: Range<u64>,
    /// FETCH_ADDs posted, and of these, completed.
    posted: u64,
    completed: u64,
    /// What each that is under way adds, by its word.
    added: [u64; UNDER_WAY_MAX],
    device: Arc<Device>,
}

impl CounterServer {
    /// A counter of these numbers. The first is there before any client can know the key.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] with cause and hint.
    ///
    /// # Panics
    ///
    /// If there are numbers of 2^62 and more.
    pub fn open(config: &VerbsConfig, numbers: Range<u64>) -> Result<Self, VerbsError> {
        assert!(numbers.end <= END_MAX, "a counter ends before it wraps");
        let device = open_device(config)?;
        let silent = CompletionQueue::new(&device, 1)?;
        let mut memory = memory_of(&device, WORD_BYTES, Access::RemoteAtomic)?;
        memory.write(0, &numbers.start.to_ne_bytes());
        Ok(Self {
            pairs: Vec::new(),
            memory,
            silent,
            numbers,
            device,
        })
    }

    /// A client of this counter, connected with it.
    ///
    /// # Errors
    ///
    /// [`VerbsError`] with cause and hint.
    pub fn connect(&mut self, config: &VerbsConfig) -> Result<CounterClient, VerbsError> {
        let pair = new_pair(&self.device, &self.silent, 1)?;
        let client = CounterClient::new(config, (self.memory.area(), self.numbers.clone()))?;
        let here = route_of(&self.device, pair.number());
        let there = route_of(&client.device, client.pair.number());
        pair.receive_from(other(&there))?;
        client.pair.receive_from(other(&here))?;
        client.pair.send_from(FIRST_PSN)?;
        self.pairs.push(pair);
        Ok(client)
    }

    /// The number that comes next.
    #[must_use]
    pub fn value(&self) -> u64 {
        u64::from_ne_bytes(self.memory.read(0))
    }
}

impl CounterClient {
    fn new(
        config: &VerbsConfig,
        (counter, numbers): (Area, Range<u64>),
    ) -> Result<Self, VerbsError> {
        let device = open_device(config)?;
        let completions = CompletionQueue::new(&device, 2 * UNDER_WAY_MAX)?;
        Ok(Self {
            pair: new_pair(&device, &completions, UNDER_WAY_MAX as u32)?,
            buffer: memory_of(&device, UNDER_WAY_MAX * WORD_BYTES, Access::Local)?,
            completions,
            counter,
            numbers,
            posted: 0,
            completed: 0,
            added: [0; UNDER_WAY_MAX],
            device,
        })
    }

    /// Begins to take `count` numbers that follow each other. False if too many requests are under way, or the device takes
    /// no more of them.
    ///
    /// # Panics
    ///
    /// If `count` is not 1 to 65,536.
    #[inline]
    pub fn ask(&mut self, count: u32) -> bool {
        assert!(
            (1..=COUNT_MAX).contains(&count),
            "a client takes 1 to {COUNT_MAX} numbers"
        );
        let count = u64::from(count);
        if self.posted - self.completed == UNDER_WAY_MAX as u64 {
            return false;
        }
        let word = self.posted as usize % UNDER_WAY_MAX;
        let mut element = sys::ibv_sge {
            addr: self.buffer.address(word * WORD_BYTES),
            length: WORD_BYTES as u32,
            lkey: self.buffer.local_key(),
        };
        let mut request = sys::ibv_send_wr {
            wr_id: self.posted,
            sg_list: &raw mut element,
            num_sge: 1,
            opcode: sys::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
            send_flags: sys::ibv_send_flags::IBV_SEND_SIGNALED.0,
            ..Default::default()
        };
        request.wr.atomic = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: self.counter.address,
            compare_add: count,
            swap: 0,
            rkey: self.counter.rkey,
        };
        // SAFETY: the element is registered memory, as old as the queue pair, and no reference into it exists. It is read by
        // volatile loads once the request has completed.
        if !unsafe { self.pair.post(&mut request) } {
            return false;
        }
        self.added[word] = count;
        self.posted += 1;
        true
    }

    /// The first of the numbers of the oldest request, if it has completed. Requests complete in their order.
    ///
    /// # Errors
    ///
    /// The queue pair has failed, or the counter has no more numbers.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<u64>, VerbsError> {
        let mut taken = [sys::ibv_wc::default()];
        if self.completions.poll(&mut taken) == 0 {
            return Ok(None);
        }
        if let Some((status, _)) = taken[0].error() {
            return Err(VerbsError::CounterFailed {
                device: self.device.name.clone(),
                fault: ConnectionFault::of_status(status),
            });
        }
        let word = self.completed as usize % UNDER_WAY_MAX;
        self.completed += 1;
        let first = u64::from_ne_bytes(self.buffer.read(word));
        let end = first.saturating_add(self.added[word]);
        match self.numbers.start <= first && end <= self.numbers.end {
            true => Ok(Some(first)),
            false => Err(VerbsError::CounterUsedUp {
                end: self.numbers.end,
            }),
        }
    }

    /// Uses this key from now on, as a client that guesses one would; for tests.
    pub fn spoil_key(&mut self, key: u32) {
        self.counter.rkey ^= key;
    }
}

/// A device that has atomic operations.
fn open_device(config: &VerbsConfig) -> Result<Arc<Device>, VerbsError> {
    let device = Device::open(config)?;
    let mut attributes = sys::ibv_device_attr::default();
    // SAFETY: the context is open, and the attributes outlive the call.
    let result = unsafe { sys::ibv_query_device(device.context(), &raw mut attributes) };
    VerbsError::check(result, "ibv_query_device")?;
    match attributes.atomic_cap {
        sys::IBV_ATOMIC_NONE => Err(VerbsError::NoCounters {
            device: device.name.clone(),
            os_error: 0,
        }),
        _ => Ok(Arc::new(device)),
    }
}

fn new_pair(
    device: &Arc<Device>,
    completions: &CompletionQueue,
    sends: u32,
) -> Result<ConnectedPair, VerbsError> {
    let shape = PairConfig {
        purpose: PairPurpose::Counter,
        domain: device.domain(),
        sends,
        inline_bytes: 0,
    };
    ConnectedPair::new(device, completions, shape)
}

fn memory_of(
    device: &Arc<Device>,
    bytes: usize,
    access: Access,
) -> Result<RemoteMemory, VerbsError> {
    let domain = NonNull::new(device.domain()).expect("an open device has a domain");
    RemoteMemory::new(domain, bytes, access, &Registry::new(false))
}

fn route_of(device: &Device, queue_pair: u32) -> VerbsRoute {
    VerbsAddress::of_port(&device.port, &[queue_pair], 0).route(0, 1)
}

fn other(route: &VerbsRoute) -> OtherEnd<'_> {
    OtherEnd {
        route,
        queue_pair: route.queue_pair,
        psn: FIRST_PSN,
    }
}
