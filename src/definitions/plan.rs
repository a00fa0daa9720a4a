//! What a deployment changes: which definitions come, change and go, and what its author should know.

use std::path::Path;

use orlog_model::{Deployed, Deployment, ProgramRef, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::files::Definition;

/// What a deployment changes, or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Plan {
    /// The number of the deployment in force afterwards; the old one where nothing changes.
    pub number: u64,
    /// Nothing was done: somebody only wanted to know.
    pub dry_run: bool,
    /// Sagas that had no definition in force.
    pub added: Vec<Listed>,
    /// Sagas whose definition is another than before.
    pub changed: Vec<Changed>,
    /// Definitions that take no new instances any more, because no file has their saga. Their instances go on.
    pub retired: Vec<Listed>,
    /// Definitions that stay as they are.
    pub unchanged: Vec<Listed>,
    /// Upstreams whose file is new, was changed or is gone. Only a reload looks at them.
    pub upstreams: Vec<String>,
    /// What is allowed, but should be known.
    pub warnings: Vec<String>,
}

/// A definition, shortly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Listed {
    /// Its name.
    pub saga: String,
    /// The author's number for it.
    pub version: u32,
    /// Its identity, in hexadecimal.
    pub hash: String,
    /// The name of its file.
    pub file: String,
}

/// A definition that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Changed {
    /// The new one.
    #[serde(flatten)]
    pub to: Listed,
    /// The author's number for the old one.
    pub from_version: u32,
    /// The identity of the old one, in hexadecimal.
    pub from_hash: String,
}

impl Plan {
    /// What putting `new` in force changes.
    pub(super) fn of(standing: Option<&Deployment>, new: &[Definition]) -> Self {
        let old: Vec<&Deployed> = standing.into_iter().flat_map(Deployment::in_force).collect();
        let mut plan = Self {
            number: standing.map_or(0, |standing| standing.number),
            dry_run: true,
            added: Vec::new(),
            changed: Vec::new(),
            retired: Vec::new(),
            unchanged: Vec::new(),
            upstreams: Vec::new(),
            warnings: Vec::new(),
        };
        for (program, file) in deployable(new) {
            let to = Listed::of(program, &file);
            match old.iter().find(|old| old.program.saga == program.saga) {
                None => plan.added.push(to),
                Some(old) if old.program.hash == program.hash => plan.unchanged.push(to),
                Some(old) => plan.changed.push(Changed {
                    to,
                    from_version: old.program.version,
                    from_hash: hex(&old.program.hash),
                }),
            }
        }
        let stays = |old: &Deployed| deployable(new).any(|(program, _)| program.saga == old.program.saga);
        let gone = old.iter().filter(|old| !stays(old));
        plan.retired = gone.map(|old| Listed::of(&old.program, &old.file)).collect();
        plan
    }

    /// Whether other definitions are in force afterwards.
    #[must_use]
    pub fn changes(&self) -> bool {
        !(self.added.is_empty() && self.changed.is_empty() && self.retired.is_empty())
    }
}

impl Listed {
    fn of(program: &ProgramRef, file: &str) -> Self {
        let hash = hex(&program.hash);
        Self { saga: program.saga.to_string(), version: program.version, hash, file: file.to_owned() }
    }
}

/// Who deploys, when, and the digest of the definitions folder that is up to date with it.
#[derive(Clone, Debug)]
pub(super) struct Occasion<'a> {
    pub(super) at: Timestamp,
    pub(super) by: &'a str,
    pub(super) folder: Option<[u8; 16]>,
}

/// The record of a deployment that follows on `standing`. Retired definitions stay in it while `is_kept`.
pub(super) fn record(
    standing: Option<&Deployment>,
    new: &[Definition],
    occasion: &Occasion<'_>,
    is_kept: impl Fn(&[u8; 16]) -> bool,
) -> Deployment {
    let deployed = |(program, file): (&ProgramRef, String)| {
        let before = standing.into_iter().flat_map(Deployment::in_force).find(|old| old.program == *program);
        let (at, by) = before.map_or((occasion.at, occasion.by.to_owned()), |old| (old.at, old.by.clone()));
        Deployed { program: program.clone(), file, at, by, retired_at: None }
    };
    let mut definitions: Vec<_> = deployable(new).map(deployed).collect();
    let stays = |old: &Deployed| deployable(new).any(|(program, _)| program.hash == old.program.hash);
    let old = standing.into_iter().flat_map(|standing| &standing.definitions);
    let gone = old.filter(|old| !stays(old) && is_kept(&old.program.hash));
    definitions
        .extend(gone.map(|old| Deployed { retired_at: old.retired_at.or(Some(occasion.at)), ..old.clone() }));
    definitions.sort_by(|a, b| {
        let place =
            |one: &Deployed| (one.program.saga.clone(), one.retired_at.is_some(), one.program.version);
        place(a).cmp(&place(b))
    });
    Deployment {
        number: standing.map_or(0, |standing| standing.number) + 1,
        at: occasion.at,
        by: occasion.by.to_owned(),
        folder: occasion.folder,
        definitions,
    }
}

/// The definitions that have a source; those handed over by the program itself are always in force.
fn deployable(definitions: &[Definition]) -> impl Iterator<Item = (&ProgramRef, String)> {
    let sourced = definitions.iter().filter(|definition| definition.source.is_some());
    sourced.map(|definition| {
        let name = definition.file.as_deref().and_then(Path::file_name);
        (definition.program.reference(), name.map(|n| n.to_string_lossy().into_owned()).unwrap_or_default())
    })
}

pub(super) fn hex(hash: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*hash).simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::files::{SourceFile, compile};

    fn definition(saga: &str, version: u32) -> Definition {
        let text = format!(
            "saga: {saga}\nversion: {version}\nstart: Placed\nsteps:\n  - {{ id: a, do: {{ effect: x.y }} }}\n"
        );
        let file = SourceFile { path: format!("{saga}.saga.yaml").into(), bytes: text.as_bytes().into() };
        compile(&file).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn deploy(standing: Option<&Deployment>, new: &[Definition], seconds: i64, by: &str) -> Deployment {
        let occasion = Occasion { at: at(seconds), by, folder: None };
        record(standing, new, &occasion, |_| true)
    }

    fn sagas(listed: &[Listed]) -> Vec<(&str, u32)> {
        listed.iter().map(|one| (one.saga.as_str(), one.version)).collect()
    }

    #[test]
    fn a_plan_says_what_comes_changes_goes_and_stays() {
        let first = deploy(None, &[definition("a", 1), definition("b", 1), definition("c", 1)], 1, "alice");
        let new = [definition("b", 2), definition("c", 1), definition("d", 1)];
        let plan = Plan::of(Some(&first), &new);
        assert_eq!(sagas(&plan.added), [("d", 1)]);
        assert_eq!(sagas(&plan.retired), [("a", 1)]);
        assert_eq!(sagas(&plan.unchanged), [("c", 1)]);
        let changed: Vec<_> =
            plan.changed.iter().map(|c| (&*c.to.saga, c.from_version, c.to.version)).collect();
        assert_eq!(changed, [("b", 1, 2)]);
        assert!(plan.changes());
        assert!(
            !Plan::of(Some(&first), &[definition("a", 1), definition("b", 1), definition("c", 1)]).changes()
        );
    }

    #[test]
    fn a_record_keeps_since_when_and_by_whom_and_what_was_retired() {
        let first = deploy(None, &[definition("a", 1), definition("b", 1)], 1, "alice");
        let second = deploy(Some(&first), &[definition("a", 2), definition("b", 1)], 2, "bob");
        assert_eq!((first.number, second.number, second.at), (1, 2, at(2)));
        let shown: Vec<_> = second
            .definitions
            .iter()
            .map(|d| (d.program.saga.as_str(), d.program.version, d.at, d.by.as_str(), d.retired_at))
            .collect();
        let expected = [
            ("a", 2, at(2), "bob", None),
            ("a", 1, at(1), "alice", Some(at(2))),
            ("b", 1, at(1), "alice", None),
        ];
        assert_eq!(shown, expected);
        let third = deploy(Some(&second), &[definition("a", 1)], 3, "carol");
        let back = third.find(&definition("a", 1).program.reference().hash).unwrap();
        assert_eq!((back.retired_at, back.at, back.by.as_str()), (None, at(3), "carol"));
        let retired: Vec<_> = third.definitions.iter().filter_map(|d| d.retired_at).collect();
        assert_eq!(retired, [at(3), at(3)], "version 2 of a, and b");
        let occasion = Occasion { at: at(4), by: "dora", folder: None };
        let fourth = record(Some(&third), &[], &occasion, |hash| *hash == back.program.hash);
        assert_eq!(fourth.definitions.len(), 1, "what was collected is forgotten");
        assert_eq!(fourth.in_force().count(), 0);
    }
}
