//! Messages between contexts, also of other nodes.
//!
//! A message is two instances. `orlog.message` in the context of the sender (its outbox) requests
//! the delivery as an effect, and has three durable timers. `orlog.inbox` in the context of the
//! receiver stores the message, and reports what happens to it back, also as an effect. The
//! process that executes these effects reads the instance that requests them, so that an attempt
//! always carries the current state: deliveries and reports may be repeated, reordered and
//! superseded. A message of the type `mail` also requests an effect of an SMTP upstream, if the
//! node of the receiver has one for it.
//!
//! ```text
//! orlog.message ── deliver ──▶ orlog.inbox ── start ──▶ orlog.flow (type `job`)
//!       ▲                        │    ▲                    │
//!       └─────── report ─────────┘    └───── results ──────┘
//! ```

mod content;
mod mail;
mod received;
mod sent;
mod status;
mod transition;

use serde::Deserialize;

pub use content::{
    Delivery, INBOX_PREFIX, MAX_ID_BYTES, MAX_MESSAGE_BYTES, Message, MessageFormat, MessageType,
    ProcessMessage, SendMessage, Timeouts, check_id, inbox_id,
};
pub use mail::{MailTarget, ReceiveMessage};
pub use received::{ReceivedMessage, ReceivedMessages, inbox_program};
pub use sent::{SentMessage, SentMessages, program};
pub use status::{MAX_LINE_BYTES, MAX_LINES, MessageLine, MessageStatus, Report};
pub use transition::PeerTask;

/// Name of the saga of sent messages.
pub const SAGA: &str = "orlog.message";
/// Name of the saga of received messages.
pub const INBOX_SAGA: &str = "orlog.inbox";
/// Effect that delivers a message, withdraws it, or reports its status; its arguments are a
/// [`PeerTask`].
pub const EFFECT: &str = "orlog.peers";
/// [`EFFECT`] for the own node, and the same effect under the names among which other nodes are
/// distributed: what waits for a node that is away holds no places of most others.
pub const EFFECTS: [&str; 16] = [
    EFFECT,
    "orlog.peers.1",
    "orlog.peers.2",
    "orlog.peers.3",
    "orlog.peers.4",
    "orlog.peers.5",
    "orlog.peers.6",
    "orlog.peers.7",
    "orlog.peers.8",
    "orlog.peers.9",
    "orlog.peers.10",
    "orlog.peers.11",
    "orlog.peers.12",
    "orlog.peers.13",
    "orlog.peers.14",
    "orlog.peers.15",
];
/// Part of the business reference of both sagas that names the thread. It is indexed.
pub const THREAD: &str = "thread";

/// Signal that sends a message; its data is a [`SendMessage`].
pub const SEND: &str = "orlog.message.send";
/// Signal that reports the status at the receiver; its data is a [`Report`].
pub const REPORT: &str = "orlog.message.report";

/// Signal that delivers or withdraws a message; its data is a [`ReceiveMessage`].
pub const DELIVER: &str = "orlog.inbox.deliver";
/// Signal with which a member acknowledges a message.
pub const ACKNOWLEDGE: &str = "orlog.inbox.acknowledge";
/// Signal with which a member ends a message; its data is a [`ProcessMessage`].
pub const PROCESS: &str = "orlog.inbox.process";
/// Signal with which a member rejects a message; its data is `{"reason": text}`.
pub const REJECT: &str = "orlog.inbox.reject";
/// Signal with which a member adds a line; its data is `{"text": text}`.
pub const LINE: &str = "orlog.inbox.line";

/// Returns the type of a message from the stored state of its instance, without the rest of it;
/// `None` if it cannot be read.
#[must_use]
pub fn type_of(state: &[u8]) -> Option<MessageType> {
    #[derive(Deserialize)]
    struct State {
        message: MessageHeader,
    }
    #[derive(Deserialize)]
    struct MessageHeader {
        #[serde(rename = "type")]
        kind: MessageType,
    }

    let state: State = rmp_serde::from_slice(state).ok()?;
    Some(state.message.kind)
}

#[cfg(test)]
mod tests;
