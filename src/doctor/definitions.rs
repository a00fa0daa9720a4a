//! Upstreams and definitions, as a node would read them at its start.

use std::sync::Arc;

use orlog_effect::{Catalog, Observer, Silent};
use orlog_model::Clock;
use orlog_program::{Problem, lint};

use super::check::Finding;
use crate::clock::SystemClock;
use crate::config::{BusKind, Config};
use crate::definitions::{self, Definitions};
use crate::upstreams::{Outside, Upstreams};

const UPSTREAMS: &str = "upstreams";
const DEFINITIONS: &str = "definitions";

/// `outside` is what reaches others over NATS, where they answered.
pub(super) fn examine(config: &Config, outside: Option<&Outside>) -> Vec<Finding> {
    let needs_nats = config.bus.kind == BusKind::Nats && outside.is_none();
    if needs_nats {
        let why = "what reaches others over NATS cannot be looked at while it does not answer";
        return vec![Finding::warn(UPSTREAMS, why, "see to the bus first")];
    }
    let upstreams = Upstreams::new(config.upstreams(), config.effects.clone(), Vec::new())
        .in_role(config.roles, outside.cloned())
        .read();
    let mut findings = Vec::new();
    let found = match upstreams {
        Ok(found) => found,
        Err(problems) => {
            findings.extend(problems.iter().map(|problem| wrong(UPSTREAMS, problem)));
            return findings;
        }
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let attempts: Arc<dyn Observer> = Arc::new(Silent);
    let names: Vec<_> = found.iter().map(|upstream| upstream.name.clone()).collect();
    match Catalog::new(found, &clock, &attempts) {
        Ok(catalog) => {
            findings.push(Finding::ok(
                UPSTREAMS,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") },
            ));
            findings.extend(definitions(config, &catalog));
        }
        Err(error) => findings.push(Finding::bad(UPSTREAMS, error.to_string(), "change one of them")),
    }
    findings
}

fn definitions(config: &Config, catalog: &Catalog) -> Vec<Finding> {
    let Some(folder) = config.definitions.as_ref().filter(|_| config.roles.runs_sagas()) else {
        return Vec::new();
    };
    if !folder.is_dir() {
        let remedy = "make it, or set `definitions` to the folder that has them";
        return vec![Finding::bad(DEFINITIONS, format!("{} is no folder", folder.display()), remedy)];
    }
    let checked = definitions::read_folder(folder)
        .and_then(|files| Definitions::new(Some(folder.clone()), Vec::new()).check(&files, catalog));
    match checked {
        Ok(list) if list.is_empty() => {
            let found =
                format!("{} has no file named *{}", folder.display(), definitions::SUFFIXES.join(" or *"));
            vec![Finding::warn(DEFINITIONS, found, "set `definitions` to the folder that has them")]
        }
        Ok(list) => {
            let names = list.iter().map(|one| one.program.reference().saga.to_string());
            let mut findings = vec![Finding::ok(DEFINITIONS, names.collect::<Vec<_>>().join(", "))];
            for one in &list {
                let file = one.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
                let warnings =
                    one.compiled.as_deref().map(|compiled| lint(compiled, &file)).unwrap_or_default();
                findings.extend(warnings.iter().map(|warning| {
                    Finding::warn(DEFINITIONS, warning.problem.to_string(), "see `orlog check`")
                }));
            }
            findings
        }
        Err(problems) => problems.iter().map(|problem| wrong(DEFINITIONS, problem)).collect(),
    }
}

fn wrong(check: &str, problem: &Problem) -> Finding {
    let remedy = problem.suggestion.clone().unwrap_or_else(|| "change what the message names".to_owned());
    Finding::bad(check, problem.to_string(), remedy)
}
