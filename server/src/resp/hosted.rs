//! The application of the thread's event loop. It passes commands from connections to the group's client, and answers
//! back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trine_client::{
    Answer, ClientId, Clients, EncodedCommand, Error, Finished, IN_FLIGHT_MAX, Mode, NamedSession,
    Obstacle, SubmitError,
};
use trine_kvstore::Position;
use trine_protocol::message::ForUser;
use trine_resp::{Call, Failure, Numbered, OnBehalf, SESSION_WINDOW, SessionRefusal, Token};
use trine_transport::backend::Route;
use trine_transport::buf::Pool;
use trine_transport::time::{Duration, Instant};
use trine_transport::{App, Completion, Cx, Event, Reply, Request};

use super::feed::Feed;
use super::info::SharedStats;
use super::news::News;
use super::openings::Openings;
use super::server::{Server, Task};

/// The poll interval of sockets where they cannot wake the backend.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// No log entry is larger, so no command can be.
const COMMAND_BYTES_MAX: usize = 4 << 20;

const _: () = assert!(
    SESSION_WINDOW == IN_FLIGHT_MAX as u64,
    "clients are told how many sequences the group awaits"
);

pub(super) struct Hosted<R: Route> {
    clients: Clients<R>,
    feed: Feed<R>,
    sessions: Sessions,
    pool: Pool,
    server: Server,
    shared: SharedStats,
    news: News,
    stopping: Arc<AtomicBool>,
    poll_often: bool,
    now: Instant,
}

/// Logical clients that all connections share. Each has a limit of commands in flight.
#[derive(Default)]
struct Sessions {
    open: Vec<ClientId>,
    turns: Turns,
    /// Those that clients keep.
    openings: Openings,
}

impl Sessions {
    /// Returns a client with room.
    fn pick<R: Route>(&mut self, clients: &mut Clients<R>) -> Option<ClientId> {
        let has_room = |at: usize| clients.in_flight_of(self.open[at]) < IN_FLIGHT_MAX;
        if let Some(at) = self.turns.take(self.open.len(), has_room) {
            return Some(self.open[at]);
        }
        let client = clients.open()?;
        self.open.push(client);
        Some(client)
    }
}

/// Sessions take turns. The replicas keep the last replies of a session until its next command acknowledges them. So an
/// unused session would keep up to 64 of them.
#[derive(Default)]
struct Turns {
    /// The next session in the rotation.
    next: usize,
}

impl Turns {
    /// Returns the first of `count` sessions with room, beginning with the next in the rotation.
    fn take(&mut self, count: usize, has_room: impl Fn(usize) -> bool) -> Option<usize> {
        let mut in_turn = (0..count).map(|step| (self.next + step) % count);
        let at = in_turn.find(|&at| has_room(at))?;
        self.next = at + 1;
        Some(at)
    }
}

impl<R: Route> Hosted<R> {
    pub(super) fn new(
        clients: Clients<R>,
        feed: Feed<R>,
        pool: Pool,
        server: Server,
        shared: SharedStats,
        news: News,
        stopping: Arc<AtomicBool>,
    ) -> Self {
        Self {
            clients,
            feed,
            sessions: Sessions::default(),
            pool,
            server,
            shared,
            news,
            stopping,
            poll_often: false,
            now: Instant::ZERO,
        }
    }

    /// Switches to polling, for a backend that readable sockets cannot wake.
    pub(super) fn poll_often(&mut self) {
        self.poll_often = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The front serves the group of its own replica and no other. With peers of several groups in its list it would
    /// otherwise belong to the one that answers first.
    fn follow_the_replica(&mut self) {
        let cluster = self.shared.cluster();
        if !cluster.is_none() && self.clients.pin(cluster) {
            // The sessions of a cluster before are not known to this one.
            for client in std::mem::take(&mut self.sessions).open {
                self.clients.close(client);
            }
        }
    }

    /// The replica's keys are those of its calls for Redis clients, too. Sessions that they would not allow end, and what was
    /// under way there is asked for again.
    fn hear_news(&mut self, cx: &mut Cx<'_, R>) {
        let Some(unread) = self.news.take() else {
            return;
        };
        if let Some(keys) = unread.keys {
            cx.change_keys(keys);
        }
        if unread.hung_up {
            self.server.read_passwords_again();
        }
    }

    fn give_answers(&mut self) {
        while let Some(Finished { tag, result, .. }) = self.clients.poll_finished() {
            let response = match &result {
                Ok(answer) => answer
                    .response()
                    .map_err(|error| Failure::Unknown(error.to_string())),
                Err(error) => Err(failure_of(error)),
            };
            let seen = result.as_ref().map_or(Position::ZERO, Answer::position);
            self.server.on_answer(tag, seen, response);
        }
    }

    fn work(&mut self) {
        let Self {
            clients,
            sessions,
            pool,
            server,
            now,
            ..
        } = self;
        let now = *now;
        server.work(now, &mut |tag, task| match task {
            Task::Call(call) => begin(clients, sessions, pool, now, tag, call),
            Task::Session { number, for_user } => {
                open_session(clients, sessions, now, tag, number, for_user)
            }
        });
    }
}

/// The obstacles of a group that has no leader, or none with a majority. Which of them a command met last depends on the
/// moment, and a Redis client can do the same about each.
const NO_LEADER: &str = "no leader with a majority of the group has answered in time";

fn why(obstacle: Obstacle) -> String {
    match obstacle {
        Obstacle::NoConnection
        | Obstacle::NoAnswer
        | Obstacle::NoLeader
        | Obstacle::NoQuorum
        | Obstacle::NotAttached => NO_LEADER.to_owned(),
        Obstacle::SessionsFull | Obstacle::SessionShareTaken => format!(
            "{obstacle}: acknowledge answers of TRINE.DO by its lowest sequence, and end sessions with TRINE.SESSION CLOSE; \
             otherwise idle ones give way after a second"
        ),
        other => other.to_string(),
    }
}

fn failure_of(error: &Error) -> Failure {
    let why = why(error.obstacle());
    match error {
        Error::Refused {
            obstacle: Obstacle::TooLarge,
        } => Failure::TooLarge,
        Error::Refused {
            obstacle: Obstacle::NamedSession(refusal),
        }
        | Error::OutcomeUnknown {
            obstacle: Obstacle::NamedSession(refusal),
            ..
        } => Failure::Session(refusal_of(*refusal)),
        Error::OutcomeUnknown { .. } => Failure::Unknown(why),
        Error::NotReachable { .. } | Error::Refused { .. } => Failure::NotApplied(why),
    }
}

/// The session speaks of this attempt of the front. An earlier attempt may have been applied if the answer is not kept or
/// the session is gone, so the texts of these say nothing about that.
const fn refusal_of(refusal: trine_client::SessionRefusal) -> SessionRefusal {
    match refusal {
        trine_client::SessionRefusal::Stale => SessionRefusal::Stale,
        trine_client::SessionRefusal::Window => SessionRefusal::Window,
        trine_client::SessionRefusal::SequenceUsed => SessionRefusal::SequenceUsed,
        trine_client::SessionRefusal::Lost => SessionRefusal::Lost,
    }
}

fn not_begun(error: SubmitError) -> Failure {
    match error {
        SubmitError::NoBuffer { bytes } if bytes > COMMAND_BYTES_MAX => Failure::TooLarge,
        SubmitError::NoBuffer { .. } => Failure::NotApplied(why(Obstacle::NoBuffer)),
        error => Failure::NotApplied(error.to_string()),
    }
}

fn user_of(user: OnBehalf) -> ForUser {
    ForUser {
        number: user.number,
        generation: user.generation,
    }
}

/// Begins to open a session that a client keeps. All of those that are under way count as commands of this front's own
/// sessions, whose number is bounded.
fn open_session<R: Route>(
    clients: &mut Clients<R>,
    sessions: &mut Sessions,
    now: Instant,
    tag: u64,
    number: u64,
    for_user: Option<OnBehalf>,
) -> Result<(), Failure> {
    let client = sessions.pick(clients);
    let client = client.ok_or_else(|| not_begun(SubmitError::TooMany))?;
    if !sessions.openings.take(now) {
        return Err(Failure::NotApplied(Openings::refusal()));
    }
    clients
        .open_session(now, client, number, for_user.map(user_of), tag)
        .map_err(not_begun)
}

/// Begins a connection's call.
fn begin<R: Route>(
    clients: &mut Clients<R>,
    sessions: &mut Sessions,
    pool: &Pool,
    now: Instant,
    tag: u64,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let mode = match call.numbered {
        Some(numbered) if numbered.is_closing() => Mode::WriteAndClose,
        _ if call.read_only => Mode::Read,
        _ => Mode::Write,
    };
    let for_user = call.for_user.map(user_of);
    let command = match call.numbered.filter(|numbered| !numbered.is_closing()) {
        None => EncodedCommand::for_user(pool, mode, for_user, call.command),
        Some(Numbered { checksum, .. }) => {
            EncodedCommand::for_sender(pool, for_user, checksum, call.command)
        }
    };
    let command = command.map_err(not_begun)?.expecting(call.response_bytes);
    let client = sessions
        .pick(clients)
        .ok_or_else(|| not_begun(SubmitError::TooMany))?;
    let begun = match call.numbered {
        None => clients.submit_encoded(now, client, command, None, tag),
        Some(numbered) => clients.submit_numbered(now, client, command, place_of(numbered), tag),
    };
    begun.map_err(not_begun)
}

fn place_of(numbered: Numbered) -> trine_client::Numbered {
    let Token { client, number } = numbered.token;
    trine_client::Numbered {
        session: NamedSession { client, number },
        sequence: numbered.sequence,
        lowest: numbered.lowest,
    }
}

impl<R: Route> App<R> for Hosted<R> {
    fn on_request(&mut self, cx: &mut Cx<'_, R>, request: Request<'_>) -> Reply {
        self.clients.on_request(cx, request)
    }

    fn on_completion(&mut self, cx: &mut Cx<'_, R>, tag: u64, completion: Completion) {
        match Feed::<R>::owns(tag) {
            true => self
                .feed
                .on_completion(cx, &mut self.server, tag, &completion),
            false => self.clients.on_completion(cx, tag, completion),
        }
    }

    fn on_event(&mut self, cx: &mut Cx<'_, R>, event: Event<R>) {
        self.feed.on_event(cx, &event);
        self.clients.on_event(cx, event);
    }

    fn on_turn(&mut self, cx: &mut Cx<'_, R>) {
        self.now = cx.now();
        self.follow_the_replica();
        self.hear_news(cx);
        // Answers go first, because their connections then continue with later commands.
        self.give_answers();
        self.server.poll(self.now);
        self.work();
        let (cluster, has_leader) = (self.shared.cluster(), self.shared.has_leader());
        self.feed.on_turn(cx, &mut self.server, cluster, has_leader);
        self.clients.on_turn(cx);
        self.give_answers();
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.server.has_work() || self.is_stopping() {
            return Some(Instant::ZERO);
        }
        // Not what the replica's thread has published: it may have done so after this turn looked.
        let waits = self.clients.is_awaiting_pin() && self.clients.in_flight() > 0;
        let often = (self.poll_often || waits).then(|| self.now + POLL_INTERVAL);
        let due = [
            often,
            self.server.next_timeout(self.now),
            self.clients.next_timeout(),
            self.feed.next_timeout(self.server.needs_stream()),
        ];
        due.into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a majority GET, SET and INCR named different reasons, one of which was to start a group with --bootstrap:
    /// that would have made a second group beside the one that was there.
    #[test]
    fn one_cause_has_one_text_and_none_advises_to_begin_a_group() {
        let waited = Duration::from_secs(4);
        let text = |obstacle| match failure_of(&Error::NotReachable { obstacle, waited }) {
            Failure::NotApplied(text) => text,
            other => panic!("{other:?}"),
        };
        for obstacle in [
            Obstacle::NoConnection,
            Obstacle::NoAnswer,
            Obstacle::NoLeader,
            Obstacle::NoQuorum,
            Obstacle::NotAttached,
        ] {
            assert_eq!(text(obstacle), NO_LEADER);
            let unknown = failure_of(&Error::OutcomeUnknown { obstacle, waited });
            assert_eq!(unknown, Failure::Unknown(NO_LEADER.to_owned()));
        }
        assert_ne!(text(Obstacle::Busy), NO_LEADER);
    }

    #[test]
    fn clients_are_told_the_groups_time_to_live() {
        let limits = trine_replica::config::SessionLimits::default();
        assert_eq!(limits.ttl_ns, trine_resp::SESSION_TTL_MS as u64 * 1_000_000);
    }

    /// A session that is gone says nothing about an earlier attempt, and its word counts all the same: an *outcome unknown*
    /// would make the client repeat for ever.
    #[test]
    fn the_word_of_a_clients_session_counts_whatever_an_attempt_has_met() {
        let obstacle = Obstacle::NamedSession(trine_client::SessionRefusal::Lost);
        let waited = Duration::from_secs(1);
        for error in [
            Error::Refused { obstacle },
            Error::OutcomeUnknown { obstacle, waited },
        ] {
            let failure = failure_of(&error);
            assert_eq!(failure, Failure::Session(SessionRefusal::Lost));
        }
    }

    /// A review found that replies stayed in the replicas' memory for as long as Redis clients were served. After more
    /// than 64 commands at once there were two sessions, and all later commands went to the second one. The first was
    /// never used again. So the replicas never forgot its last 64 replies, of up to 4 MiB each.
    #[test]
    fn no_session_rests_while_others_are_used() {
        let mut turns = Turns::default();
        assert_eq!(turns.take(0, |_| true), None);
        let second_alone = |at| at == 1;
        assert_eq!(
            turns.take(2, second_alone),
            Some(1),
            "the first one is full"
        );
        let taken: Vec<_> = (0..6).map(|_| turns.take(3, |_| true)).collect();
        assert_eq!(taken, [2, 0, 1, 2, 0, 1].map(Some));
        assert_eq!(turns.take(3, |_| false), None);
        assert_eq!(turns.take(3, |_| true), Some(2), "it was nobody's turn");
    }
}
