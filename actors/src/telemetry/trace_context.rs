//! Trace context of a transition: the span that caused an input and the span that its consequences
//! continue.
//!
//! The span ids are derived from committed data, so that a timer or work item that is found after a
//! crash continues the same trace.

use std::sync::Arc;
use std::time::Instant;

use orlog_model::{
    Commit, DeadLetterOriginal, Input, Instance, SpanId, TimerFired, TraceParent, WorkItem,
};

use crate::telemetry::tracer::{CommitKind, FiredTimer, TransitionSpan};

/// Starts a span for a transition; its work and timers continue from it. Returns `None` if the
/// input is not traced.
pub(crate) fn start_transition_span(
    commit: &mut Commit,
    input: &Input,
    before: Option<&Instance>,
    started: Instant,
) -> Option<Box<TransitionSpan>> {
    let (parent, timer) = cause(commit, input, before)?;

    let span = became(commit)?;
    let own = parent.with_span(span);

    for item in &mut commit.work {
        item.trace = Some(own.clone());
    }

    if let Some(instance) = commit.instance.as_mut().map(Arc::make_mut) {
        // Timers of earlier transitions continue those.
        for timer in &mut instance.timers {
            let is_new = commit
                .arm
                .iter()
                .any(|row| row.name == timer.name && row.token == timer.token);
            if is_new {
                timer.trace = Some(Box::new(own.clone()));
            }
        }
    }

    Some(Box::new(TransitionSpan {
        own,
        parent,
        timer,
        started,
        decided: Instant::now(),
    }))
}

/// Returns whether an input has a sampled trace.
pub(crate) fn is_traced(input: &Input, before: Option<&Instance>) -> bool {
    let trace = match input {
        Input::Timer(fired) => before.and_then(|instance| armed_by(fired, instance)),
        other => other.trace(),
    };
    trace.is_some_and(TraceParent::is_sampled)
}

/// Returns the trace of the transition that armed a timer.
fn armed_by<'a>(fired: &TimerFired, before: &'a Instance) -> Option<&'a TraceParent> {
    before
        .timers
        .iter()
        .find(|timer| timer.is(fired))?
        .trace
        .as_deref()
}

/// Returns the span that caused an input, and the timer if the input is one.
fn cause(
    commit: &Commit,
    input: &Input,
    before: Option<&Instance>,
) -> Option<(TraceParent, Option<FiredTimer>)> {
    let Input::Timer(fired) = input else {
        return input
            .trace()
            .filter(|trace| trace.is_sampled())
            .map(|trace| (trace.clone(), None));
    };

    let armed = armed_by(fired, before?)
        .filter(|trace| trace.is_sampled())?
        .clone();

    let own = armed.with_span(SpanId::for_timer(&commit.key, fired.token, fired.due));
    Some((
        own,
        Some(FiredTimer {
            name: fired.name.clone(),
            due: fired.due,
            armed,
        }),
    ))
}

/// Returns the id of the commit span.
fn became(commit: &Commit) -> Option<SpanId> {
    let other =
        |kind: &str, input: &Input| SpanId::for_input(kind, &commit.key, input.id().as_str());

    Some(match CommitKind::from_commit(commit)? {
        CommitKind::Transition(record) => SpanId::for_transition(&commit.key, record.version),
        CommitKind::Buffered(input) => other("buffered", input),
        CommitKind::DeadLettered(dead_letter) => match &dead_letter.original {
            DeadLetterOriginal::Input(input) => other("dead-lettered", input),
            DeadLetterOriginal::Message { .. } => return None,
        },
    })
}

/// Starts a span for a work item; returns the parent span if the item is traced.
pub(crate) fn start_work_span(item: &mut WorkItem) -> Option<TraceParent> {
    let own = item
        .trace
        .as_ref()
        .filter(|trace| trace.is_sampled())?
        .with_span(SpanId::for_work(item.id));
    item.trace.replace(own)
}

#[cfg(test)]
mod tests {
    use orlog_model::{
        CorrelationId, EventId, HistoryEntry, InstanceKey, Name, SagaName, Status, TenantId,
        Timestamp,
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
        commit.history = Some(HistoryEntry {
            version: 2,
            at,
            input_id: EventId::new("e").unwrap(),
            input_label: "Paid".into(),
            note: "stepped".to_owned(),
            status: Status::Running,
            work: Vec::new(),
            origin: orlog_model::InputOrigin::default(),
            payloads: orlog_model::RecordedPayloads::default(),
            failure: None,
            input: None,
        });
        commit
    }

    fn order(trace: Option<&str>) -> Input {
        Input::Workflow(orlog_model::WorkflowCommand {
            id: EventId::new("w").unwrap(),
            at: Timestamp::from_millis(1),
            trace: trace.and_then(TraceParent::new),
            action: orlog_model::WorkflowAction::Cancel {
                from: key(),
                reason: String::new(),
            },
        })
    }

    #[test]
    fn transition_span_id_is_deterministic() {
        let once =
            start_transition_span(&mut transition(), &order(Some(TRACE)), None, Instant::now())
                .unwrap();
        let repeated =
            start_transition_span(&mut transition(), &order(Some(TRACE)), None, Instant::now())
                .unwrap();
        assert_eq!(
            (once.own.clone(), once.parent.as_str()),
            (repeated.own, TRACE)
        );
        assert_eq!(
            once.own.span_id(),
            SpanId::for_transition(&key(), 2).to_string()
        );
    }

    #[test]
    fn untraced_and_unsampled_inputs_get_no_span() {
        for trace in [None, Some(TRACE.replace("-01", "-00"))] {
            let input = order(trace.as_deref());
            assert!(
                start_transition_span(&mut transition(), &input, None, Instant::now()).is_none()
            );
        }
        let timer = TimerFired {
            name: Name::new("t").unwrap(),
            token: 1,
            due: Timestamp::from_millis(5),
        };
        assert!(
            start_transition_span(
                &mut transition(),
                &Input::Timer(timer),
                None,
                Instant::now()
            )
            .is_none()
        );
    }
}
