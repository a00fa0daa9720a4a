//! Carries a trace through a decision: which span led to an input, and which one what follows goes on from.
//!
//! The ids of these spans are made of what is committed, so that a timer or a work item found after a crash goes on in the
//! same trace.

use std::time::Instant;

use orlog_model::{Commit, Input, Instance, Original, SpanKey, TraceParent, WorkItem};

use crate::telemetry::tracer::{Decided, Fired, What};

/// Gives what was decided a span of its own, from which work and timers go on; `None` where nobody follows the input.
pub(crate) fn decided(
    commit: &mut Commit,
    input: &Input,
    before: Option<&Instance>,
    begun: Instant,
) -> Option<Box<Decided>> {
    let (parent, timer) = cause(commit, input, before)?;
    let (span, version) = became(commit)?;
    let own = parent.at(span);
    for item in &mut commit.work {
        item.trace = Some(own.clone());
    }
    if let Some(instance) = &mut commit.instance {
        let armed = instance.timers.iter_mut().filter(|timer| Some(timer.token) == version);
        armed.for_each(|timer| timer.trace = Some(own.clone()));
    }
    Some(Box::new(Decided { own, parent, timer, begun, decided: Instant::now() }))
}

/// The span that led to an input, and the timer where it was one.
fn cause(commit: &Commit, input: &Input, before: Option<&Instance>) -> Option<(TraceParent, Option<Fired>)> {
    let Input::Timer(fired) = input else {
        return input.trace().filter(|trace| trace.is_sampled()).map(|trace| (trace.clone(), None));
    };
    let armed = before?.timers.iter().find(|t| t.name == fired.name && t.token == fired.token)?;
    let armed = armed.trace.clone().filter(TraceParent::is_sampled)?;
    let own = armed.at(SpanKey::of_timer(&commit.key, fired.token, fired.due));
    Some((own, Some(Fired { name: fired.name.clone(), due: fired.due, armed })))
}

/// The id of a commit's span, and the version that a transition led to.
fn became(commit: &Commit) -> Option<(SpanKey, Option<u64>)> {
    let other = |what: &str, input: &Input| (SpanKey::of_input(what, &commit.key, input.id().as_str()), None);
    Some(match What::of(commit)? {
        What::Transition(record) => {
            (SpanKey::of_transition(&commit.key, record.version), Some(record.version))
        }
        What::Kept(input) => other("kept", input),
        What::SetAside(letter) => match &letter.original {
            Original::Input(input) => other("set aside", input),
            Original::Message { .. } => return None,
        },
    })
}

/// Gives the work on an item a span of its own; returns the one above, where somebody follows it.
pub(crate) fn offered(item: &mut WorkItem) -> Option<TraceParent> {
    let own = item.trace.as_ref().filter(|trace| trace.is_sampled())?.at(SpanKey::of_work(item.id));
    item.trace.replace(own)
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        CorrelationId, EventId, InstanceKey, Name, Record, SagaName, Status, TenantId, TimerFired, Timestamp,
    };

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn key() -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        }
    }

    fn transition() -> Commit {
        let at = Timestamp::from_millis(1);
        let mut commit = Commit::empty(key(), at);
        commit.history = Some(Record {
            version: 2,
            at,
            input: EventId::new("e").unwrap(),
            label: "Paid".to_owned(),
            note: "stepped".to_owned(),
            status: Status::Running,
            work: Vec::new(),
            origin: orlog_model::Origin::default(),
        });
        commit
    }

    fn order(trace: Option<&str>) -> Input {
        Input::Workflow(orlog_model::WorkflowCommand {
            id: EventId::new("w").unwrap(),
            at: Timestamp::from_millis(1),
            trace: trace.and_then(TraceParent::new),
            order: orlog_model::WorkflowOrder::Stop { from: key(), reason: String::new() },
        })
    }

    #[test]
    fn a_transition_has_the_same_span_each_time_it_is_decided() {
        let once = decided(&mut transition(), &order(Some(TRACE)), None, Instant::now()).unwrap();
        let again = decided(&mut transition(), &order(Some(TRACE)), None, Instant::now()).unwrap();
        assert_eq!((once.own.clone(), once.parent.as_str()), (again.own, TRACE));
        assert_eq!(once.own.span_id(), SpanKey::of_transition(&key(), 2).to_string());
    }

    #[test]
    fn nobody_follows_what_came_without_a_trace_or_with_one_that_is_not_kept() {
        for trace in [None, Some(TRACE.replace("-01", "-00"))] {
            let input = order(trace.as_deref());
            assert!(decided(&mut transition(), &input, None, Instant::now()).is_none());
        }
        let timer = TimerFired { name: Name::new("t").unwrap(), token: 1, due: Timestamp::from_millis(5) };
        assert!(decided(&mut transition(), &Input::Timer(timer), None, Instant::now()).is_none());
    }
}
