//! NATS JetStream: the distributed engine under many pods. Nothing of it is rebuilt here.
//!
//! The only module that knows the client. Every part stands on one [`Connection`].

mod connection;

pub use connection::{ConnectError, Connection, Credentials, MINIMUM_SERVER, Options, Tls};
