//! The node itself: information, drain, log filter, stored rows and mailboxes.

pub(crate) mod info;
