//! Effects over NATS with real servers: guarantees of the queue, dispatchers and workers.

mod contract;
mod fixture;
mod returned_jobs;
mod workers;
