//! From one definition to another: an instance goes on with a new program where that says how.

use orlog_model::{Commit, Control, Input, Instance, Name, Record, TimerChange};
use orlog_program::{Context, Migration, Program};

use crate::commit_builder::applied;
use crate::commit_builder::audited;
use crate::context::{Cause, Subject};
use crate::decision::{Decision, Refusal, ignore};

/// What would become of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It can go on as it is: nothing of it goes by another name.
    Safe,
    /// It can go on; something of it goes by another name, or is no more.
    Mapped,
    /// It must stay; one sentence for each obstacle.
    Blocked(Vec<String>),
}

/// What would become of an instance, without doing it. `subject` is the instance with its present program.
#[must_use]
pub fn plan(subject: &Subject<'_>, to: &dyn Program) -> Plan {
    let Some(instance) = subject.instance else {
        return Plan::Blocked(vec!["there is no such saga instance".to_owned()]);
    };
    match migration(subject, instance, to) {
        Ok(Migration { mapped: true, .. }) => Plan::Mapped,
        Ok(Migration { mapped: false, .. }) => Plan::Safe,
        Err(reasons) => Plan::Blocked(reasons),
    }
}

/// Decides an instruction to migrate. `subject` is the instance with its present program.
#[must_use]
pub fn migrate(subject: &Subject<'_>, to: &dyn Program, input: &Input, control: &Control) -> Decision {
    let Some(instance) = subject.instance else { return Decision::Refuse(Refusal::NotFound) };
    if let Some(expected) = control.expected_version.filter(|v| *v != instance.version) {
        return Decision::Refuse(Refusal::Version { expected, actual: instance.version });
    }
    if instance.program.hash == to.reference().hash {
        return ignore("it goes by this definition already");
    }
    match migration(subject, instance, to) {
        Ok(migration) => Decision::Commit(Box::new(moved(subject, instance, to, input, migration))),
        Err(reasons) => Decision::Refuse(Refusal::Blocked { reasons }),
    }
}

fn migration(subject: &Subject<'_>, instance: &Instance, to: &dyn Program) -> Result<Migration, Vec<String>> {
    let reference = to.reference();
    if reference.saga != instance.program.saga {
        return Err(vec![format!("the definition is one of the saga {}", reference.saga)]);
    }
    if instance.status.is_final() {
        return Err(vec![format!("the instance is {}: it has ended", instance.status)]);
    }
    let context = Context { key: subject.key, version: instance.version + 1, now: subject.now };
    to.migrate(subject.program, &instance.state, &context)
}

/// The timers are those that the new program names, no others; open work and tasks go by their new names.
fn moved(
    subject: &Subject<'_>,
    instance: &Instance,
    to: &dyn Program,
    input: &Input,
    migration: Migration,
) -> Commit {
    let Migration { mut transition, tags, mapped: _ } = migration;
    let old = instance.timers.iter().map(|timer| TimerChange::Cancel { name: timer.name.clone() });
    transition.timers = old.chain(transition.timers).collect();
    let mut before = instance.clone();
    let renamed = |tag: &Name| tags.iter().find(|(old, _)| old == tag).map(|(_, new)| new.clone());
    for tag in before.open.iter_mut().map(|open| &mut open.tag) {
        *tag = renamed(tag).unwrap_or_else(|| tag.clone());
    }
    for tag in before.tasks.iter_mut().map(|task| &mut task.form.tag) {
        *tag = renamed(tag).unwrap_or_else(|| tag.clone());
    }
    let note = format!("migrated from {} to {}", instance.program.version, to.reference().version);
    let cause = Cause { input, id: input.id(), version: instance.version + 1 };
    let subject = Subject { instance: Some(&before), program: to, ..*subject };
    let mut commit = applied(&subject, &cause, transition);
    commit.history = commit.history.map(|record| Record { note: audited(input, note), ..record });
    commit
}
