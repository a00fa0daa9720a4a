//! Effects over NATS with real servers: guarantees of the queue, dispatchers and workers.

#[cfg(test)]
#[path = "effect_queue/contract.rs"]
mod contract;
#[cfg(test)]
#[path = "effect_queue/fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "effect_queue/workers.rs"]
mod workers;
