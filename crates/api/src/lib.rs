//! HTTP API of a node: a server, and one module per resource.
//!
//! `server` has what all requests share: connections, layers, extractors, problems. A module of
//! `resources` validates the input of its routes, calls a service of the node and builds the response.

pub mod resources;
pub mod server;

pub use server::{openapi, router, serve};
