//! Resources of the API: one module each, with its routes and views.

pub mod access;
pub mod audit;
pub mod backup;
pub mod batches;
pub mod dead_letters;
pub mod definitions;
pub mod doctor;
pub mod events;
pub mod export;
pub mod flows;
pub mod jobs;
pub mod messages;
pub mod node;
pub mod peers;
pub mod replay;
pub mod sagas;
pub mod schedules;
pub mod shadows;
pub mod tasks;
pub mod timers;
pub mod webhooks;
