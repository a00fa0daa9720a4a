//! What a handler told besides its answer: facts that go out whatever becomes of the saga.

use orlog_model::{Commit, Fact, Input, Outcome, TraceParent, Work, WorkItem, derived_id};

use crate::decide::decide_outcome;
use crate::decision::Decision;
use crate::subject::Subject;

/// Decides an outcome as if it told nothing besides, and puts the facts into the same commit. What the commit keeps of the
/// input (held, set aside) is without them, so that they go out once.
pub(crate) fn decide(subject: &Subject<'_>, outcome: &Outcome) -> Decision {
    let bare = Outcome { facts: Vec::new(), ..outcome.clone() };
    let input = Input::Outcome(bare.clone());
    let mut decision = decide_outcome(subject, &input, &bare);
    match &mut decision {
        Decision::Commit(commit) | Decision::Ignore { clear: Some(commit), .. } => {
            tell(subject, outcome, &input, commit);
        }
        Decision::Ignore { clear: None, .. } | Decision::Refuse(_) => {}
    }
    decision
}

fn tell(subject: &Subject<'_>, outcome: &Outcome, input: &Input, commit: &mut Commit) {
    let trace = subject.instance.and_then(|instance| instance.trace.as_ref());
    for (index, fact) in outcome.facts.iter().enumerate() {
        let item = item(subject, (outcome, input), (index, fact), trace);
        if let Some(record) = &mut commit.history {
            record.work.push((item.work.label(), item.id));
        }
        commit.work.push(item);
    }
}

/// Its id depends on the work that told it, not on the state of the instance: a second delivery makes the same.
fn item(
    subject: &Subject<'_>,
    (outcome, input): (&Outcome, &Input),
    (index, fact): (usize, &Fact),
    trace: Option<&TraceParent>,
) -> WorkItem {
    WorkItem {
        id: derived_id(outcome.at, &[outcome.work_id.as_bytes(), b"fact", &(index as u64).to_le_bytes()]),
        instance: subject.key.clone(),
        work: Work::Fact(fact.clone()),
        deadline: None,
        causation: input.id(),
        trace: trace.cloned(),
        created_at: subject.now,
    }
}
