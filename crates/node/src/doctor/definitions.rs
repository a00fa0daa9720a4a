//! Checks of upstreams and definitions, read as at the start of a node.

use std::sync::Arc;

use orlog_effect::{Catalog, EffectObserver, NoopObserver};
use orlog_model::Clock;
use orlog_program::Diagnostic;

use super::check::CheckResult;
use crate::clock::SystemClock;
use crate::config::{BusKind, Config};
use crate::definitions::{self, DefinitionSet, references};
use crate::upstreams::{RemoteDependencies, UpstreamSources};

const UPSTREAMS: &str = "upstreams";
const DEFINITIONS: &str = "definitions";

/// Checks upstreams and definitions. `remote` contains the effects reachable over NATS, if NATS
/// responds.
pub(super) fn check_definitions(
    config: &Config,
    remote: Option<&RemoteDependencies>,
) -> Vec<CheckResult> {
    let needs_nats = config.bus.kind == BusKind::Nats && remote.is_none();
    if needs_nats {
        let reason = "effects over NATS cannot be checked while NATS does not respond";
        return vec![CheckResult::warn(UPSTREAMS, reason, "fix the bus first")];
    }

    let upstreams =
        UpstreamSources::new(config.upstreams(), config.upstreams_dir.clone(), Vec::new())
            .in_role(config.role, remote.cloned())
            .read();
    let found = match upstreams {
        Ok(found) => found,
        Err(problems) => {
            let failed = problems
                .iter()
                .map(|problem| failed_check(UPSTREAMS, problem));
            return failed.collect();
        }
    };
    let mut findings = Vec::new();

    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // The catalog serves only the checks: the doctor executes no effects.
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let names: Vec<_> = found.iter().map(|upstream| upstream.name.clone()).collect();
    match Catalog::new(found, &clock, &observer) {
        Ok(catalog) => {
            let names = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            findings.push(CheckResult::ok(UPSTREAMS, names));
            findings.extend(definitions(config, &catalog));
        }
        Err(error) => {
            findings.push(CheckResult::error(
                UPSTREAMS,
                error.to_string(),
                "change one of the upstreams",
            ));
        }
    }

    findings
}

fn definitions(config: &Config, catalog: &Catalog) -> Vec<CheckResult> {
    let Some(dir) = config
        .definitions_dir
        .as_ref()
        .filter(|_| config.role.runs_sagas())
    else {
        return Vec::new();
    };

    if !dir.is_dir() {
        let remedy = "create it, or set `definitions_dir` to the directory with the definitions";
        return vec![CheckResult::error(
            DEFINITIONS,
            format!("{} is not a directory", dir.display()),
            remedy,
        )];
    }

    let checked = definitions::read_dir(dir)
        .and_then(|files| {
            DefinitionSet::new(Some(dir.clone()), Vec::new()).validate(None, &files, catalog)
        })
        .map(|checked| checked.definitions);
    match checked {
        Ok(list) if list.is_empty() => {
            let found = format!(
                "{} has no file that matches *{}",
                dir.display(),
                definitions::SUFFIXES.join(" or *")
            );
            vec![CheckResult::warn(
                DEFINITIONS,
                found,
                "set `definitions_dir` to the directory with the definitions",
            )]
        }
        Ok(list) => {
            let names = list
                .iter()
                .map(|one| one.program.definition_ref().saga.to_string());
            let mut findings = vec![CheckResult::ok(
                DEFINITIONS,
                names.collect::<Vec<_>>().join(", "),
            )];

            let warnings = references::warnings(&list).into_iter().flatten();
            findings.extend(warnings.map(|warning| {
                CheckResult::warn(
                    DEFINITIONS,
                    warning.diagnostic.to_string(),
                    "see `orlog check`",
                )
            }));

            // The doctor reads no deployment, so that no definition counts as active.
            let problems = references::contradictions(&list, |_| false);
            findings.extend(
                problems
                    .iter()
                    .map(|problem| failed_check(DEFINITIONS, problem)),
            );

            findings
        }
        Err(problems) => problems
            .iter()
            .map(|problem| failed_check(DEFINITIONS, problem))
            .collect(),
    }
}

fn failed_check(check: &str, problem: &Diagnostic) -> CheckResult {
    let remedy = problem
        .suggestion
        .clone()
        .unwrap_or_else(|| "fix the definition named in the message".to_owned());
    CheckResult::error(check, problem.to_string(), remedy)
}
