//! The life of a session as a table (PROTOCOL.md section 4).
//!
//! ```text
//!            Open            Cookie             Accept
//!   Free ----------> Asking ---------> Returning --------> Open
//!    ^  \                                  ^ |              |  |
//!    |   \  Cookie came back (server)      +-+ Cookie       |  | Close
//!    |    +-----------------------------------------> Open  |  v
//!    |\__ KeyShown (server) ----> HalfOpen ------^     Proven
//!    +--- Refused, GaveUp, Lost, PeerClosed, GiveWay -------+ Closing
//! ```

/// Where a session is in its life.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub(crate) enum SessionState {
    /// No session at this index.
    Free,
    /// A client has sent CONNECT without a cookie.
    Asking,
    /// A client has sent CONNECT with the server's cookie.
    Returning,
    /// A client has shown that it knows a key, and a server has answered. The client may be a replay.
    HalfOpen,
    /// Requests may flow.
    Open,
    /// This side has sent DISCONNECT and waits for the answer.
    Closing,
}

/// The events of a session.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub(crate) enum SessionInput {
    /// The program connects.
    Connect,
    /// A CONNECT with a good cookie has come.
    CookieReturned,
    /// A CONNECT with a good cookie has come, and the handshake of a key.
    KeyShown,
    /// A packet has come that the session's keys sealed.
    Proven,
    /// COOKIE has come.
    Cookie,
    /// ACCEPT has come.
    Accept,
    /// REFUSE has come.
    Refuse,
    /// The program disconnects.
    Close,
    /// DISCONNECT has come.
    PeerClosed,
    /// DISCONNECTED has come.
    CloseConfirmed,
    /// RESET has come, with the token of our probe.
    Reset,
    /// Nothing has come for too long.
    Silence,
    /// The peer has broken the protocol.
    Violation,
    /// There is no room, and the session's holder has most of them.
    GiveWay,
}

impl SessionState {
    /// The state after `input`; `None` if it does not belong here and changes nothing.
    pub(crate) const fn after(self, input: SessionInput) -> Option<Self> {
        use SessionInput as I;
        use SessionState as S;
        Some(match (self, input) {
            (S::Free, I::Connect) => S::Asking,
            (S::Free, I::CookieReturned) => S::Open,
            (S::Free, I::KeyShown) => S::HalfOpen,
            (S::HalfOpen, I::Proven) => S::Open,
            (S::HalfOpen, I::Silence) => S::Free,
            (S::Asking | S::Returning, I::Cookie) => S::Returning,
            (S::Returning, I::Accept) => S::Open,
            (S::Asking | S::Returning, I::Refuse | I::Close | I::Silence) => S::Free,
            (S::Open, I::Close) => S::Closing,
            (S::Open, I::PeerClosed | I::Reset | I::Silence | I::Violation | I::GiveWay) => S::Free,
            (
                S::Closing,
                I::PeerClosed | I::CloseConfirmed | I::Reset | I::Silence | I::GiveWay,
            ) => S::Free,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [SessionState; 6] = [
        SessionState::Free,
        SessionState::Asking,
        SessionState::Returning,
        SessionState::HalfOpen,
        SessionState::Open,
        SessionState::Closing,
    ];
    const INPUTS: [SessionInput; 14] = [
        SessionInput::Connect,
        SessionInput::CookieReturned,
        SessionInput::KeyShown,
        SessionInput::Proven,
        SessionInput::Cookie,
        SessionInput::Accept,
        SessionInput::Refuse,
        SessionInput::Close,
        SessionInput::PeerClosed,
        SessionInput::CloseConfirmed,
        SessionInput::Reset,
        SessionInput::Silence,
        SessionInput::Violation,
        SessionInput::GiveWay,
    ];

    /// The whole table, as PROTOCOL.md prints it.
    #[test]
    fn the_transition_table() {
        let mut table = String::new();
        for input in INPUTS {
            table += &format!("{:15}", format!("{input:?}"));
            for state in STATES {
                table += &format!(
                    "{:10}",
                    state.after(input).map_or("-".into(), |s| format!("{s:?}"))
                );
            }
            table = table.trim_end().to_string() + "\n";
        }
        let expected = "\
Connect        Asking    -         -         -         -         -
CookieReturned Open      -         -         -         -         -
KeyShown       HalfOpen  -         -         -         -         -
Proven         -         -         -         Open      -         -
Cookie         -         Returning Returning -         -         -
Accept         -         -         Open      -         -         -
Refuse         -         Free      Free      -         -         -
Close          -         Free      Free      -         Closing   -
PeerClosed     -         -         -         -         Free      Free
CloseConfirmed -         -         -         -         -         Free
Reset          -         -         -         -         Free      Free
Silence        -         Free      Free      Free      Free      Free
Violation      -         -         -         -         Free      -
GiveWay        -         -         -         -         Free      Free
";
        assert_eq!(table, expected);
        let protocol = include_str!("../../PROTOCOL.md");
        for line in expected.lines() {
            assert!(protocol.contains(line), "PROTOCOL.md does not show: {line}");
        }
    }
}
