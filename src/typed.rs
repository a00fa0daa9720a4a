//! Typed sagas: identifiers, events and handlers are Rust types. They compile to the same form as all
//! other sagas.
//!
//! A [`Handler`] executes one step and is independent of sagas. It returns its success event, its
//! failure event, or a provider error, after which it is retried. [`Handlers::overrides`] checks before
//! the start that every step has a handler, that both use the same events, and that no handler is used
//! by two sagas. `examples/typed` is a full example.
//!
//! ```
//! use orlog::typed::{Event, Handler, HandlerContext, HandlerError, Handlers};
//! use orlog::typed::{Identifier, NoFailure, Saga, Trigger};
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
//!     async fn handle(
//!         &self,
//!         _order: serde_json::Value,
//!         _context: &mut HandlerContext,
//!     ) -> Result<Charged, HandlerError<NoFailure>> {
//!         Ok(Charged { receipt: "r1".to_owned() })
//!     }
//! }
//!
//! let saga = Saga::<OrderPlaced>::new("order").step::<Charge>("charge", json!({}));
//! let saga = saga.build().expect("the saga is valid");
//! let handlers = Handlers::new().handler(Charge);
//! let overrides = handlers.overrides(vec![saga], Policy::default()).expect("handlers match the saga");
//! assert_eq!(overrides.programs.len(), 1);
//! ```

mod handler;
mod handlers;
mod mapping;
mod saga;

pub use handler::{
    Compensation, Event, Handler, HandlerContext, HandlerError, Identifier, NoFailure, ProbeOutcome, Trigger,
};
pub use handlers::Handlers;
pub use mapping::{HandlerSagaMapping, MappingError, MappingErrors};
pub use saga::{Saga, event};
