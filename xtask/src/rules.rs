//! The house rules, one file each; every file names the rule, its reason and its remedy, and a `check`.

pub(crate) mod boundaries;
pub(crate) mod cycles;
pub(crate) mod error_codes;
pub(crate) mod file_header;
pub(crate) mod forbidden;
pub(crate) mod layers;
pub(crate) mod links;
pub(crate) mod markers;
pub(crate) mod size;
