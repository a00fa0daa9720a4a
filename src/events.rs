//! Events: published by the API and by `orlog publish`.

pub(crate) mod api;
pub(crate) mod cli;
