//! The node itself: information, drain, log filter, stored rows and mailboxes.

pub(crate) mod api;
pub(crate) mod cli;
pub(crate) mod info;
