//! Resources of the API: one module each, with its routes and views.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod batches;
pub(crate) mod dead_letters;
pub(crate) mod definitions;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod flows;
pub(crate) mod jobs;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod peers;
pub(crate) mod replay;
pub(crate) mod sagas;
pub(crate) mod schedules;
pub(crate) mod shadows;
pub(crate) mod tasks;
pub(crate) mod timers;
pub(crate) mod webhooks;
