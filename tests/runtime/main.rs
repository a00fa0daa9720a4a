//! The runtime without a node: sagas on a simulated clock, with crashes, faults and simulations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chaos;
mod composite_saga;
mod crash_points;
mod duplicate_delivery;
mod examples;
mod fines;
mod flows;
mod full_disk;
mod gated;
mod hot_instance;
mod ingestion;
mod late_results;
mod long_sagas;
mod messages;
mod migration;
mod open_sagas;
mod oracle;
mod passivation;
mod priorities;
mod program_crash;
mod relay;
mod removed_upstream;
mod results;
mod simulation;
mod stable_keys;
mod timers;
mod transition_cost;
mod workflows;
