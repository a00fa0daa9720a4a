//! A doctor: looks at everything that a node needs, one after the other, and says what is wrong and what to do about it.
//!
//! It changes nothing and takes no lock, so it can be called beside a running node. What only a running node knows it is asked for
//! ([`crate::app::App::examined`]).

mod clock;
mod definitions;
pub mod finding;
mod folder;
mod limits;
mod listen;
mod outside;

use crate::config::{BusKind, Config};
pub use finding::{Finding, Level};

/// Looks at what a node with this configuration would meet.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let watch = clock::Watch::start();
    let mut findings = vec![listen::examine(config, folder::is_open(config))];
    if config.roles.runs_sagas() {
        findings.extend(folder::examine(config));
    }
    let connected = match config.bus.kind {
        BusKind::Nats => outside::bus(config, &mut findings).await,
        BusKind::Embedded => None,
    };
    findings.extend(definitions::examine(config, connected.as_ref()));
    findings.extend(outside::secrets(config));
    findings.extend(outside::hosts(config).await);
    findings.push(watch.stop());
    findings.push(limits::open_files());
    findings
}
