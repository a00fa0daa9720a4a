//! Actors that execute work: supervisor, providers and publishers.

pub(crate) mod provider;
pub(crate) mod provider_registry;
pub(crate) mod publisher;
pub(crate) mod queue_provider;
pub(crate) mod supervisor;
pub(crate) mod window;
pub(crate) mod work_dispatch;
