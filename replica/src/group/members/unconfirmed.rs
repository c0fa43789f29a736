//! Admin commands that are done, as far as this leader knows.
//!
//! Another one may lead already, and have undone them. So the answer is given as a read is: once a quorum has confirmed the
//! leadership after the question.

use trine_protocol::message::ReplyToken;

/// Most answers that wait until it is certain that this replica still leads.
const UNCONFIRMED_MAX: usize = 64;

/// The answers that wait, at most [`UNCONFIRMED_MAX`].
#[derive(Default)]
pub(super) struct UnconfirmedAnswers {
    list: Vec<UnconfirmedQuestion>,
}

#[derive(Debug)]
struct UnconfirmedQuestion {
    token: ReplyToken,
    /// Context of the first ReadIndex round that begins after the question.
    round: u64,
    text: String,
}

impl UnconfirmedAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= UNCONFIRMED_MAX
    }

    pub(super) fn push(&mut self, token: ReplyToken, round: u64, text: String) {
        self.list.push(UnconfirmedQuestion { token, round, text });
    }

    /// Takes the answers that the round `context` confirms, in the order of their questions.
    pub(super) fn take_confirmed(&mut self, context: u64) -> Vec<(ReplyToken, String)> {
        let is_confirmed = |waiting: &mut UnconfirmedQuestion| waiting.round <= context;
        let confirmed = self.list.extract_if(.., is_confirmed);
        confirmed
            .map(|waiting| (waiting.token, waiting.text))
            .collect()
    }

    /// Takes all waiting clients: another replica knows the outcome.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = ReplyToken> {
        let all = std::mem::take(&mut self.list);
        all.into_iter().map(|waiting| waiting.token)
    }
}
