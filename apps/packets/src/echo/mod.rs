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
        async move {
            let Some(number) = frame.get(ETHERNET..).and_then(<[u8]>::first_chunk) else {
                return Verdict::Drop(Reason::Short);
            };
            Verdict::Forward((u32::from_be_bytes(*number) % u32::from(self.ports)) as u8)
        }
    }
}
