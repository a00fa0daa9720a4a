//! Change feed: log of changed rows.

#[cfg(test)]
mod damage_tests;
pub(crate) mod items;
pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod write;
