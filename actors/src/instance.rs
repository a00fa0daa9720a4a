//! Saga instances in memory: mailbox, registry, actor and programs.

pub(crate) mod completion;
pub(crate) mod mailbox;
pub(crate) mod program_registry;
pub(crate) mod registry;
pub(crate) mod saga;
