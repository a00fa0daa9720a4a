//! Migration: moves an instance to another definition.

use orlog_model::{Commit, ControlRequest, Input, Instance, Name, TimerChange};
use orlog_program::{Context, Migration, Program};

use crate::commit_builder::{build_commit, with_user};
use crate::context::{DecisionContext, TransitionCause};
use crate::decision::{Decision, Rejection, ignore};
use crate::signal::staleness;

/// Result of a migration check of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationPlan {
    /// The instance can migrate without renames.
    Safe,
    /// The instance can migrate; some of its names change or are removed.
    Mapped,
    /// The instance cannot migrate. One sentence for each obstacle.
    Blocked(Vec<String>),
}

/// Checks a migration without applying it. `context` is the instance with its current program.
#[must_use]
pub fn plan_migration(context: &DecisionContext<'_>, to: &dyn Program) -> MigrationPlan {
    let Some(instance) = context.instance else {
        return MigrationPlan::Blocked(vec!["saga instance not found".to_owned()]);
    };

    match migration(context, instance, to) {
        Ok(Migration {
            is_mapped: true, ..
        }) => MigrationPlan::Mapped,
        Ok(Migration {
            is_mapped: false, ..
        }) => MigrationPlan::Safe,
        Err(reasons) => MigrationPlan::Blocked(reasons),
    }
}

/// Decides a control request to migrate. `context` is the instance with its current program.
#[must_use]
pub fn decide_migration(
    context: &DecisionContext<'_>,
    to: &dyn Program,
    input: &Input,
    control: &ControlRequest,
) -> Decision {
    let Some(instance) = context.instance else {
        return Decision::Reject(Rejection::NotFound);
    };

    if let Some(rejection) = staleness(instance, control) {
        return Decision::Reject(rejection);
    }
    // A repeated request with another id has nothing to do, which is no obstacle.
    if instance.definition.hash == to.definition_ref().hash {
        return ignore("the instance already uses this definition");
    }

    match migration(context, instance, to) {
        Ok(migration) => {
            Decision::Commit(migration_commit(context, instance, to, input, migration))
        }
        Err(reasons) => Decision::Reject(Rejection::MigrationBlocked { reasons }),
    }
}

fn migration(
    context: &DecisionContext<'_>,
    instance: &Instance,
    to: &dyn Program,
) -> Result<Migration, Vec<String>> {
    let reference = to.definition_ref();
    if reference.saga != instance.definition.saga {
        return Err(vec![format!(
            "the definition belongs to the saga {}",
            reference.saga
        )]);
    }

    if instance.status.is_final() {
        return Err(vec![format!(
            "the instance has ended with the status {}",
            instance.status
        )]);
    }

    let program_context = Context {
        key: context.key,
        version: instance.version + 1,
        now: context.now,
        pending_work: &instance.pending_work,
        attempts: 0,
    };

    to.migrate(context.program, &instance.state, &program_context)
}

/// Returns the migrated snapshot, with pending work and tasks under their new names.
fn migration_commit(
    context: &DecisionContext<'_>,
    instance: &Instance,
    to: &dyn Program,
    input: &Input,
    migration: Migration,
) -> Box<Commit> {
    let Migration {
        mut transition,
        tags,
        is_mapped: _,
    } = migration;

    // The new program arms its own timers; only those that it names remain.
    let old = instance.timers.iter().map(|timer| TimerChange::Cancel {
        name: timer.name.clone(),
    });
    transition.timers = old.chain(transition.timers).collect();

    let mut before = instance.clone();
    let renamed = |tag: &Name| {
        tags.iter()
            .find(|(old, _)| old == tag)
            .map(|(_, new)| new.clone())
    };

    // Results arrive under the new tags.
    for tag in before.pending_work.iter_mut().map(|open| &mut open.tag) {
        *tag = renamed(tag).unwrap_or_else(|| tag.clone());
    }
    for tag in before.tasks.iter_mut().map(|task| &mut task.spec.tag) {
        *tag = renamed(tag).unwrap_or_else(|| tag.clone());
    }

    let note = format!(
        "migrated from {} to {}",
        instance.definition.version,
        to.definition_ref().version
    );

    let cause = TransitionCause::new(input, instance.version + 1);
    let context = DecisionContext {
        instance: Some(&before),
        program: to,
        ..*context
    };
    let mut commit = build_commit(&context, cause, transition);

    if let Some(record) = &mut commit.history {
        record.note = with_user(input, note);
    }
    commit
}
