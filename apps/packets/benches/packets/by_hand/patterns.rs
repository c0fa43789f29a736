//! Patterns: an access for each byte of a packet, most of them near. And the automata of the `aho-corasick` crate.

use super::{Lookups, SETS, TAG};
use crate::by_hand::N;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use trine_kvstore::interleave::{batch, prefetch};
use trine_packets::config::STATES_NEAR;
use trine_packets::patterns::{Dfa, PatternsTraffic, random_patterns};
use trine_packets::reference::Traffic;
use trine_transport::prng::Prng;

/// Contents of one run, 242 bytes each.
const LOOKUPS: usize = 1 << 14;
/// Bytes of an Ethernet header.
const HEADER: usize = 14;

pub(super) struct Patterns(Dfa);

/// The contents of packets.
pub(super) type Contents = Vec<Vec<Vec<u8>>>;

impl Patterns {
    /// The automaton of the application, and contents made of pieces of patterns.
    pub(super) fn new(patterns: &[Vec<u8>], prng: &mut Prng) -> (Self, Contents) {
        let dfa = Dfa::build(patterns).expect("an automaton");
        let traffic = PatternsTraffic::new(patterns.to_vec());
        let mut content = || {
            let mut frame = Vec::new();
            traffic.plain(&mut frame, prng);
            frame.split_off(HEADER)
        };
        let contents = (0..SETS)
            .map(|_| (0..LOOKUPS).map(|_| content()).collect())
            .collect();
        (Self(dfa), contents)
    }
}

/// Patterns of the application.
pub(super) fn patterns(count: usize, prng: &mut Prng) -> Vec<Vec<u8>> {
    random_patterns(count, prng)
}

/// How many contents an automaton of the crate finds a pattern in, one content at a time.
#[inline(never)]
pub(super) fn crate_finds(automaton: &AhoCorasick, contents: &[Vec<u8>]) -> u64 {
    let finds = |content: &&Vec<u8>| automaton.is_match(content.as_slice());
    contents.iter().filter(finds).count() as u64
}

/// The automaton of the crate, of the kind that it chooses itself (`None`) or of a given one.
pub(super) fn of_the_crate(patterns: &[Vec<u8>], kind: Option<AhoCorasickKind>) -> AhoCorasick {
    let mut builder = AhoCorasick::builder();
    builder.kind(kind).build(patterns).expect("an automaton")
}

impl Lookups<Vec<u8>> for Patterns {
    #[inline(never)]
    fn batched(&self, contents: &[Vec<u8>]) -> u64 {
        let mut sum = 0;
        batch::<N, _>(
            contents.len(),
            |i| self.0.is_match::<TAG>(&contents[i]),
            |_, found| sum += u64::from(found),
        );
        sum
    }

    #[inline(never)]
    fn by_hand(&self, contents: &[Vec<u8>]) -> u64 {
        let mut sum = 0;
        for group in contents.chunks(N) {
            let mut at = [(0, 0_u32); N];
            let mut lanes: [usize; N] = std::array::from_fn(|lane| lane);
            let mut live = group.len();
            while live > 0 {
                let mut kept = 0;
                for index in 0..live {
                    let lane = lanes[index];
                    match self.run(&group[lane], at[lane]) {
                        Step::Ended(found) => sum += u64::from(found),
                        Step::Waits(position, state) => {
                            at[lane] = (position, state);
                            lanes[kept] = lane;
                            kept += 1;
                        }
                    }
                }
                live = kept;
            }
        }
        sum
    }
}

enum Step {
    Ended(bool),
    /// For the transition at this place of the content, from this state.
    Waits(usize, u32),
}

impl Patterns {
    /// Reads a transition that is near, and further ones until one is far.
    #[inline(always)]
    fn run(&self, content: &[u8], (mut position, mut state): (usize, u32)) -> Step {
        while let Some(&byte) = content.get(position) {
            state = *self.0.entry(state, byte);
            if Dfa::ends(state) {
                return Step::Ended(true);
            }
            position += 1;
            if state >= STATES_NEAR && position < content.len() {
                prefetch(self.0.entry(state, content[position]));
                return Step::Waits(position, state);
            }
        }
        Step::Ended(false)
    }
}
