//! From the replica's outputs into the sessions, and the handling of messages that cannot go.

use std::net::SocketAddr;

use trine_protocol::message::{kind, set_stream_position};
use trine_protocol::route::is_same_address;
use trine_transport::Cx;
use trine_transport::backend::Route;
use trine_transport::time::Instant;

use super::Node;
use super::config::DRAINS_MAX;
use super::links::{LinkReadiness, Outgoing};
use crate::output::{Class, Output};

/// A request to a peer that the transport has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    /// The replica's name for it.
    pub(super) tag: u64,
    link: usize,
    /// The stream that an append belongs to.
    stream: Option<u32>,
}

impl<R: Route> Node<R> {
    /// Executes the replica's outputs.
    pub(super) fn drain(&mut self, cx: &mut Cx<'_, R>) {
        for _ in 0..DRAINS_MAX {
            while let Some(output) = self.replica.poll_output() {
                self.on_output(cx, output);
            }
            if self.unsent.is_empty() {
                return;
            }
            for tag in std::mem::take(&mut self.unsent) {
                self.replica.on_peer_reply(cx.now(), tag, None);
            }
        }
    }

    fn on_output(&mut self, cx: &mut Cx<'_, R>, output: Output) {
        match output {
            Output::Reply { token, bytes } => self.answer(cx, token, bytes),
            Output::Send {
                to,
                expect,
                kind,
                class,
                bytes,
                tag,
                timeout,
                answer_bytes_max,
            } => {
                let deadline = cx.now() + timeout;
                let outgoing = Outgoing {
                    expect,
                    kind,
                    bytes,
                    tag,
                    deadline,
                    answer_bytes_max,
                };
                match self.link_to(cx, to, class) {
                    Some(index) => self.send(cx, index, outgoing),
                    None => self.unsent.push(tag),
                }
            }
        }
    }

    /// The link to a peer; nothing if all places are taken by links that have more right to one.
    pub(super) fn link_to(
        &mut self,
        cx: &mut Cx<'_, R>,
        to: SocketAddr,
        class: Class,
    ) -> Option<usize> {
        let found = self.links.find_or_add(to, class, cx.now());
        if found.is_some() {
            return found;
        }
        let replica = &self.replica;
        let is_member = |address| replica.is_of_group(|member| is_same_address(member, address));
        let spare = self.links.spare(to, cx.now(), is_member)?;
        if let Some(session) = self.links.vacate(spare) {
            cx.disconnect(session);
        }
        self.fail_queued(spare);
        self.note_unreachable(cx.now(), spare);
        self.links.find_or_add(to, class, cx.now())
    }

    fn send(&mut self, cx: &mut Cx<'_, R>, index: usize, outgoing: Outgoing) {
        match self.links.way(index, cx, &mut self.rng) {
            LinkReadiness::Open(session) => self.send_over(cx, index, session, outgoing),
            LinkReadiness::Queue => self.links.get_mut(index).queue.push_back(outgoing),
            LinkReadiness::Closed => self.unsent.push(outgoing.tag),
        }
    }

    fn send_over(
        &mut self,
        cx: &mut Cx<'_, R>,
        index: usize,
        session: trine_transport::SessionId,
        outgoing: Outgoing,
    ) {
        let Outgoing {
            expect,
            kind,
            mut bytes,
            tag,
            deadline,
            answer_bytes_max,
        } = outgoing;
        let link = self.links.get_mut(index);
        if expect.is_some_and(|expected| expected != link.peer) {
            self.unsent.push(tag); // Another incarnation of the peer answers there.
            return;
        }
        let Some(response) = cx.alloc(answer_bytes_max) else {
            self.unsent.push(tag);
            return;
        };
        let stream = (kind == kind::APPEND).then_some(link.stream);
        if let Some(stream) = stream {
            set_stream_position(&mut bytes, stream, link.next_sequence);
        }
        let Ok(key) = self.sent.insert(Sent {
            tag,
            link: index,
            stream,
        }) else {
            self.unsent.push(tag);
            return;
        };
        match cx.enqueue_request(session, kind, bytes, response, key.to_u64(), Some(deadline)) {
            // Only a request that was taken has a place in the stream.
            Ok(_) => link.next_sequence += u64::from(stream.is_some()),
            Err(_) => {
                self.sent.remove(key);
                self.unsent.push(tag);
            }
        }
    }

    /// A request ended without an answer: a stream with a gap in it is over.
    pub(super) fn note_lost(&mut self, sent: &Sent) {
        let link = self.links.get_mut(sent.link);
        if sent.stream == Some(link.stream) {
            link.begin_stream();
        }
    }

    /// The session is established: the messages that waited for it go out.
    pub(super) fn send_queued(&mut self, cx: &mut Cx<'_, R>, index: usize) {
        for outgoing in std::mem::take(&mut self.links.get_mut(index).queue) {
            self.send(cx, index, outgoing);
        }
    }

    /// The session will not be established: the messages that waited for it have failed.
    pub(super) fn fail_queued(&mut self, index: usize) {
        let queue = std::mem::take(&mut self.links.get_mut(index).queue);
        self.unsent
            .extend(queue.into_iter().map(|outgoing| outgoing.tag));
    }

    /// Fails messages that have waited for their session for too long.
    pub(super) fn fail_overdue(&mut self, now: Instant) {
        if self.links.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        let Self { links, unsent, .. } = self;
        links.retain_queued(|outgoing| {
            let in_time = outgoing.deadline > now;
            if !in_time {
                unsent.push(outgoing.tag);
            }
            in_time
        });
    }
}
