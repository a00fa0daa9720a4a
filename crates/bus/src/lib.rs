//! How messages travel: the bus contract, subjects, the event codec, and the embedded bus.

mod contract;

pub use contract::{Acker, Bus, Consumer, Delivery, Error, Message, Receipt, Subscription};
