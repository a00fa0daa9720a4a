//! Tests of the HTTP API: a node with a temporary data directory, a saga from a YAML file and
//! in-process effects.

#[cfg(test)]
#[path = "api/node.rs"]
mod node;

#[cfg(test)]
#[path = "api/bad_input.rs"]
mod bad_input;
#[cfg(test)]
#[path = "api/dead_letters.rs"]
mod dead_letters;
#[cfg(test)]
#[path = "api/events.rs"]
mod events;
#[cfg(test)]
#[path = "api/filter.rs"]
mod filter;
#[cfg(test)]
#[path = "api/large_messages.rs"]
mod large_messages;
#[cfg(test)]
#[path = "api/onboarding.rs"]
mod onboarding;
#[cfg(test)]
#[path = "api/operators.rs"]
mod operators;
#[cfg(test)]
#[path = "api/overview.rs"]
mod overview;
#[cfg(test)]
#[path = "api/quarantine.rs"]
mod quarantine;
#[cfg(test)]
#[path = "api/replay.rs"]
mod replay;
#[cfg(test)]
#[path = "api/retention.rs"]
mod retention;
#[cfg(test)]
#[path = "api/sagas.rs"]
mod sagas;
#[cfg(test)]
#[path = "api/surface.rs"]
mod surface;
#[cfg(test)]
#[path = "api/tasks.rs"]
mod tasks;
#[cfg(test)]
#[path = "api/timers.rs"]
mod timers;
