//! The names of the paths on which requests are written into a server's memory.

/// How the answers to requests that were written travel.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum OneSidedPath {
    /// As datagrams.
    #[default]
    Herd,
    /// The client fetches them.
    Rfp,
}

impl OneSidedPath {
    /// Its name, as users type it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Herd => "herd",
            Self::Rfp => "rfp",
        }
    }
}
