//! Change feed: log of changed rows.

pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod write;
