//! A program of a later release speaks to replicas of this one. Each message that they cannot read is answered with what
//! they know, and with nothing that could be taken for an answer.

use trine_protocol::endpoint_config;
use trine_protocol::message::{
    AdminCommand, AdminReply, AdminRequest, AdminStatus, BackupReply, BackupRequest, BackupStep,
    BatchWriter, ClientReply, ClientRequest, ClientStatus, ClusterId, Encode, Incarnation,
    JoinRequest, MESSAGE_VERSION, NodeId, Operation, OtherVersion, StatusForm, StatusRequest,
    WatchReply, kind,
};
use trine_protocol::release::Release;
use trine_transport::backend::RingRoute;
use trine_transport::event_loop::EventLoop;
use trine_transport::time::{Clock, Duration};
use trine_transport::{
    App, Completion, ConnectParams, Cx, Event, Identity, Reply, Request, SessionId,
};

use super::world::World;
use crate::support::address;

/// Sends its messages to one replica, and keeps the answers.
struct Later {
    messages: Vec<(u8, Vec<u8>)>,
    answers: Vec<Option<Vec<u8>>>,
}

impl Later {
    fn send(&self, cx: &mut Cx<'_, RingRoute>, session: SessionId) {
        for (tag, (number, message)) in self.messages.iter().enumerate() {
            let mut request = cx.alloc(message.len()).expect("a buffer");
            request.copy_from_slice(message);
            let response = cx.alloc(4 << 10).expect("a buffer");
            cx.enqueue_request(session, *number, request, response, tag as u64, None)
                .expect("room in the session");
        }
    }
}

impl App<RingRoute> for Later {
    fn on_request(&mut self, _cx: &mut Cx<'_, RingRoute>, _request: Request<'_>) -> Reply {
        unreachable!("nobody asks it")
    }

    fn on_completion(&mut self, _cx: &mut Cx<'_, RingRoute>, tag: u64, completion: Completion) {
        completion.result.expect("an answer");
        self.answers[tag as usize] = Some(completion.response.to_vec());
    }

    fn on_event(&mut self, cx: &mut Cx<'_, RingRoute>, event: Event<RingRoute>) {
        if let Event::Connected { session, .. } = event {
            self.send(cx, session);
        }
    }
}

/// What replica 0 answers to `messages`.
fn answers_to(messages: Vec<(u8, Vec<u8>)>) -> Vec<Vec<u8>> {
    let (mut world, spare) = World::with_spare(31);
    let later = Later {
        answers: vec![None; messages.len()],
        messages,
    };
    let identity = Identity {
        cluster: 0,
        incarnation: 777,
    };
    let clock = world.clock.clone();
    let mut peer = EventLoop::new(spare, clock, later, endpoint_config(), identity, 9)
        .expect("a sound configuration");
    peer.with(|_, cx| {
        cx.connect(RingRoute(0), ConnectParams::default())
            .expect("room for a session");
    });
    let until = world.clock.now() + Duration::from_secs(5);
    while peer.app().answers.iter().any(Option::is_none) {
        assert!(world.clock.now() < until, "not all were answered");
        peer.turn().expect("rings do not fail");
        world.step();
    }
    peer.app().answers.iter().flatten().cloned().collect()
}

fn of_version(version: u8, number: u8, message: &impl Encode) -> (u8, Vec<u8>) {
    let mut bytes = message.encode_to_vec();
    bytes[0] = version;
    (number, bytes)
}

fn batch(version: u8) -> (u8, Vec<u8>) {
    let item = ClientRequest::bare(Operation::Register).encode_to_vec();
    let mut bytes = vec![0; 8 + 4 + item.len()];
    let mut writer = BatchWriter::new(&mut bytes);
    writer.push(&item);
    assert_eq!(writer.finish(), bytes.len());
    bytes[0] = version;
    (kind::CLIENT_BATCH, bytes)
}

#[test]
fn a_message_of_a_later_version_or_kind_is_answered_with_what_is_known() {
    let version = MESSAGE_VERSION + 1;
    let admin = AdminRequest {
        command: AdminCommand::TransferLeadership,
        node_id: NodeId(1),
        incarnation: Incarnation::NONE,
        cluster: ClusterId::NONE,
        address: None,
    };
    let backup = BackupRequest {
        step: BackupStep::End { image: 1 },
        cluster: ClusterId::NONE,
    };
    let join = JoinRequest {
        state_version: 1,
        member: false,
        node_id: NodeId(9),
        incarnation: Incarnation(9),
        cluster: ClusterId::NONE,
        address: address(3),
    };
    let form = StatusForm::Discovery;
    let messages = vec![
        of_version(
            version,
            kind::CLIENT,
            &ClientRequest::bare(Operation::Register),
        ),
        batch(version),
        of_version(version, kind::STATUS, &StatusRequest { form }),
        of_version(version, kind::ADMIN, &admin),
        of_version(version, kind::BACKUP, &backup),
        of_version(version, kind::JOIN, &join),
        (kind::WATCH, vec![version; 50]),
        (200, vec![MESSAGE_VERSION, 2, 3]),
        (201, Vec::new()),
    ];
    for ((number, message), answer) in messages.iter().zip(answers_to(messages.clone())) {
        let expected = OtherVersion {
            release: Release::THIS,
            understood: MESSAGE_VERSION,
            met: message.first().copied().unwrap_or_default(),
            kind: *number,
        };
        assert_eq!(
            OtherVersion::in_reply(&answer),
            Some(expected),
            "kind {number}"
        );
        let reply = ClientReply::decode(&answer).expect("it is a client reply");
        assert_eq!(reply.status, ClientStatus::OtherVersion);
    }
}

/// A request of a known kind and version that has a form of a later release got an empty answer, as from a replica without
/// memory: the caller of an administrative command heard that it may have been done.
#[test]
fn a_known_kind_with_an_unknown_form_is_refused_by_name() {
    let unknown = |number| (number, [&[MESSAGE_VERSION, 0xee], &[0xee; 60][..]].concat());
    let answers = answers_to(vec![
        unknown(kind::ADMIN),
        unknown(kind::BACKUP),
        unknown(kind::WATCH),
        unknown(kind::STATUS),
    ]);
    let release = Release::THIS.to_string();
    let admin = AdminReply::decode(&answers[0]).expect("an answer");
    assert_eq!(admin.status, AdminStatus::Refused);
    let Ok(BackupReply::Refused(backup)) = BackupReply::decode(&answers[1]) else {
        panic!("{:?}", answers[1]);
    };
    let Ok(WatchReply::Refused(watch)) = WatchReply::decode(&answers[2]) else {
        panic!("{:?}", answers[2]);
    };
    for text in [admin.text, backup, watch] {
        assert!(text.contains(&release), "{text}");
    }
    let status = ClientReply::decode(&answers[3]).expect("an answer");
    assert_eq!(
        (status.status, status.release),
        (ClientStatus::Malformed, Some(Release::THIS))
    );
}
