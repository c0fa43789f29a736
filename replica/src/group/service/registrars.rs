//! Who has registered how many clients with this leader. No address gets all session entries of the group.
//!
//! The count is advice: a new leader begins with nothing, and a registration that a follower would have refused is not
//! counted twice. What decides is the log, where the session that is idle longest gives way.

use std::collections::BTreeMap;

use trine_transport::Holder;
use trine_transport::config::{SHARE_OF_ADDRESS, SHARE_OF_IDENTITY};
use trine_transport::time::{Duration, Instant};

use crate::client_sessions::ClientSessions;

/// Sessions that are over are looked for at most this often. A registration that is younger may still be on its way.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2_000);

/// A holder that has its share may register one more client in so long. Its idle clients may never come back, so the
/// others must not wait for them.
const BEYOND_SHARE_EVERY: Duration = Duration::from_micros(62_500);

/// The registrations of each holder that has a share of its own: the numbers that its clients drew, and when.
pub(super) struct Registrars {
    by_holder: BTreeMap<Holder, BTreeMap<u64, Instant>>,
    /// When a holder with its share last registered one more.
    beyond_at: BTreeMap<Holder, Instant>,
    /// The total over all holders, with those that are over and were not looked for.
    total: usize,
    looked_at: Instant,
}

impl Registrars {
    pub(super) const fn new() -> Self {
        Self {
            by_holder: BTreeMap::new(),
            beyond_at: BTreeMap::new(),
            total: 0,
            looked_at: Instant::ZERO,
        }
    }

    /// Whether `holder` may register a client that drew `number`. It is counted then. One that is asked for again always
    /// may.
    pub(super) fn may_register(
        &mut self,
        now: Instant,
        holder: Holder,
        number: u64,
        sessions: &ClientSessions,
    ) -> bool {
        let count_max = sessions.limits().count_max as usize;
        let part = match holder {
            Holder::Privileged | Holder::Shared => return true,
            Holder::Identity(_) => SHARE_OF_IDENTITY,
            Holder::Address(_) => SHARE_OF_ADDRESS,
        };
        let share = (count_max / part).max(1);
        let known = self.by_holder.get(&holder);
        if known.is_some_and(|numbers| numbers.contains_key(&number)) {
            return true;
        }
        let is_too_much = |this: &Self| {
            let in_use = sessions.open_count() + sessions.closed_count();
            // Registrations on their way have no session yet.
            let is_nearly_full = this.total.max(in_use as usize) >= count_max / 4 * 3;
            let held = this.by_holder.get(&holder).map_or(0, BTreeMap::len);
            is_nearly_full && held >= share
        };
        let has_too_many = is_too_much(self);
        if (has_too_many || self.total > 2 * count_max)
            && now.saturating_since(self.looked_at) >= LOOK_AGAIN_AFTER
        {
            self.forget_ended(now, sessions);
        }
        if has_too_many && is_too_much(self) {
            let last = *self.beyond_at.entry(holder).or_insert(now);
            if now.saturating_since(last) < BEYOND_SHARE_EVERY {
                return false;
            }
            self.beyond_at.insert(holder, now);
        }
        self.by_holder
            .entry(holder)
            .or_default()
            .insert(number, now);
        self.total += 1;
        true
    }

    fn forget_ended(&mut self, now: Instant, sessions: &ClientSessions) {
        (self.looked_at, self.total) = (now, 0);
        self.beyond_at
            .retain(|holder, _| self.by_holder.contains_key(holder));
        self.by_holder.retain(|_, numbers| {
            numbers.retain(|number, since| {
                sessions.is_open(*number) || now.saturating_since(*since) < LOOK_AGAIN_AFTER
            });
            self.total += numbers.len();
            !numbers.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SessionLimits;
    use trine_kvstore::Position;

    const STRANGER: Holder = Holder::Address(1);

    struct World {
        sessions: ClientSessions,
        registrars: Registrars,
        next: u64,
    }

    impl World {
        /// With 64 entries.
        fn new() -> Self {
            let limits = SessionLimits {
                count_max: 64,
                ..SessionLimits::default()
            };
            Self {
                sessions: ClientSessions::new(limits),
                registrars: Registrars::new(),
                next: 0,
            }
        }

        fn asks(&mut self, at_second: u64, holder: Holder) -> bool {
            self.next += 1;
            let number = self.next;
            let now = Instant::ZERO + Duration::from_secs(at_second);
            let World {
                sessions,
                registrars,
                ..
            } = self;
            let may = registrars.may_register(now, holder, number, sessions);
            if may {
                sessions.register(Position::new(number, 0), number, 0);
                assert!(
                    registrars.may_register(now, holder, number, sessions),
                    "again"
                );
            }
            may
        }
    }

    #[test]
    fn one_address_leaves_room_for_the_clients_of_others() {
        let mut world = World::new();
        let taken = (0..100).take_while(|_| world.asks(1, STRANGER)).count();
        assert_eq!(taken, 48, "three quarters");
        for _ in 0..4 {
            assert!(world.asks(1, Holder::Address(2)));
        }
        assert!(!world.asks(1, Holder::Address(2)), "its sixteenth");
        for _ in 0..4 {
            assert!(world.asks(1, Holder::Identity(7)));
        }
        // Nothing tells these apart.
        assert!(world.asks(1, Holder::Shared));
        // Its idle clients never come back, and it still gets ahead.
        assert!(world.asks(60, STRANGER), "one more");
        assert!(!world.asks(60, STRANGER), "and no other soon");
    }

    #[test]
    fn registrations_on_their_way_count() {
        let mut world = World::new();
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut ask = |number| {
            let World {
                sessions,
                registrars,
                ..
            } = &mut world;
            registrars.may_register(now, STRANGER, number, sessions)
        };
        assert_eq!((1..100).take_while(|number| ask(*number)).count(), 48);
    }

    #[test]
    fn sessions_that_are_over_count_no_more() {
        let mut world = World::new();
        while world.asks(10, STRANGER) {}
        for number in 1..=45 {
            world.sessions.close(Position::new(number, 0).as_u64());
        }
        assert!(world.asks(11, STRANGER), "one more");
        assert!(!world.asks(11, STRANGER), "it was looked at just now");
        assert!(world.asks(13, STRANGER));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut world = World::new();
        for second in 0..10_000 {
            world.asks(second, Holder::Address(second % 50));
            world.sessions.close(Position::new(world.next, 0).as_u64());
        }
        let held: usize = world.registrars.by_holder.values().map(BTreeMap::len).sum();
        assert_eq!(held, world.registrars.total);
        assert!(held <= 129, "{held}");
    }
}
