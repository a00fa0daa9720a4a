//! Stored format: keys, values and journal records.

pub(crate) mod checksum;
#[cfg(test)]
mod fuzz_tests;
pub(crate) mod header;
pub(crate) mod index_keys;
pub(crate) mod keys;
pub(crate) mod range;
pub(crate) mod record;
pub(crate) mod tuple;
pub(crate) mod value;
