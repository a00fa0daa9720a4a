//! What a handler told besides its answer: facts that go out whatever becomes of the saga.

use orlog_model::{Commit, EventId, Fact, Input, Outcome, TraceParent, Work, WorkItem, derived_id};

use crate::context::Subject;
use crate::decision::Decision;

/// The outcome as if it told nothing besides. What a commit keeps of it (held, set aside) is this, so that facts go out once.
pub(crate) fn bare(outcome: &Outcome) -> Outcome {
    Outcome { facts: Vec::new(), ..outcome.clone() }
}

/// Puts the facts into the commit that was made of the bare outcome.
pub(crate) fn told(subject: &Subject<'_>, outcome: &Outcome, mut decision: Decision) -> Decision {
    match &mut decision {
        Decision::Commit(commit) | Decision::Ignore { clear: Some(commit), .. } => {
            tell(subject, outcome, commit);
        }
        Decision::Ignore { clear: None, .. } | Decision::Refuse(_) => {}
    }
    decision
}

fn tell(subject: &Subject<'_>, outcome: &Outcome, commit: &mut Commit) {
    let causation = Input::Outcome(bare(outcome)).id();
    let own = || subject.instance.and_then(|instance| instance.trace.as_ref());
    let trace = outcome.trace.as_ref().or_else(own);
    for (index, fact) in outcome.facts.iter().enumerate() {
        let item = item(subject, outcome, (index, fact), (&causation, trace));
        if let Some(record) = &mut commit.history {
            record.work.push((item.work.label(), item.id));
        }
        commit.work.push(item);
    }
}

/// Its id depends on the work that told it, not on the state of the instance: a second delivery makes the same.
fn item(
    subject: &Subject<'_>,
    outcome: &Outcome,
    (index, fact): (usize, &Fact),
    (causation, trace): (&EventId, Option<&TraceParent>),
) -> WorkItem {
    WorkItem {
        id: derived_id(outcome.at, &[outcome.work_id.as_bytes(), b"fact", &(index as u64).to_le_bytes()]),
        instance: subject.key.clone(),
        work: Work::Fact(fact.clone()),
        deadline: None,
        causation: causation.clone(),
        trace: trace.cloned(),
        created_at: subject.now,
    }
}
