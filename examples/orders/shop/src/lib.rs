//! Example shop for Orlog: implements the aggregates, the gateway and the payment service, and keeps
//! its own record.
//!
//! It uses Orlog only over HTTP, like any external client. [`shop`] is the service, [`orlog`] starts
//! and queries the runner, [`reconciliation`] compares their records, and [`demo`] and [`crash_test`]
//! inject faults.

pub mod crash_test;
pub mod demo;
pub mod orders;
pub mod orlog;
pub mod reconciliation;
pub mod record;
pub mod shop;
