//! Doctor: checks the dependencies and settings of a node in sequence and reports remedies.
//!
//! It changes nothing and takes no lock, so it can run beside a node. Checks that require a running
//! node use [`crate::app::App::diagnostics`].

pub mod check;
mod clock;
mod data_dir;
mod definitions;
mod dependencies;
pub(crate) mod diagnostics;
mod incidents;
mod job_consumers;
mod limits;
mod listen;
pub mod tables;
pub(crate) mod trends;

use crate::config::{BusKind, Config};
pub use check::{CheckResult, CheckStatus};
pub use diagnostics::DiagnosisLimits;

/// Runs the checks of a node with this configuration.
///
/// With `deep`, every row of every store is read.
pub async fn run_checks(config: &Config, deep: bool) -> Vec<CheckResult> {
    let watch = clock::ClockComparison::start();
    let mut findings = vec![listen::check_listen(config, data_dir::is_in_use(config))];
    if config.role.runs_sagas() {
        // First, because the other checks read the tables in this process.
        let is_readable = data_dir::check_rights(config).status != CheckStatus::Error;
        let damage = if deep && is_readable {
            tables::check_all(config).await
        } else {
            Vec::new()
        };
        if damage
            .iter()
            .all(|found| found.status != CheckStatus::Error)
        {
            findings.extend(data_dir::check_data_dir(config));
        }

        findings.extend(damage);
    }

    let connected = match config.bus.kind {
        BusKind::Nats => dependencies::check_bus(config, &mut findings).await,
        BusKind::Embedded => None,
    };
    findings.extend(definitions::check_definitions(config, connected.as_ref()));
    findings.extend(dependencies::check_secrets(config));
    findings.extend(dependencies::check_hosts(config).await);
    findings.push(watch.stop());
    findings.push(limits::check_open_files());

    findings
}
