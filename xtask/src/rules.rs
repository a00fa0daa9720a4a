//! The house rules, one file each; every file names the rule, its reason and its remedy, and a `check`.

pub(crate) mod circles;
pub(crate) mod error_codes;
pub(crate) mod floors;
pub(crate) mod forbidden;
pub(crate) mod links;
pub(crate) mod markers;
pub(crate) mod opening;
pub(crate) mod size;
pub(crate) mod walls;
