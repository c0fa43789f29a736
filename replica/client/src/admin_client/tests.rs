//! An admin command and replicas that follow a script, on a ring, on virtual time, in one thread.

use std::cell::Cell;
use std::rc::Rc;

use trine_protocol::endpoint_config;
use trine_protocol::message::{ClusterId, Encode, Members, NodeId};
use trine_transport::Identity;
use trine_transport::backend::{RingBackend, RingConfig, RingRoute};

use super::*;

const OURS: ClusterId = ClusterId(0xc1);
const STEP: Duration = Duration::from_micros(50);
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct ManualClock(Rc<Cell<Instant>>);

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.0.get()
    }
}

/// The answers of a scripted replica to a command; it repeats the last one.
#[derive(Clone)]
enum Act {
    Say(AdminStatus, Option<SocketAddr>, &'static str),
    Silent,
}

struct Scripted {
    discovery: Discovery,
    acts: Vec<Act>,
    given: Vec<AdminRequest>,
}

impl App<RingRoute> for Scripted {
    fn on_request(&mut self, cx: &mut Cx<'_, RingRoute>, request: Request<'_>) -> Reply {
        let bytes = match request.kind {
            kind::STATUS => StatusReply::Discovery(self.discovery.clone()).encode_to_vec(),
            kind::ADMIN => {
                let command = AdminRequest::decode(request.data).expect("a readable order");
                let act = self.acts[self.given.len().min(self.acts.len() - 1)].clone();
                self.given.push(command);
                let Act::Say(status, leader, text) = act else {
                    return Reply::Later;
                };
                AdminReply {
                    status,
                    leader,
                    text,
                }
                .encode_to_vec()
            }
            other => panic!("nobody sends kind {other}"),
        };
        let mut reply = cx.alloc(bytes.len()).expect("a buffer");
        reply.copy_from_slice(&bytes);
        Reply::Now(reply)
    }

    fn on_completion(&mut self, _: &mut Cx<'_, RingRoute>, _: u64, _: Completion) {
        unreachable!("scripted replicas ask nothing");
    }
}

fn address(route: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + route as u16))
}

/// Replica `index` of `cluster`, whose present leader is `leader`; the incarnation `holder` has node id 3.
fn replica(index: usize, cluster: u64, leader: usize, holder: u64, acts: &[Act]) -> Scripted {
    let member = Member {
        node_id: NodeId(3),
        role: MemberRole::Voter,
        incarnation: Incarnation(holder),
        address: address(index),
    };
    let role = match index == leader {
        true => RoleCode::Leader,
        false => RoleCode::Follower,
    };
    let discovery = Discovery {
        cluster: ClusterId(cluster),
        role,
        term: 1,
        leader: Some(address(leader)),
        members: Members(vec![member]),
        ..Discovery::unattached(NodeId(index as u32 + 1), Incarnation(index as u64 + 1))
    };
    Scripted {
        discovery,
        acts: acts.to_vec(),
        given: Vec::new(),
    }
}

/// Gives `command` for node `node_id`; returns how it ended, and what each replica got.
fn give(
    replicas: Vec<Scripted>,
    command: AdminCommand,
    node_id: u32,
) -> (Result<AdminDone, AdminError>, Vec<Vec<AdminRequest>>) {
    let clock = ManualClock(Rc::new(Cell::new(Instant::from_nanos(1_000_000_000))));
    let count = replicas.len();
    let mut backends = RingBackend::mesh(count as u16 + 1, RingConfig::default());
    let own = backends.pop().expect("one more than replicas");
    let route_of: RouteOf<RingRoute> =
        Box::new(|address| address.port().checked_sub(7000).map(RingRoute));
    let config = ClientConfig::new((0..count).map(address).collect());
    let started = clock.now();
    let deadline = started + TIMEOUT;
    let request = AdminRequest {
        command,
        node_id: NodeId(node_id),
        incarnation: Incarnation::NONE,
        cluster: ClusterId::NONE,
        address: None,
    };
    let giver = AdminClient::new(config, route_of, request, deadline, 9);
    let identity = |incarnation| Identity {
        cluster: 0,
        incarnation,
    };
    let config = endpoint_config;
    let mut asker =
        EventLoop::new(own, clock.clone(), giver, config(), identity(100), 100).expect("sound");
    let mut served: Vec<_> = replicas
        .into_iter()
        .zip(backends)
        .zip(1..)
        .map(|((app, backend), seed)| {
            EventLoop::new(backend, clock.clone(), app, config(), identity(seed), seed)
                .expect("sound")
        })
        .collect();
    while !asker.app().is_over() && clock.now() < deadline {
        clock.0.set(clock.now() + STEP);
        for replica in &mut served {
            replica.turn().expect("rings do not fail");
        }
        asker.turn().expect("rings do not fail");
    }
    let waited = clock.now().saturating_since(started);
    let end = asker.with(|giver, cx| giver.end(cx, waited));
    let given = served.iter().map(|replica| replica.app().given.clone());
    (end, given.collect())
}

fn say(status: AdminStatus, text: &'static str) -> Act {
    Act::Say(status, None, text)
}

#[test]
fn the_leader_is_found_and_asked_until_the_command_is_done() {
    let progress = say(AdminStatus::InProgress, "removing");
    let acts = [progress.clone(), progress, say(AdminStatus::Done, "gone")];
    let replicas = vec![
        replica(0, OURS.0, 1, 30, &[]),
        replica(1, OURS.0, 1, 30, &acts),
    ];
    let (end, given) = give(replicas, AdminCommand::Remove, 3);
    let leader = address(1);
    let text = "gone".to_owned();
    assert_eq!(end, Ok(AdminDone { text, leader }));
    assert_eq!((given[0].len(), given[1].len()), (0, 3));
    for command in &given[1] {
        assert_eq!(
            (command.incarnation, command.cluster),
            (Incarnation(30), OURS)
        );
    }
}

#[test]
fn another_leader_is_told_who_was_meant_when_the_command_was_first_given() {
    let handed_over = Act::Say(AdminStatus::NotLeader, Some(address(0)), "");
    let first = [say(AdminStatus::InProgress, "replacing"), handed_over];
    let second = [say(AdminStatus::Done, "held by another")];
    // Two replicas can be reached, and the one behind the first of the list is asked first. It no longer leads after
    // its second answer, and by then another member has the node id.
    let replicas = vec![
        replica(0, OURS.0, 0, 31, &second),
        replica(1, OURS.0, 1, 30, &first),
    ];
    let (end, given) = give(replicas, AdminCommand::Replace, 3);
    assert!(end.is_ok(), "{end:?}");
    assert_eq!((given[0].len(), given[1].len()), (1, 2));
    let meant = |command: &AdminRequest| command.incarnation == Incarnation(30);
    assert!(given.concat().iter().all(meant), "{given:?}");
}

#[test]
fn a_command_goes_to_one_cluster_only() {
    let lost = Act::Say(AdminStatus::NotLeader, None, "");
    let done = [say(AdminStatus::Done, "done")];
    for foreign in [0, 1] {
        // The cluster whose leader is found first is the one that is meant, even after that leader lost leadership.
        let mut replicas = vec![
            replica(0, OURS.0, 0, 30, std::slice::from_ref(&lost)),
            replica(1, OURS.0, 1, 30, std::slice::from_ref(&lost)),
        ];
        replicas[foreign] = replica(foreign, 0xbad, foreign, 30, &done);
        let (end, given) = give(replicas, AdminCommand::Promote, 3);
        let clusters: Vec<_> = given
            .concat()
            .iter()
            .map(|command| command.cluster)
            .collect();
        assert!(clusters.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(end.is_ok(), given[foreign].len() == 1, "{end:?}");
        assert!(given[0].is_empty() || given[1].is_empty());
    }
}

#[test]
fn without_an_answer_nobody_can_tell() {
    let (end, given) = give(
        vec![replica(0, OURS.0, 0, 30, &[Act::Silent])],
        AdminCommand::Promote,
        3,
    );
    assert!(
        matches!(end, Err(AdminError::OutcomeUnknown { .. })),
        "{end:?}"
    );
    assert!(given[0].len() > 1, "asked again");
    let waits = say(AdminStatus::InProgress, "waiting for a replica");
    let (end, _) = give(
        vec![replica(0, OURS.0, 0, 30, &[waits])],
        AdminCommand::Promote,
        3,
    );
    let Err(AdminError::OutcomeUnknown { progress, waited }) = end else {
        panic!("{end:?}");
    };
    assert_eq!(progress, "waiting for a replica");
    assert!(waited >= TIMEOUT);
}

#[test]
fn a_refusal_says_whether_the_command_had_been_begun() {
    let no = say(AdminStatus::Refused, "no quorum would be left");
    let begun = say(AdminStatus::InProgress, "removing");
    for (acts, expected) in [(vec![no.clone()], false), (vec![begun, no], true)] {
        let (end, _) = give(
            vec![replica(0, OURS.0, 0, 30, &acts)],
            AdminCommand::Remove,
            3,
        );
        let why = "no quorum would be left".to_owned();
        let begun = expected;
        assert_eq!(end, Err(AdminError::Refused { why, begun }));
    }
}

#[test]
fn a_removal_of_a_node_that_does_not_exist_is_not_even_given() {
    let (end, given) = give(
        vec![replica(0, OURS.0, 0, 30, &[])],
        AdminCommand::Remove,
        9,
    );
    let why = "node 9 is not a member of the group".to_owned();
    let begun = false;
    assert_eq!(end, Err(AdminError::Refused { why, begun }));
    assert!(given[0].is_empty());
}

#[test]
fn whoever_reaches_no_leader_has_changed_nothing() {
    // Two that name each other: the client follows them, but in no storm, and never takes one for a leader.
    let (end, given) = give(
        vec![
            replica(0, OURS.0, 1, 30, &[]),
            replica(1, OURS.0, 0, 30, &[]),
        ],
        AdminCommand::TransferLeadership,
        3,
    );
    let obstacle = Obstacle::NoLeader;
    assert!(
        matches!(end, Err(AdminError::NotReachable { obstacle: told, .. }) if told == obstacle),
        "{end:?}"
    );
    assert!(given.concat().is_empty());
}
