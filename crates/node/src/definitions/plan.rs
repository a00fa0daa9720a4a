//! Plan of a deployment: added, changed and retired definitions, and warnings.

use std::path::Path;

use orlog_model::{DefinitionRef, DeployedDefinition, DeployedSchedule, Deployment, Timestamp};
use orlog_program::Diagnostic;
use orlog_store::PinCounts;
use serde::Serialize;
use utoipa::ToSchema;

use super::files::LoadedDefinition;

/// Changes of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DeploymentPlan {
    /// Context that owns the definitions; absent if they are shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Deployment number after the activation; unchanged if no definition changes.
    pub number: u64,
    /// Whether this is a dry run without changes.
    pub dry_run: bool,
    /// Sagas without a previously active definition.
    pub added: Vec<DefinitionSummary>,
    /// Sagas whose definition changes.
    pub changed: Vec<DefinitionChange>,
    /// Definitions that start no new instances, because no file has their saga. Their instances
    /// continue.
    pub retired: Vec<DefinitionSummary>,
    /// Unchanged definitions.
    pub unchanged: Vec<DefinitionSummary>,
    /// Schedules of files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleChange>,
    /// Upstreams that are new, changed or removed. Only a reload reads them again.
    pub upstreams: Vec<String>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// Summary of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DefinitionSummary {
    /// Saga name.
    pub saga: String,
    /// Version number set by the author.
    pub version: u32,
    /// Hash of the definition, in hexadecimal.
    pub hash: String,
    /// Name of its file.
    pub file: String,
}

/// Schedule of a file in a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ScheduleChange {
    /// `added`, `changed`, `removed` or `unchanged`.
    pub change: &'static str,
    /// Name of the schedule.
    pub name: String,
    /// Tenant.
    pub tenant: String,
    /// Name of its file.
    pub file: String,
}

impl ScheduleChange {
    /// Returns the changes of a deployment with these schedules; `None`: those of the current one
    /// stay.
    pub(super) fn of(current: Option<&Deployment>, new: Option<&[DeployedSchedule]>) -> Vec<Self> {
        let current = || {
            current
                .into_iter()
                .flat_map(|current| &current.schedules)
                // Schedules that an earlier deployment removed are in the record, but are no change
                // now.
                .filter(|old| !old.removed)
        };

        let schedules = new.map_or_else(
            || current().cloned().collect(),
            |new| schedules_of(current(), new),
        );
        // First the removed ones: each of them has a current schedule of the same name.
        let change = |new: &DeployedSchedule| match current().find(|old| is_same(old, new)) {
            _ if new.removed => "removed",
            None => "added",
            Some(old) if old == new => "unchanged",
            Some(_) => "changed",
        };

        schedules
            .iter()
            .map(|new| Self {
                change: change(new),
                name: new.name.clone(),
                tenant: new.tenant.to_string(),
                file: new.file.clone(),
            })
            .collect()
    }
}

/// Returns the schedules of files, and the current ones of other files.
pub(super) fn kept_schedules(
    current: &Deployment,
    new: &[DeployedSchedule],
) -> Vec<DeployedSchedule> {
    let others = current.schedules.iter().filter(|old| !old.removed);
    let others = others
        .filter(|old| !new.iter().any(|new| is_same(old, new)))
        .cloned();
    let mut all: Vec<_> = others.chain(new.iter().cloned()).collect();
    all.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
    all
}

fn is_same(one: &DeployedSchedule, other: &DeployedSchedule) -> bool {
    (&one.tenant, &one.name) == (&other.tenant, &other.name)
}

/// Returns the schedules of a record: the new ones, and those that have no file any more.
pub(super) fn schedules(
    current: Option<&Deployment>,
    new: &[DeployedSchedule],
) -> Vec<DeployedSchedule> {
    // Removed schedules stay in the record: a shard that moves to this process later must delete
    // them, too.
    schedules_of(
        current.into_iter().flat_map(|current| &current.schedules),
        new,
    )
}

fn schedules_of<'a>(
    old: impl Iterator<Item = &'a DeployedSchedule>,
    new: &[DeployedSchedule],
) -> Vec<DeployedSchedule> {
    let removed = old.filter(|old| !new.iter().any(|new| is_same(old, new)));
    let removed = removed.map(|old| DeployedSchedule {
        removed: true,
        ..old.clone()
    });
    let mut all: Vec<_> = new.iter().cloned().chain(removed).collect();
    all.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
    all
}

/// Definition that replaces another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DefinitionChange {
    /// New definition.
    #[serde(flatten)]
    pub to: DefinitionSummary,
    /// Version number of the previous definition.
    pub from_version: u32,
    /// Hash of the previous definition, in hexadecimal.
    pub from_hash: String,
}

impl DeploymentPlan {
    /// Computes the changes of an activation of `new`.
    pub(super) fn of(current: Option<&Deployment>, new: &[LoadedDefinition]) -> Self {
        let old: Vec<&DeployedDefinition> =
            current.into_iter().flat_map(Deployment::active).collect();
        let mut plan = Self {
            context: None,
            number: current.map_or(0, |current| current.number),
            dry_run: true,
            added: Vec::new(),
            changed: Vec::new(),
            retired: Vec::new(),
            unchanged: Vec::new(),
            schedules: Vec::new(),
            upstreams: Vec::new(),
            warnings: Vec::new(),
        };
        for (program, file) in deployable(new) {
            let to = DefinitionSummary::of(program, &file);
            match old.iter().find(|old| old.program.saga == program.saga) {
                None => plan.added.push(to),
                Some(old) if old.program.hash == program.hash => plan.unchanged.push(to),
                Some(old) => plan.changed.push(DefinitionChange {
                    to,
                    from_version: old.program.version,
                    from_hash: hex::encode(old.program.hash),
                }),
            }
        }

        // By saga: another version of it is a change, not a retirement.
        let remains = |old: &DeployedDefinition| {
            deployable(new).any(|(program, _)| program.saga == old.program.saga)
        };
        let removed = old.iter().filter(|old| !remains(old));
        plan.retired = removed
            .map(|old| DefinitionSummary::of(&old.program, &old.file))
            .collect();

        plan
    }

    /// Returns whether the set of active definitions changes.
    #[must_use]
    pub fn changes(&self) -> bool {
        !(self.added.is_empty() && self.changed.is_empty() && self.retired.is_empty())
    }
}

impl DefinitionSummary {
    fn of(program: &DefinitionRef, file: &str) -> Self {
        let hash = hex::encode(program.hash);
        Self {
            saga: program.saga.to_string(),
            version: program.version,
            hash,
            file: file.to_owned(),
        }
    }
}

/// Changes of versions that a deployment accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeployPolicy {
    /// Whether a version may be lower than the active one.
    pub allow_downgrade: bool,
    /// Whether other content may replace a version with live instances.
    pub replace_used_version: bool,
}

impl Default for DeployPolicy {
    fn default() -> Self {
        Self {
            allow_downgrade: false,
            replace_used_version: true,
        }
    }
}

/// Returns the versions of a plan that a deployment must not activate.
pub(super) fn version_conflicts(
    plan: &DeploymentPlan,
    policy: DeployPolicy,
    pins: &PinCounts,
) -> Vec<Diagnostic> {
    plan.changed
        .iter()
        .filter_map(|change| version_conflict(change, policy, pins))
        .collect()
}

fn version_conflict(
    change: &DefinitionChange,
    policy: DeployPolicy,
    pins: &PinCounts,
) -> Option<Diagnostic> {
    let DefinitionChange {
        to:
            DefinitionSummary {
                saga,
                version,
                file,
                ..
            },
        from_version,
        from_hash,
    } = change;

    let (message, suggestion) = if version < from_version && !policy.allow_downgrade {
        let message =
            format!("{saga} version {version} is lower than the active version {from_version}");
        (
            message,
            format!(
                "set `version: {}`, or activate it with --allow-downgrade",
                from_version + 1
            ),
        )
    } else if version == from_version && !policy.replace_used_version {
        let mut hash = [0; 16];
        hex::decode_to_slice(from_hash, &mut hash).ok()?;

        // Without live instances, no run changes its meaning.
        let live = pins.of(&hash).live;
        if live == 0 {
            return None;
        }

        let message = format!(
            "{saga} version {version} changed, but {live} live instances use its active content"
        );
        (message, format!("set `version: {}`", from_version + 1))
    } else {
        return None;
    };

    let file = file.clone();
    let suggestion = Some(suggestion);

    Some(Diagnostic {
        file,
        line: 0,
        column: 0,
        path: "version".to_owned(),
        message,
        suggestion,
    })
}

/// Deploying user, time, and the digest of the definitions directory that the deployment matches.
#[derive(Clone, Debug)]
pub(super) struct DeploymentMetadata<'a> {
    pub(super) at: Timestamp,
    pub(super) deployed_by: &'a str,
    pub(super) definitions_digest: Option<[u8; 16]>,
}

/// Creates the record of a deployment that follows `current`, without its owner. Retired
/// definitions stay in it while `is_kept` returns true.
pub(super) fn record(
    current: Option<&Deployment>,
    new: &[LoadedDefinition],
    metadata: &DeploymentMetadata<'_>,
    is_stored: impl Fn(&[u8; 16]) -> bool,
) -> Deployment {
    let mut definitions: Vec<_> = deployable(new)
        .map(|(program, file)| {
            let before = current
                .into_iter()
                .flat_map(Deployment::active)
                .find(|old| old.program == *program);

            // An unchanged definition keeps its deployment, so that the record shows since when it
            // is active.
            let (at, by) = before.map_or((metadata.at, metadata.deployed_by.to_owned()), |old| {
                (old.at, old.deployed_by.clone())
            });

            DeployedDefinition {
                program: program.clone(),
                file,
                at,
                deployed_by: by,
                retired_at: None,
                events: Vec::new(),
            }
        })
        .collect();

    // By hash, not by saga: the previous content of a changed definition is retired, too.
    let remains = |old: &DeployedDefinition| {
        deployable(new).any(|(program, _)| program.hash == old.program.hash)
    };
    let old = current.into_iter().flat_map(|current| &current.definitions);

    // Retired definitions stay while their instances may need them.
    let removed = old.filter(|old| !remains(old) && is_stored(&old.program.hash));
    definitions.extend(removed.map(|old| DeployedDefinition {
        retired_at: old.retired_at.or(Some(metadata.at)),
        ..old.clone()
    }));
    definitions.sort_by(|a, b| {
        let sort_key = |one: &DeployedDefinition| {
            (
                one.program.saga.clone(),
                one.retired_at.is_some(),
                one.program.version,
            )
        };
        sort_key(a).cmp(&sort_key(b))
    });

    Deployment {
        context: None,
        schedules: Vec::new(),
        number: current
            .map_or(0, |current| current.number)
            .saturating_add(1),
        at: metadata.at,
        deployed_by: metadata.deployed_by.to_owned(),
        definitions_digest: metadata.definitions_digest,
        definitions,
    }
}

/// Adds the event types that the active definitions of a record consume.
pub(super) fn add_events(record: &mut Deployment, active: &[LoadedDefinition]) {
    for deployed in record
        .definitions
        .iter_mut()
        .filter(|deployed| deployed.retired_at.is_none())
    {
        let found = active
            .iter()
            .find(|active| *active.program.definition_ref() == deployed.program);
        let events = found
            .into_iter()
            .flat_map(|found| &found.program.manifest().subscriptions);
        // A release that cannot load the definition finds here which events it must dead-letter.
        deployed.events = events.map(|event| event.kind.clone()).collect();
    }
}

/// Returns the definitions that have a source; built-in programs are always active.
fn deployable(definitions: &[LoadedDefinition]) -> impl Iterator<Item = (&DefinitionRef, String)> {
    let sourced = definitions
        .iter()
        .filter(|definition| definition.source.is_some());
    sourced.map(|definition| {
        let name = definition.file.as_deref().and_then(Path::file_name);
        (
            definition.program.definition_ref(),
            name.map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::files::{SourceFile, compile};

    fn definition(saga: &str, version: u32) -> LoadedDefinition {
        let text = format!(
            "saga: {saga}\nversion: {version}\nstart: Placed\nsteps:\n  - {{ id: a, do: \
             {{ effect: x.y }} }}\n"
        );
        let file = SourceFile {
            path: format!("{saga}.saga.yaml").into(),
            bytes: text.as_bytes().into(),
        };
        compile(&file).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn deploy(
        current: Option<&Deployment>,
        new: &[LoadedDefinition],
        seconds: i64,
        by: &str,
    ) -> Deployment {
        let metadata = DeploymentMetadata {
            at: at(seconds),
            deployed_by: by,
            definitions_digest: None,
        };
        record(current, new, &metadata, |_| true)
    }

    fn sagas(listed: &[DefinitionSummary]) -> Vec<(&str, u32)> {
        listed
            .iter()
            .map(|one| (one.saga.as_str(), one.version))
            .collect()
    }

    #[test]
    fn deployment_plan_lists_added_changed_removed_and_unchanged() {
        let first = deploy(
            None,
            &[definition("a", 1), definition("b", 1), definition("c", 1)],
            1,
            "alice",
        );
        let new = [definition("b", 2), definition("c", 1), definition("d", 1)];
        let plan = DeploymentPlan::of(Some(&first), &new);
        assert_eq!(sagas(&plan.added), [("d", 1)]);
        assert_eq!(sagas(&plan.retired), [("a", 1)]);
        assert_eq!(sagas(&plan.unchanged), [("c", 1)]);
        let changed: Vec<_> = plan
            .changed
            .iter()
            .map(|c| (&*c.to.saga, c.from_version, c.to.version))
            .collect();
        assert_eq!(changed, [("b", 1, 2)]);
        assert!(plan.changes());
        assert!(
            !DeploymentPlan::of(
                Some(&first),
                &[definition("a", 1), definition("b", 1), definition("c", 1)]
            )
            .changes()
        );
    }

    #[test]
    fn deployment_record_keeps_time_actor_and_retired_definitions() {
        let first = deploy(None, &[definition("a", 1), definition("b", 1)], 1, "alice");
        let second = deploy(
            Some(&first),
            &[definition("a", 2), definition("b", 1)],
            2,
            "bob",
        );
        assert_eq!((first.number, second.number, second.at), (1, 2, at(2)));
        let actual: Vec<_> = second
            .definitions
            .iter()
            .map(|d| {
                (
                    d.program.saga.as_str(),
                    d.program.version,
                    d.at,
                    d.deployed_by.as_str(),
                    d.retired_at,
                )
            })
            .collect();
        let expected = [
            ("a", 2, at(2), "bob", None),
            ("a", 1, at(1), "alice", Some(at(2))),
            ("b", 1, at(1), "alice", None),
        ];
        assert_eq!(actual, expected);
        let third = deploy(Some(&second), &[definition("a", 1)], 3, "carol");
        let back = third
            .find(&definition("a", 1).program.definition_ref().hash)
            .unwrap();
        assert_eq!(
            (back.retired_at, back.at, back.deployed_by.as_str()),
            (None, at(3), "carol")
        );
        let retired: Vec<_> = third
            .definitions
            .iter()
            .filter_map(|d| d.retired_at)
            .collect();
        assert_eq!(retired, [at(3), at(3)], "version 2 of a, and b");
        let metadata = DeploymentMetadata {
            at: at(4),
            deployed_by: "dora",
            definitions_digest: None,
        };
        let fourth = record(Some(&third), &[], &metadata, |hash| {
            *hash == back.program.hash
        });
        assert_eq!(
            fourth.definitions.len(),
            1,
            "what was collected is forgotten"
        );
        assert_eq!(fourth.active().count(), 0);
    }
}
