//! The connected clients, which of them have something to do, and what all of them hold.
//!
//! Invariant: `held` is the sum of what each client counted last, and `ids` has the number of each client. A client that says
//! it is queued is in `dirty` once. A client leaves its seat for its turn, so that it can ask about the others; the seat and
//! its key stay.

use std::collections::BTreeMap;

use trine_transport::slab::{Key, Slab};

use super::client::Client;

/// The clients of a server.
pub(super) struct Seats {
    clients: Slab<Option<Client>>,
    /// The keys of the clients, by the numbers of their connections.
    ids: BTreeMap<u64, Key>,
    /// Clients with something to do. Some may have gone.
    dirty: Vec<Key>,
    /// Empty: the memory of the list that takes the place of `dirty` while that is processed.
    spare: Vec<Key>,
    /// Bytes that all clients hold.
    held: usize,
}

impl Seats {
    /// Seats for so many clients.
    pub(super) fn new(clients_max: usize) -> Self {
        Self {
            clients: Slab::new(clients_max),
            ids: BTreeMap::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            held: 0,
        }
    }

    /// Whether no further client can come.
    pub(super) fn is_full(&self) -> bool {
        self.clients.is_full()
    }

    /// A client has come.
    pub(super) fn insert(&mut self, client: Client) -> Key {
        let id = client.connection.id();
        let key = self.clients.insert(Some(client));
        let key = key.unwrap_or_else(|_| unreachable!("there is a seat"));
        let before = self.ids.insert(id, key);
        assert!(
            before.is_none(),
            "numbers of connections are not used again"
        );
        key
    }

    /// This client, which has left its seat, does not come back.
    pub(super) fn remove(&mut self, key: Key, client: &Client) {
        let seat = self.clients.remove(key);
        assert!(matches!(seat, Some(None)), "it has left its seat");
        self.ids.remove(&client.connection.id());
        self.held -= client.held;
        assert_eq!(
            self.ids.len(),
            self.clients.len(),
            "each client has a number"
        );
        assert!(
            !self.ids.is_empty() || self.held == 0,
            "nobody holds nothing"
        );
    }

    /// A client leaves its seat, if it is there.
    pub(super) fn take(&mut self, key: Key) -> Option<Client> {
        self.clients.get_mut(key)?.take()
    }

    /// A client takes its seat again.
    pub(super) fn put_back(&mut self, key: Key, client: Client) {
        let seat = self.clients.get_mut(key).expect("its seat stays");
        let before = seat.replace(client);
        assert!(before.is_none(), "it had left its seat");
    }

    /// The client with this key, if it is there.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        self.clients.get_mut(key)?.as_mut()
    }

    /// The key of the client with this number.
    pub(super) fn find(&self, id: u64) -> Option<Key> {
        self.ids.get(&id).copied()
    }

    /// All clients that are at their seats.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Client)> {
        let seats = self.clients.iter();
        seats.filter_map(|(key, seat)| Some((key, seat.as_ref()?)))
    }

    /// The keys of all clients that are at their seats.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// A client has something to do.
    pub(super) fn mark(&mut self, key: Key) {
        if let Some(client) = self.clients.get_mut(key).and_then(Option::as_mut)
            && !std::mem::replace(&mut client.queued, true)
        {
            self.dirty.push(key);
        }
    }

    /// A client that stays marked gets a later turn.
    pub(super) fn postpone(&mut self, key: Key, client: Client) {
        assert!(client.queued, "it stays marked");
        self.put_back(key, client);
        self.dirty.push(key);
    }

    /// Whether clients have something to do.
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Those that have something to do. [`Seats::give_back`] takes the list back.
    pub(super) fn take_dirty(&mut self) -> Vec<Key> {
        std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare))
    }

    /// Takes back the memory of a list.
    pub(super) fn give_back(&mut self, mut list: Vec<Key>) {
        list.clear();
        self.spare = list;
    }

    /// Bytes that all clients hold, each as of when it was counted.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Counts what a client that has left its seat holds now.
    pub(super) fn count(&mut self, client: &mut Client) {
        let held = client.connection.held_bytes() + client.stream.held_bytes();
        self.held = self.held - client.held + held;
        client.held = held;
    }

    /// Counts what a client at its seat holds now.
    pub(super) fn count_at(&mut self, key: Key) {
        if let Some(mut client) = self.take(key) {
            self.count(&mut client);
            self.put_back(key, client);
        }
    }

    /// A client at its seat holds so many bytes more. Returns what all hold.
    pub(super) fn grow(&mut self, key: Key, bytes: usize) -> usize {
        if let Some(client) = self.clients.get_mut(key).and_then(Option::as_mut) {
            client.held += bytes;
            self.held += bytes;
        }
        self.held
    }
}
