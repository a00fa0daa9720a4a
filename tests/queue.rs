//! Effects that travel over NATS: the queue's promises, whoever offers and whoever performs, on real servers.

#[cfg(test)]
#[path = "queue/contract.rs"]
mod contract;
#[cfg(test)]
#[path = "queue/ground.rs"]
mod ground;
#[cfg(test)]
#[path = "queue/pool.rs"]
mod pool;
