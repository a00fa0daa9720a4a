//! Effects that travel over NATS: the queue's promises, whoever offers and whoever performs, on real servers.

#[cfg(test)]
#[path = "effect_queue/contract.rs"]
mod contract;
#[cfg(test)]
#[path = "effect_queue/fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "effect_queue/workers.rs"]
mod workers;
