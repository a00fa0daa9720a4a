//! The builder: a saga written in Rust, which gives the same intermediate form as the YAML.
//!
//! ```
//! use orlog_program::{Definition, Do, Program};
//! use serde_json::json;
//!
//! let saga = Definition::builder("order")
//!     .version(1)
//!     .start("OrderPlaced")
//!     .correlate("orderId")
//!     .var("orderId", json!("=event.orderId"))
//!     .step("reserve", Do::command("inventory.ReserveStock").data(json!({ "order": "=vars.orderId" })))
//!     .ok("StockReserved")
//!     .fail("StockRejected")
//!     .undo(Do::command("inventory.ReleaseStock").data(json!({ "order": "=vars.orderId" })))
//!     .step("charge", Do::effect("payments.charge").data(json!({ "order": "=vars.orderId" })))
//!     .timeout(std::time::Duration::from_secs(1800))
//!     .completed("OrderCompleted", json!({ "order": "=vars.orderId" }))
//!     .build()
//!     .expect("the saga is well formed");
//! assert_eq!(saga.manifest().triggers.len(), 3);
//! ```

mod action;
mod definition;
mod handlers;
mod names;
mod steps;

pub use action::Do;
pub use definition::Builder;
pub use handlers::{Migrate, On};

pub(crate) use names::split_command;

#[cfg(test)]
mod tests;
