//! A small shop beside Orlog: it plays the Aggregates, the Gateway and the payment service, and keeps its own book.
//!
//! It talks to Orlog over HTTP alone, as any stranger would. [`shop`] is the service, [`orlog`] starts and asks the runner,
//! [`audit`] compares what the two of them say happened, and [`demo`] and [`torture`] make things go wrong on purpose.

pub mod crash_test;
pub mod demo;
pub mod orders;
pub mod orlog;
pub mod reconciliation;
pub mod record;
pub mod shop;
