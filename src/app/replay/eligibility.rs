//! Whether an instance may be replaced by what its inputs make of it.

use std::collections::BTreeSet;

use orlog_model::{Instance, Record, Task, Work, WorkKind};
use orlog_simulator::rebuild::{Rebuilt, Remains};
use uuid::Uuid;

use super::request::{Fate, ReplayOrder, ReplayedWork};

/// An instance, and what there is to know about it.
pub(super) struct Case<'a> {
    pub(super) order: &'a ReplayOrder,
    pub(super) old: Option<&'a Instance>,
    pub(super) history: &'a [Record],
    pub(super) remains: &'a Remains<'a>,
}

impl Case<'_> {
    pub(super) fn judge(&self, rebuilt: &Rebuilt) -> Fate {
        if let Some(letter) = rebuilt.letters.first() {
            return Fate::Left(format!("an input cannot be applied: {}", letter.message));
        }
        let Some(new) = &rebuilt.instance else {
            return Fate::Left("no event since then begins it".to_owned());
        };
        let Some(old) = self.old else { return Fate::New };
        if is_same(old, new) {
            return Fate::Unchanged;
        }
        match self.obstacle(old, new) {
            Some(why) => Fate::Left(why),
            None => Fate::Replaced,
        }
    }

    fn obstacle(&self, old: &Instance, new: &Instance) -> Option<String> {
        if old.created_at < self.order.from {
            return Some(format!("it began before, at {}", old.created_at));
        }
        if old.paused {
            return Some("it is paused; resume it first".to_owned());
        }
        if let Some(Record { label, at, .. }) = self.history.iter().find(|record| !self.is_on_the_bus(record))
        {
            return Some(format!("{label} at {at} was not on the bus: replayed, it would be undone"));
        }
        if self.order.work == ReplayedWork::Emit
            && let Some(Record { label, at, .. }) = self.history.iter().find(|record| is_timer(record))
        {
            return Some(format!("the timer {label} fired at {at}; replayed in this moment, it would not"));
        }
        if tasks(old) != tasks(new) {
            return Some("it waits for another person's answer than it would".to_owned());
        }
        self.nobody_performs(old, new)
    }

    /// Work without an outcome that nothing in the outbox stands for, and that is not to be sent.
    fn nobody_performs(&self, old: &Instance, new: &Instance) -> Option<String> {
        if self.order.work == ReplayedWork::Emit {
            return None;
        }
        let known: BTreeSet<Uuid> = old.open.iter().map(|open| open.id).collect();
        let waits = new
            .open
            .iter()
            .find(|open| matches!(open.kind, WorkKind::Effect | WorkKind::Saga) && !known.contains(&open.id));
        waits.map(|open| {
            format!("it would wait for {}, which nobody performs while work is suppressed", open.tag)
        })
    }

    /// Whether the replay has the input of this transition, or makes it.
    fn is_on_the_bus(&self, record: &Record) -> bool {
        if let Some(work) = record.input.as_str().strip_prefix("outcome:").and_then(|work| work.parse().ok())
        {
            return self.remains.results.contains_key(&work);
        }
        is_timer(record) || self.remains.inputs.iter().any(|(_, input)| input.id() == record.input)
    }
}

/// Whether the two mean the same, whenever they came to it.
fn is_same(old: &Instance, new: &Instance) -> bool {
    let open = |instance: &Instance| -> BTreeSet<Uuid> { instance.open.iter().map(|open| open.id).collect() };
    old.program.hash == new.program.hash
        && (old.version, old.status, &old.state) == (new.version, new.status, &new.state)
        && open(old) == open(new)
}

fn is_timer(record: &Record) -> bool {
    record.input.as_str().starts_with("timer:")
}

fn tasks(instance: &Instance) -> BTreeSet<Uuid> {
    instance.tasks.iter().map(|Task { id, .. }| *id).collect()
}

/// Whether something comes back of it.
pub(super) fn has_outcome(work: &Work) -> bool {
    match work {
        Work::Effect(_) | Work::Start(_) => true,
        Work::Command(_) | Work::Fact(_) | Work::Stop(_) | Work::End(_) => false,
    }
}
