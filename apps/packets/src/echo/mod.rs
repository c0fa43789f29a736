//! Echo: a packet leaves by the port that a number in its payload names. It reads no table: it shows what the rest costs.

mod reference;

pub use reference::{EchoReference, EchoTraffic};

use crate::application::Application;
use crate::frame::ETHERNET;
use crate::verdict::{Reason, Verdict};
use std::future::Future;

/// The application.
pub struct Echo {
    /// Output ports.
    pub ports: u8,
}

impl Application for Echo {
    #[inline(always)]
    fn handle<'a, const N: usize>(
        &'a self,
        frame: &'a mut [u8],
    ) -> impl Future<Output = Verdict> + 'a {
        async move { by_number(frame, ETHERNET, self.ports) }
    }
}

/// The port, one of so many, that the number at this place of a frame names.
#[inline(always)]
#[must_use]
pub fn by_number(frame: &[u8], at: usize, ports: u8) -> Verdict {
    let Some(number) = frame.get(at..).and_then(<[u8]>::first_chunk) else {
        return Verdict::Drop(Reason::Short);
    };
    Verdict::Forward((u32::from_be_bytes(*number) % u32::from(ports)) as u8)
}
