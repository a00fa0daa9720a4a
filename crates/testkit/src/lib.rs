//! Test support: fakes of external systems, and conformance suites of implementations.

pub mod browser;
pub mod bus_suite;
pub mod child_process;
pub mod definition_suite;
pub mod fake_upstreams;
pub mod faulty_bus;
mod faulty_disk;
pub mod faulty_upstream;
pub mod fuzz;
pub mod grpc_server;
pub mod host;
mod long_run;
pub mod memory_log;
pub mod nats_server;
pub mod oracle;
pub mod otlp_collector;
pub mod provider_suite;
pub mod publish_sink;
pub mod raw_nats;
pub mod runtime;
pub mod sagas;
pub mod servers;
mod sim_clock;
pub mod smtp_server;
pub mod store_suite;
pub mod wait;
mod wall_clock;

pub use faulty_disk::FaultyDisk;
pub use long_run::{distribution, long_run_size};
pub use sim_clock::SimClock;
pub use wait::WAIT_TIMEOUT;
pub use wall_clock::{SettableClock, WallClock};
