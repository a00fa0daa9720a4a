//! Tests of the HTTP API: a node with a temporary data directory, a saga from a YAML file and
//! in-process effects.

pub(crate) mod node;

mod bad_input;
mod clients;
mod content_encoding;
mod dead_letters;
mod events;
mod filter;
mod large_messages;
mod list_pages;
mod onboarding;
mod operators;
mod overview;
pub(crate) mod quarantine;
mod replay;
mod retention;
mod sagas;
mod signals;
mod starting;
mod surface;
mod tasks;
mod timers;
mod webhooks;
