//! Requests between the nodes of two contexts, and their responses.

use orlog_model::{ContextAddress, CorrelationId};
use orlog_sagas::message::{Delivery, Report};
use serde::{Deserialize, Serialize};

/// Path of the route that receives them.
pub const PATH: &str = "/v1/peer/messages";

/// Request of the node of one context to the node of the other one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PeerMessage {
    /// Delivers or withdraws a message. The response is a [`Report`].
    Deliver {
        /// Message.
        #[serde(flatten)]
        delivery: Delivery,
        /// Whether the user who sent it may also act in the context of the receiver. Only pods of
        /// the same node state it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        acts_for_receiver: bool,
    },
    /// Reports the status of a message to its sender. The response is empty.
    Report(StatusReport),
}

/// Status of a message for its sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Id that the sender chose.
    pub id: CorrelationId,
    /// Sender of the message.
    pub from: ContextAddress,
    /// Receiver of the message, which reports.
    pub to: ContextAddress,
    /// Status.
    pub report: Report,
}
