//! How messages travel: the bus contract, subjects, the event codec, the embedded bus, and NATS JetStream.

mod answers;
mod contract;
mod flight;
mod interest;
mod part;
mod start;

pub mod codec;
pub mod effects;
pub mod embedded;
pub mod membership;
pub mod nats;
pub mod requests;
pub mod subject;
pub mod workflow;

pub use contract::{Acker, Bus, Consumer, Delivery, Error, Message, Past, Receipt, Since, Subscription};
pub use embedded::Embedded;
pub use part::Part;
pub use start::{Finding, Mark, Start};
