//! Effects of a complete node: upstreams from files, reload, secrets, real sockets.

mod attempts;
mod docs;
mod exchange;
pub(crate) mod http_upstream;
pub(crate) mod node;

mod failures;
mod flapping;
mod grpc;
mod http;
mod in_doubt;
mod nats;
mod probes;
mod proxies;
mod reload;
mod script;
mod secrets;
mod smtp;
mod sql;
mod versions;
mod webhook;
mod withdrawn;
mod work_stream;
mod worker_away;
mod workers;
