//! Effects of a complete node: upstreams from files, reload, secrets, real sockets.

#[cfg(test)]
#[path = "common/webhooks.rs"]
mod webhooks;

#[cfg(test)]
#[path = "effects/docs.rs"]
mod docs;
#[cfg(test)]
#[path = "effects/http_upstream.rs"]
mod http_upstream;
#[cfg(test)]
#[path = "effects/node.rs"]
mod node;

#[cfg(test)]
#[path = "effects/flapping.rs"]
mod flapping;
#[cfg(test)]
#[path = "effects/grpc.rs"]
mod grpc;
#[cfg(test)]
#[path = "effects/http.rs"]
mod http;
#[cfg(test)]
#[path = "effects/in_doubt.rs"]
mod in_doubt;
#[cfg(test)]
#[path = "effects/nats.rs"]
mod nats;
#[cfg(test)]
#[path = "effects/reload.rs"]
mod reload;
#[cfg(test)]
#[path = "effects/script.rs"]
mod script;
#[cfg(test)]
#[path = "effects/secrets.rs"]
mod secrets;
#[cfg(test)]
#[path = "effects/smtp.rs"]
mod smtp;
#[cfg(test)]
#[path = "effects/sql.rs"]
mod sql;
#[cfg(test)]
#[path = "effects/webhook.rs"]
mod webhook;
#[cfg(test)]
#[path = "effects/workers.rs"]
mod workers;
