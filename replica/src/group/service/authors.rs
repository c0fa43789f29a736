//! The authors of the administrative commands that this leader has accepted. Their entries say it of users alone.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::audit::{Asked, By};
use crate::config::AUDITED_COMMANDS_MAX;

/// The commands that were not applied yet; the oldest gives way.
#[derive(Debug, Default)]
pub(super) struct Authors(VecDeque<(Asked, By)>);

impl Authors {
    pub(super) fn note(&mut self, asked: Asked, by: By) {
        self.0.retain(|(known, _)| *known != asked);
        if self.0.len() >= AUDITED_COMMANDS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((asked, by));
    }

    /// The command that was noted last came from this address.
    pub(super) fn came_from(&mut self, address: impl FnOnce() -> Option<SocketAddr>) {
        if let Some((_, by)) = self.0.back_mut() {
            by.came_from(address);
        }
    }

    pub(super) fn take(&mut self, asked: Asked) -> Option<By> {
        let index = self.0.iter().position(|(known, _)| *known == asked)?;
        self.0.remove(index).map(|(_, by)| by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_author_is_known_by_the_command_until_it_is_asked_for() {
        let mut authors = Authors::default();
        let asked = |sequence| Asked {
            client: 7,
            sequence,
        };
        let stranger = By::Stranger { from: None };
        for sequence in 0..=AUDITED_COMMANDS_MAX as u64 {
            authors.note(asked(sequence), stranger);
        }
        authors.note(asked(5), By::Holder);
        let address = "10.0.0.1:7".parse().expect("an address");
        authors.came_from(|| Some(address));
        assert_eq!(authors.take(asked(0)), None, "it gave way");
        assert_eq!(authors.take(asked(5)), Some(By::Holder));
        assert_eq!(authors.take(asked(5)), None);
        authors.note(asked(6), stranger);
        authors.came_from(|| Some(address));
        authors.came_from(|| panic!("it is known"));
        let from = Some(address);
        assert_eq!(authors.take(asked(6)), Some(By::Stranger { from }));
        assert_eq!(authors.take(asked(7)), Some(stranger));
    }
}
