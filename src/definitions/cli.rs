//! Commands for definitions: checked, tested and simulated without a node, deployed and migrated on one.

pub(crate) mod check;
pub(crate) mod deploy;
pub(crate) mod explore;
pub(crate) mod graph;
pub(crate) mod migrate;
pub(crate) mod reload;
pub(crate) mod simulate;
pub(crate) mod test;
