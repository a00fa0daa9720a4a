//! What a node does without HTTP and without a terminal: its configuration, its parts and its
//! services.
//!
//! [`App`] builds all parts in dependency order, and owns them. The API and the command line use
//! its services; neither is known here.

pub mod access;
pub mod admitted_tenants;
pub mod app;
pub mod audit;
pub mod auth;
mod background;
pub mod backup;
pub mod batches;
pub mod blocking;
pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod coded_error;
pub mod component_config;
pub mod config;
pub mod dead_letters;
pub mod definitions;
pub mod descriptors;
pub mod doctor;
pub mod effects;
pub mod error_code;
pub mod flows;
pub mod http_client;
pub mod jobs;
pub mod layout;
pub mod messages;
pub mod node;
pub mod peers;
pub mod private_file;
pub mod reads;
pub mod redact;
mod registry;
pub mod replay;
pub mod replication;
pub mod retention;
pub mod sagas;
pub mod shadows;
pub mod stores;
pub mod telemetry;
pub mod tls;
pub mod transport;
pub mod upstreams;
pub mod url_path;
pub mod webhooks;

pub use app::{App, AppOverrides};
pub use clock::SystemClock;
pub use config::Config;
