//! Builder of sagas in Rust. It produces the same intermediate form as the YAML.
//!
//! ```
//! use orlog_program::{Definition, Program, StepAction};
//! use serde_json::json;
//!
//! let saga = Definition::builder("order")
//!     .version(1)
//!     .start("OrderPlaced")
//!     .correlate("orderId")
//!     .var("orderId", json!("=event.orderId"))
//!     .step(
//!         "reserve",
//!         StepAction::command("inventory.ReserveStock").data(json!({ "order": "=vars.orderId" })),
//!     )
//!     .ok("StockReserved")
//!     .fail("StockRejected")
//!     .undo(
//!         StepAction::command("inventory.ReleaseStock").data(json!({ "order": "=vars.orderId" })),
//!     )
//!     .step(
//!         "charge",
//!         StepAction::effect("payments.charge").data(json!({ "order": "=vars.orderId" })),
//!     )
//!     .timeout(std::time::Duration::from_secs(1800))
//!     .completed("OrderCompleted", json!({ "order": "=vars.orderId" }))
//!     .build()
//!     .expect("the saga is valid");
//! assert_eq!(saga.manifest().subscriptions.len(), 3);
//! ```

mod action;
mod awaited_events;
mod definition;
mod handlers;
mod names;
mod steps;
mod versions;

pub use action::StepAction;
pub use definition::DefinitionBuilder;
pub use handlers::{EventHandler, MigrationBuilder};

#[cfg(test)]
mod tests;
