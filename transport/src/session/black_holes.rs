//! Routes on which full packets have vanished although they were promised to arrive, and for how long sessions there have
//! smaller ones.

use crate::backend::Route;
use crate::config::{BLACK_HOLE_SPAN, BLACK_HOLE_SPAN_MAX, BLACK_HOLES_MAX};
use crate::time::{Duration, Instant};

/// At most [`BLACK_HOLES_MAX`] routes.
pub(super) struct BlackHoles<R> {
    list: Vec<BlackHole<R>>,
}

struct BlackHole<R> {
    route: R,
    span: Duration,
    until: Instant,
}

impl<R> Default for BlackHoles<R> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<R: Route> BlackHoles<R> {
    /// Full packets vanish on this route.
    pub(super) fn note(&mut self, now: Instant, route: R) {
        if let Some(known) = self.list.iter_mut().find(|hole| hole.route == route) {
            let is_over = known.until + BLACK_HOLE_SPAN_MAX <= now;
            known.span = match is_over {
                true => BLACK_HOLE_SPAN,
                false => (known.span * 2).min(BLACK_HOLE_SPAN_MAX),
            };
            known.until = now + known.span;
            return;
        }
        if self.list.len() == BLACK_HOLES_MAX {
            let ends = self
                .list
                .iter()
                .enumerate()
                .min_by_key(|(_, hole)| hole.until);
            let first = ends.map(|(index, _)| index).expect("the list is full");
            self.list.swap_remove(first);
        }
        self.list.push(BlackHole {
            route,
            span: BLACK_HOLE_SPAN,
            until: now + BLACK_HOLE_SPAN,
        });
    }

    /// Whether sessions on this route have smaller packets now.
    pub(super) fn is_known(&self, now: Instant, route: &R) -> bool {
        let mut of_route = self.list.iter().filter(|hole| hole.route == *route);
        of_route.any(|hole| now < hole.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    fn at(seconds: u64) -> Instant {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_span_doubles_up_to_its_limit_and_begins_anew_after_a_long_time_without() {
        let mut holes = BlackHoles::default();
        let mut now = START;
        for seconds in [60, 120, 240, 480, 600, 600] {
            holes.note(now, 1);
            let span = Duration::from_secs(seconds);
            assert!(holes.is_known(now + span - Duration::from_nanos(1), &1));
            assert!(!holes.is_known(now + span, &1));
            now += span;
        }
        now += BLACK_HOLE_SPAN_MAX;
        holes.note(now, 1);
        assert!(!holes.is_known(now + BLACK_HOLE_SPAN, &1));
    }

    #[test]
    fn routes_do_not_count_for_each_other_and_the_list_has_a_limit() {
        let mut holes = BlackHoles::default();
        for route in 0..=BLACK_HOLES_MAX {
            holes.note(at(route as u64), route);
        }
        assert_eq!(holes.list.len(), BLACK_HOLES_MAX);
        assert!(!holes.is_known(at(1), &0), "the oldest went");
        assert!(holes.is_known(at(1), &1));
        assert!(!holes.is_known(at(1), &(BLACK_HOLES_MAX + 1)));
    }
}
