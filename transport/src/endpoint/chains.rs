//! Which packets of a batch are sealed together: those of one session, in their order, wherever they are in the batch.

/// Sessions of a batch that are told apart at once. With more of them, packets that could share a tag may not do so.
const PLACES: usize = 64;

/// No item.
const NONE: u16 = u16::MAX;

/// The packets of a batch, linked by session. Reused from batch to batch.
pub(super) struct Chains {
    links: Vec<ChainLink>,
    /// The latest packet of a mark; by the mark's low bits.
    latest: [(u32, u16); PLACES],
}

#[derive(Copy, Clone)]
struct ChainLink {
    /// The session's mark; absent if the packet is sent as it is.
    mark: Option<u32>,
    is_first: bool,
    next: u16,
}

/// How a packet is sent.
pub(super) enum SendPath {
    /// It is sent as it is.
    Unsealed,
    /// It begins a chain of the session with this mark.
    First(u32),
    /// It is in a chain that has begun before.
    Later,
}

impl Chains {
    pub(super) fn new() -> Self {
        Self {
            links: Vec::new(),
            latest: [(0, NONE); PLACES],
        }
    }

    /// Links the packets of a batch, which have these marks.
    pub(super) fn link(&mut self, marks: impl ExactSizeIterator<Item = Option<u32>>) {
        self.links.clear();
        if marks.len() > 1 {
            self.latest = [(0, NONE); PLACES];
        }
        let is_one = marks.len() == 1;
        for (index, mark) in marks.enumerate() {
            let is_later = !is_one && mark.is_some_and(|mark| self.follow(mark, index));
            self.links.push(ChainLink {
                mark,
                is_first: !is_later,
                next: NONE,
            });
        }
    }

    /// Puts a packet behind the latest one of its session. False if there is none.
    fn follow(&mut self, mark: u32, index: usize) -> bool {
        // A batch has fewer packets than an index has values.
        let index = index as u16;
        let place = &mut self.latest[mark as usize % PLACES];
        let before = std::mem::replace(place, (mark, index));
        if before.0 != mark || before.1 == NONE {
            return false;
        }
        self.links[usize::from(before.1)].next = index;
        true
    }

    pub(super) fn part(&self, index: usize) -> SendPath {
        match self.links[index] {
            ChainLink { mark: None, .. } => SendPath::Unsealed,
            ChainLink {
                mark: Some(mark),
                is_first: true,
                ..
            } => SendPath::First(mark),
            ChainLink { .. } => SendPath::Later,
        }
    }

    /// The packet behind this one in its chain.
    pub(super) fn after(&self, index: usize) -> Option<usize> {
        let next = self.links[index].next;
        (next != NONE).then_some(usize::from(next))
    }

    /// This packet and those behind it in its chain.
    pub(super) fn from(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(index), |index| self.after(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(marks: &[Option<u32>]) -> Vec<Vec<usize>> {
        let mut chains = Chains::new();
        chains.link([Some(3), Some(3)].into_iter());
        chains.link(marks.iter().copied());
        let firsts =
            (0..marks.len()).filter(|index| matches!(chains.part(*index), SendPath::First(_)));
        firsts.map(|index| chains.from(index).collect()).collect()
    }

    #[test]
    fn packets_of_a_session_are_linked_in_their_order() {
        assert_eq!(chains(&[Some(3)]), [[0]]);
        assert_eq!(chains(&[None, None]), [[0; 0]; 0]);
        let mixed = [Some(3), Some(4), None, Some(3), Some(4), Some(3), Some(5)];
        assert_eq!(chains(&mixed), [vec![0, 3, 5], vec![1, 4], vec![6]]);
    }

    /// Two sessions at one place get chains that are shorter than they could be, and no packet is lost.
    #[test]
    fn sessions_at_one_place_take_turns() {
        let other = 3 + PLACES as u32;
        let marks = [3, 3, other, 3, other, other].map(Some);
        let all = chains(&marks);
        assert_eq!(all, [vec![0, 1], vec![2], vec![3], vec![4, 5]]);
    }
}
