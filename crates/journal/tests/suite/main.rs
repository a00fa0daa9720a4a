//! Tests of the journal contract.

// The attribute marks these modules as tests for clippy, so that helpers may unwrap.
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
