//! Parts of the node that handlers may name: each one is what one domain offers to the API.
//!
//! The signature of a handler is the list of what it can reach: its
//! [`super::context::RequestContext`], and some of these parts. A part that acts for the caller is
//! an extractor; the others are `State`. A part keeps the node and shows only its own domain. A
//! clone counts references and allocates nothing.

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod instances;
pub(crate) mod jobs;
pub(crate) mod operations;
pub(crate) mod peer_network;
