//! Contexts, actors and peers: who may do what in a tenant, and the keys of actors and of other
//! nodes.
//!
//! They are records of a registry that is equal on all nodes ([`orlog_bus::registry`]). Every node
//! holds all of them in memory, so that it can decide about each request without I/O.
//! `crates/api/src/server/admission.rs` is the only place that applies the lists of a context to a
//! caller.

mod actor;
pub mod change;
mod context;
mod directory;
pub mod key_ring;
mod keyed;
mod member;
mod nats;
mod peer;
mod signed_events;
pub mod store;

pub use actor::{Actor, Invitation, InvitationToken};
pub use change::Change;
pub use context::Context;
pub use directory::{Directory, KeyOwner, RecordKind, Stored};
pub use key_ring::{Key, KeyError, KeyRing};
pub use keyed::Keyed;
pub use member::{Member, MemberError};
pub use nats::{authorization as nats_authorization, consumers as nats_consumers};
pub use peer::KEY_OVERLAP;
pub use peer::Peer;
pub use signed_events::{EventRejection, SignedEvents, is_signed};
pub use store::{AccessRegistry, Outdated, WriteError};
