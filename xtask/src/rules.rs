//! Code rules, one file each; every file defines the name, reason and remedy of its rule, and a
//! `check`.

pub(crate) mod boundaries;
pub(crate) mod cycles;
pub(crate) mod density;
pub(crate) mod error_codes;
pub(crate) mod file_header;
pub(crate) mod forbidden;
pub(crate) mod layers;
pub(crate) mod links;
pub(crate) mod markers;
pub(crate) mod requirements;
pub(crate) mod size;
pub(crate) mod words;
