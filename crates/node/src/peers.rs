//! Peers: the identity of this node, other nodes that it trusts, and signed requests between them,
//! over HTTP or NATS (ADR 0082, ADR 0086).

pub mod client;
mod directory;
pub mod document;
mod http;
mod identity;
pub mod nats;
mod request;

pub use client::{PeerClient, PeerError};
pub use directory::Peers;
pub use identity::NoIdentity;
pub(crate) use identity::NodeIdentity;
