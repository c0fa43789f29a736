//! Plays the same lines to redis-server and to a group, and compares byte for byte what each connection gets.
//!
//! A line is the number of a connection and its commands, with `;` between them. What Redis sends without having been asked
//! is there at once. A group sends it a moment later. So the replies are compared, and what was not asked for, each in its
//! order.

use super::RedisGroup;
use super::differential::RedisServer;
use super::wire::Wire;

/// What a connection was sent in one step.
#[derive(Default, PartialEq, Eq, Debug)]
struct Got {
    replies: Vec<String>,
    pushed: Vec<String>,
}

impl Got {
    fn take(&mut self, frame: &[u8]) {
        let text = String::from_utf8_lossy(frame).into_owned();
        let list = match is_pushed(&text) {
            true => &mut self.pushed,
            false => &mut self.replies,
        };
        list.push(text);
    }
}

fn is_pushed(frame: &str) -> bool {
    let mut lines = frame.split("\r\n");
    let is_list = lines
        .next()
        .is_some_and(|head| head.starts_with(['>', '*']));
    let word = lines.nth(1).unwrap_or_default();
    let pushed = ["message", "pmessage", "invalidate", "tracking-redir-broken"];
    is_list && pushed.contains(&word)
}

/// One of the two, with its connections.
struct Side {
    wires: Vec<Wire>,
    ids: Vec<String>,
    markers: u32,
}

impl Side {
    fn new(wires: Vec<Wire>, resp3: &[bool]) -> Self {
        let mut side = Self {
            wires,
            ids: Vec::new(),
            markers: 0,
        };
        for (wire, resp3) in side.wires.iter_mut().zip(resp3) {
            let id = wire.ask("CLIENT ID");
            side.ids.push(id.trim_start_matches(':').to_owned());
            if *resp3 {
                wire.ask("HELLO 3");
            }
        }
        side
    }

    fn send(&mut self, at: usize, commands: &str) {
        for command in commands.split(';') {
            let mut command = command.to_owned();
            for (number, id) in self.ids.iter().enumerate() {
                command = command.replace(&format!("{{id{number}}}"), id);
            }
            let parts: Vec<&str> = command.split(' ').collect();
            self.wires[at].send(&parts);
        }
    }

    /// Everything that a connection has been sent by now.
    fn drain(&mut self, at: usize, got: &mut Got) {
        self.markers += 1;
        let marker = format!("marker-{}", self.markers);
        self.wires[at].send(&["PING", &marker]);
        loop {
            let frame = self.wires[at].frame();
            if String::from_utf8_lossy(&frame).contains(&marker) {
                return;
            }
            got.take(&frame);
        }
    }

    /// Waits until as much was pushed to each connection.
    fn wait(&mut self, got: &mut [Got], as_these: &[Got]) {
        for (at, (got, theirs)) in got.iter_mut().zip(as_these).enumerate() {
            while got.pushed.len() < theirs.pushed.len() {
                let frame = self.wires[at].frame();
                got.take(&frame);
            }
        }
    }
}

/// Plays the lines. `resp3` says for each connection whether it speaks RESP3.
pub(super) fn play(redis: &RedisServer, group: &RedisGroup, resp3: &[bool], lines: &[&str]) {
    let count = resp3.len();
    let theirs = (0..count).map(|_| Wire::connect(redis.address()));
    let mut theirs = Side::new(theirs.collect(), resp3);
    // Each connection is served by another replica, but for those that speak of each other, or of their server.
    let speaks = |line: &&str| line.contains("{id") || line.contains("PUBSUB");
    let speaks_of_others = lines.iter().any(speaks);
    let node_id = |at: usize| if speaks_of_others { 1 } else { 1 + at % 3 };
    let ours = (0..count).map(|at| group.connect(node_id(at)));
    let mut ours = Side::new(ours.collect(), resp3);
    for line in lines {
        let (at, commands) = line.split_once(' ').expect("a number and commands");
        let at: usize = at.parse().expect("a number");
        let nothing = || (0..count).map(|_| Got::default()).collect::<Vec<_>>();
        let (mut expected, mut got) = (nothing(), nothing());
        theirs.send(at, commands);
        ours.send(at, commands);
        // Another connection hears of it once the command is done.
        theirs.drain(at, &mut expected[at]);
        // Redis broadcasts when it has nothing else to do: behind the first marker.
        theirs.drain(at, &mut expected[at]);
        ours.drain(at, &mut got[at]);
        for other in (0..count).filter(|other| *other != at) {
            theirs.drain(other, &mut expected[other]);
        }
        ours.wait(&mut got, &expected);
        for (other, got) in got.iter_mut().enumerate() {
            ours.drain(other, got);
        }
        assert_eq!(got, expected, "trine and Redis after {line:?} of {lines:?}");
    }
}
