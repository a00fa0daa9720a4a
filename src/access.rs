//! Contexts and actors: who may do what in a tenant, and the keys of actors.
//!
//! Both are records of a registry that is equal on all nodes ([`orlog_bus::registry`]). Every node holds all of them in
//! memory, so that it can decide about each request without I/O. `src/api/admission.rs` is the only place that applies
//! the lists of a context to a caller.

mod actor;
pub(crate) mod api;
mod change;
pub(crate) mod cli;
mod context;
mod directory;
mod member;
mod nats;
mod store;

pub use actor::{Actor, ActorKey, Invitation, InvitationToken, KeyError};
pub use change::Change;
pub use context::Context;
pub use directory::{Directory, Stored};
pub use member::{Member, MemberError};
pub use nats::{authorization as nats_authorization, consumers as nats_consumers};
pub use store::{AccessRegistry, Outdated, WriteError};
