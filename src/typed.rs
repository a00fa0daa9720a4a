//! Typed sagas: identifier, events and handlers are Rust types, on the same form as every other saga.
//!
//! A [`Handler`] does one thing and knows nothing of sagas. It answers with its event of success or of failure, or with a
//! fault, after which it is asked again. [`Handlers::seams`] checks before the start that every step has its handler, that
//! both name the same events, and that no handler serves two sagas; `examples/typed` shows all of it.
//!
//! ```
//! use orlog::typed::{Call, Declined, Event, Handler, Handlers, Identifier, NoFailure, Saga, Trigger};
//! use orlog_effect::Policy;
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! struct OrderId(String);
//!
//! impl Identifier for OrderId {
//!     const FIELD: &'static str = "orderId";
//!     fn text(&self) -> String { self.0.clone() }
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(rename_all = "camelCase")]
//! struct OrderPlaced { order_id: String }
//!
//! impl Event for OrderPlaced { const TYPE: &'static str = "OrderPlaced"; }
//! impl Trigger for OrderPlaced {
//!     type Id = OrderId;
//!     fn id(&self) -> OrderId { OrderId(self.order_id.clone()) }
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Charged { receipt: String }
//! impl Event for Charged { const TYPE: &'static str = "Charged"; }
//!
//! struct Charge;
//!
//! #[async_trait::async_trait]
//! impl Handler for Charge {
//!     const EFFECT: &'static str = "payments.charge";
//!     type Command = serde_json::Value;
//!     type Ok = Charged;
//!     type Fail = NoFailure;
//!     async fn handle(&self, _order: serde_json::Value, _call: &mut Call) -> Result<Charged, Declined<NoFailure>> {
//!         Ok(Charged { receipt: "r1".to_owned() })
//!     }
//! }
//!
//! let saga = Saga::<OrderPlaced>::new("order").step::<Charge>("charge", json!({})).build().expect("it is well formed");
//! let seams = Handlers::new().handler(Charge).seams(vec![saga], Policy::default()).expect("everything fits");
//! assert_eq!(seams.programs.len(), 1);
//! ```

mod handler;
mod handlers;
mod mapping;
mod saga;

pub use handler::{Call, Compensation, Declined, Event, Handler, Identifier, NoFailure, Trigger};
pub use handlers::Handlers;
pub use mapping::{Mapping, Misfit, Misfits};
pub use saga::{Saga, event};
