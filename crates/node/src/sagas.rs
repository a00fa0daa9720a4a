//! Saga instances: how users see and find them, and their failed attempts.

pub mod attempts;
pub mod instance_pages;
pub mod search;
pub mod state;
pub mod view;
