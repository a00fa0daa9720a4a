//! Stored format: keys, values and journal records.

pub(crate) mod checksum;
pub(crate) mod definition_source;
pub(crate) mod keys;
pub(crate) mod range;
pub(crate) mod record;
pub(crate) mod tuple;
pub(crate) mod value;
