//! Effects over NATS with real servers: guarantees of the queue, dispatchers and workers.

mod consumers;
mod contract;
mod fixture;
mod handover;
mod returned_jobs;
mod workers;
