//! Effects that travel over NATS: the queue's promises, whoever offers and whoever performs, on real servers.

#[path = "queue/contract.rs"]
mod contract;
#[path = "queue/ground.rs"]
mod ground;
#[path = "queue/pool.rs"]
mod pool;
