//! For tests only: what takes the world's place, and the suites that hold an implementation to its contract.

pub mod audit;
pub mod browser;
pub mod bus_suite;
pub mod collector;
pub mod faulty_bus;
mod faulty_disk;
pub mod grpc_server;
pub mod household;
pub mod kept;
pub mod memory_log;
pub mod nats_server;
pub mod nats_wire;
pub mod oracle;
pub mod provider_suite;
pub mod quartet;
pub mod rig;
pub mod sagas;
pub mod servers;
mod sim_clock;
pub mod smtp_server;
pub mod store_suite;
mod wall_clock;
pub mod world;

pub use faulty_disk::FaultyDisk;
pub use sim_clock::SimClock;
pub use wall_clock::WallClock;
