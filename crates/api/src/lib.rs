//! HTTP API of a node: a server, and one module per resource.
//!
//! `server` has what all requests share: connections, layers, extractors, problems. A module of
//! `resources` validates the input of its routes, calls a service of the node and builds the
//! response; `routes` lists them.

mod resources;
mod routes;
mod server;

pub use routes::{openapi, router, serve};
