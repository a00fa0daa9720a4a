//! A doctor: looks at everything that a node needs, one after the other, and says what is wrong and what to do about it.
//!
//! It changes nothing and takes no lock, so it can be called beside a running node. What only a running node knows it is asked for
//! ([`crate::app::App::examined`]).

pub mod check;
mod clock;
mod data_dir;
mod definitions;
mod dependencies;
mod limits;
mod listen;

use crate::config::{BusKind, Config};
pub use check::{Finding, Level};

/// Looks at what a node with this configuration would meet.
pub async fn examine(config: &Config) -> Vec<Finding> {
    let watch = clock::Watch::start();
    let mut findings = vec![listen::examine(config, data_dir::is_open(config))];
    if config.roles.runs_sagas() {
        findings.extend(data_dir::examine(config));
    }
    let connected = match config.bus.kind {
        BusKind::Nats => dependencies::bus(config, &mut findings).await,
        BusKind::Embedded => None,
    };
    findings.extend(definitions::examine(config, connected.as_ref()));
    findings.extend(dependencies::secrets(config));
    findings.extend(dependencies::hosts(config).await);
    findings.push(watch.stop());
    findings.push(limits::open_files());
    findings
}
