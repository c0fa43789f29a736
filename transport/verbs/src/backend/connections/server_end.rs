//! The server's end of a connection: memory that one client writes and this endpoint polls, and with the path rfp memory
//! that this endpoint writes and that client reads.
//!
//! Memory and queue pair are in a protection domain of their own. So the keys work on no other queue pair: a client that
//! knows another's keys, or guesses them, can neither write nor read there.

use std::ptr::NonNull;
use std::sync::Arc;

use ibverbs_sys as sys;

use super::connected_pair::{CompletionQueue, ConnectedPair, OtherEnd, PairConfig, PairPurpose};
use super::remote_memory::{RemoteMemory, SlotsOf};
use crate::backend::VerbsError;
use crate::backend::device::Device;
use crate::backend::memory::{Access, Registry};
use crate::config::SLOTS;
use crate::one_sided::{ANSWER_BYTES, Area, ConnectionOffer, Grant, SLOT_BYTES, Slots};
use crate::one_sided_path::OneSidedPath;
use crate::route::VerbsRoute;

pub(super) struct ServerEnd {
    // Each of these is gone before what follows it is.
    pair: ConnectedPair,
    requests: RemoteMemory,
    /// Path rfp.
    answers: Option<RemoteMemory>,
    domain: Domain,
}

/// A protection domain.
struct Domain {
    domain: NonNull<sys::ibv_pd>,
    /// Open until the domain is gone.
    _device: Arc<Device>,
}

// SAFETY: libibverbs objects are bound to no thread; the owner's `&mut` orders the calls that need it.
unsafe impl Send for Domain {}

impl Domain {
    fn new(device: &Arc<Device>) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let domain = unsafe { sys::ibv_alloc_pd(device.context()) };
        Ok(Self {
            domain: NonNull::new(domain).ok_or_else(|| VerbsError::last("ibv_alloc_pd"))?,
            _device: Arc::clone(device),
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; its owner has dropped the queue pair and the memory that were made from it.
        unsafe { sys::ibv_dealloc_pd(self.domain.as_ptr()) };
    }
}

impl ServerEnd {
    pub(super) fn new(
        device: &Arc<Device>,
        silent: &CompletionQueue,
        registry: &Registry,
        path: OneSidedPath,
    ) -> Result<Self, VerbsError> {
        let domain = Domain::new(device)?;
        let memory = |slot_bytes: usize, access| {
            RemoteMemory::new(domain.domain, SLOTS * slot_bytes, access, registry)
        };
        let answers = match path {
            OneSidedPath::Herd => None,
            OneSidedPath::Rfp => Some(memory(ANSWER_BYTES, Access::RemoteRead)?),
        };
        let requests = memory(SLOT_BYTES, Access::RemoteWrite)?;
        let shape = PairConfig {
            purpose: PairPurpose::Path(path),
            domain: domain.domain.as_ptr(),
            sends: 1,
            inline_bytes: 0,
        };
        Ok(Self {
            pair: ConnectedPair::new(device, silent, shape)?,
            requests,
            answers,
            domain,
        })
    }

    pub(super) fn grant(&self) -> Grant {
        let answers = self.answers.as_ref();
        Grant {
            queue_pair: self.pair.number(),
            requests: self.requests.area(),
            answers: answers.map_or(Area::default(), RemoteMemory::area),
        }
    }

    pub(super) fn listen(
        &self,
        route: &VerbsRoute,
        wish: &ConnectionOffer,
    ) -> Result<(), VerbsError> {
        self.pair.receive_from(OtherEnd {
            route,
            queue_pair: wish.queue_pair,
            psn: wish.psn,
        })
    }

    /// RESET, and memory as it was at the start under other keys.
    pub(super) fn renew(&mut self, registry: &Registry) -> Result<(), VerbsError> {
        self.pair.reset()?;
        self.requests.renew(self.domain.domain, registry)?;
        let answers = self.answers.as_mut();
        answers.map_or(Ok(()), |answers| {
            answers.renew(self.domain.domain, registry)
        })
    }

    #[inline]
    pub(super) fn requests(&self) -> impl Slots {
        SlotsOf {
            memory: &self.requests,
            slot_bytes: SLOT_BYTES,
        }
    }

    pub(super) fn answers(&self) -> impl Slots {
        SlotsOf {
            memory: self.answers.as_ref().unwrap_or(&self.requests),
            slot_bytes: ANSWER_BYTES,
        }
    }

    #[inline]
    pub(super) fn put_answer(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(answers) = &mut self.answers {
            answers.write(offset, bytes);
        }
    }
}
