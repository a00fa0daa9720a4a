//! What a node does without HTTP and without a terminal: its configuration, its parts and its services.
//!
//! [`App`] builds all parts in dependency order, and owns them. The API and the command line use its
//! services; neither is known here.

pub mod access;
pub mod app;
pub mod audit;
pub mod auth;
pub mod backup;
pub mod batches;
pub mod clock;
pub mod config;
pub mod dead_letters;
pub mod definitions;
pub mod descriptors;
pub mod doctor;
pub mod flows;
pub mod http_client;
pub mod jobs;
pub mod messages;
pub mod node;
pub mod peers;
pub mod private_file;
pub mod redact;
pub mod replay;
pub mod retention;
pub mod sagas;
pub mod schedules;
pub mod shadows;
pub mod telemetry;
pub mod tls;
pub mod upstreams;
pub mod url_path;
pub mod webhooks;

pub use app::{App, AppOverrides};
pub use clock::SystemClock;
pub use config::Config;
