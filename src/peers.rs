//! Peers: the identity of this node, other nodes that it trusts, and signed requests between them, over HTTP or NATS
//! (ADR 0082, ADR 0086).

pub(crate) mod api;
pub(crate) mod cli;
mod client;
mod directory;
mod document;
mod http;
mod identity;
mod nats;
mod request;

pub(crate) use client::{PeerClient, PeerError};
pub(crate) use directory::Peers;
pub(crate) use identity::NodeIdentity;
