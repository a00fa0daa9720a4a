//! The journal's contract, executed.

// The attribute tells clippy that these are tests: helpers may unwrap.
#[cfg(test)]
mod appending;
#[cfg(test)]
mod disk_failures;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod support;
