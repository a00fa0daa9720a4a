//! Mapping of activities to spans: names, kinds and attributes. docs/tracing.md documents the table of
//! this file.

use std::borrow::Cow;
use std::time::Instant;

use orlog_actors::Tracer;
use orlog_actors::telemetry::tracer::{
    CommitGroupSpan, CommitKind, ExecutedBy, FinishedWork, FiredTimer, IgnoredInput, IngestedEvent,
    TransitionSpan,
};
use orlog_effect::{AttemptOutcome, AttemptReport, EffectObserver};
use orlog_model::trace::derive_trace_id;
use orlog_model::{Commit, InstanceKey, Status, TraceParent, Work, WorkItem, WorkKind, WorkOutcome};
use uuid::Uuid;

use super::protobuf::Value;
use super::span_exporter::{SpanExporter, SpanFrame, SpanKind, SpanWriter, random_span, random_trace};
use crate::clock::{self, ClockReading};

impl Tracer for SpanExporter {
    fn ingested(&self, event: &IngestedEvent<'_>) -> Option<TraceParent> {
        let own = match event.trace {
            Some(trace) => trace.is_sampled().then(|| trace.with_span(random_span()))?,
            None => self.root_of(event),
        };
        if own.is_sampled() {
            let name = ["ingest ", event.kind.as_str()];
            let frame = SpanFrame::since(event.started, &own, event.trace, SpanKind::Consumer, &name);
            self.emit(&frame, |span| {
                span.text("messaging.system", self.messaging);
                span.text("messaging.operation.name", "ingest");
                span.text("messaging.operation.type", "process");
                let (stream, sequence) = event.stream_position;
                span.text("messaging.destination.name", stream);
                span.text("messaging.message.id", event.id.as_str());
                span.text("orlog.tenant", event.tenant.as_str());
                span.number("orlog.stream.sequence", sequence);
                span.number("orlog.instance_count", event.instances as u64);
            });
        }
        Some(own)
    }

    fn committed(&self, group: &CommitGroupSpan<'_>) {
        let (commit, now) = (TraceParent::new_root(random_trace(), random_span(), true), ClockReading::now());
        let CommitGroupSpan { traced: followed, changes, started, ended } = *group;
        let ended = now.nanos_at(ended);
        let started = now.nanos_at(started);
        let frame = SpanFrame {
            own: &commit,
            parent: None,
            kind: SpanKind::Internal,
            name: &["commit"],
            start: started,
            end: ended,
        };
        self.emit(&frame, |span| {
            span.number("orlog.commit.group_size", changes.len() as u64);
            span.number("orlog.commit.traced", followed.len() as u64);
            span.links(followed.iter().map(|(_, decided)| &decided.own), "transition");
        });
        for (decided, made) in group.commits() {
            self.decided((decided, made), &commit, (&now, ended));
        }
    }

    fn ignored(&self, ignored: &IgnoredInput<'_>) {
        let IgnoredInput { key, input, parent, reason, started } = *ignored;
        let (own, name) = (parent.with_span(random_span()), [key.saga.as_str(), " ", input]);
        self.emit(&SpanFrame::since(started, &own, Some(parent), SpanKind::Internal, &name), |span| {
            of_instance(span, key);
            span.text("orlog.input_label", input);
            span.text("orlog.ignored_reason", reason);
        });
    }

    fn received(&self, item: &WorkItem) -> Option<TraceParent> {
        // A job can be delivered twice, to two processes.
        item.trace.as_ref().filter(|trace| trace.is_sampled()).map(|trace| trace.with_span(random_span()))
    }

    fn finished(&self, concluded: &FinishedWork<'_>) {
        let FinishedWork { item, parent, executed_by, outcome, attempts, started } = *concluded;
        let Some(own) = &item.trace else { return };
        let (verb, kind) = match (executed_by, item.work.kind()) {
            (ExecutedBy::Worker, _) => ("job", SpanKind::Consumer),
            (ExecutedBy::LocalNode, WorkKind::Fact | WorkKind::Saga) => ("publish", SpanKind::Producer),
            (ExecutedBy::LocalNode, WorkKind::Command | WorkKind::Effect) => ("execute", SpanKind::Internal),
        };
        let name = [verb, " ", &label(item)];
        let frame = SpanFrame::since(started, own, Some(parent), kind, &name);
        self.emit(&frame, |span| {
            of_work(span, item);
            span.text("orlog.outcome", outcome.label());
            span.number("orlog.attempt.count", attempts.into());
            if kind != SpanKind::Internal {
                let operation = if executed_by == ExecutedBy::Worker { "process" } else { "send" };
                span.text("messaging.system", self.messaging);
                span.text("messaging.operation.name", verb);
                span.text("messaging.operation.type", operation);
                id(span, "messaging.message.id", item.id);
            }
            if let WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } = outcome {
                span.failed(&failure.code, outcome.label());
            }
        });
    }
}

impl EffectObserver for SpanExporter {
    fn attempt_started(&self, item: &WorkItem) -> Option<TraceParent> {
        item.trace.as_ref().filter(|trace| trace.is_sampled()).map(|trace| trace.with_span(random_span()))
    }

    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        let AttemptReport {
            upstream,
            item,
            parent,
            remote_span: answered,
            number,
            outcome: ending,
            code,
            duration: took,
        } = *attempted;
        let (Some(own), Some(parent)) = (&item.trace, parent) else { return };
        let now = Instant::now();
        let started = now.checked_sub(took).unwrap_or(now);
        let name = [&*label(item)];
        let frame = SpanFrame::since(started, own, Some(parent), SpanKind::Client, &name);
        self.emit(&frame, |span| {
            of_work(span, item);
            span.text("orlog.upstream", upstream);
            span.number("orlog.attempt.number", number.into());
            span.text("orlog.attempt.outcome", ending.as_str());
            if let Some(theirs) = answered {
                span.link(theirs, "remote");
            }
            if ending != AttemptOutcome::Succeeded {
                span.failed(code.unwrap_or(ending.as_str()), ending.as_str());
            }
        });
    }
}

impl SpanExporter {
    /// Returns the root trace of an event without one. Every process derives the same trace and the same
    /// sampling decision. An unsampled trace is propagated as unsampled.
    fn root_of(&self, event: &IngestedEvent<'_>) -> TraceParent {
        let time = event.time.as_millis().to_be_bytes();
        let parts = [event.tenant.as_str(), event.source, event.id.as_str()].map(str::as_bytes);
        let trace = derive_trace_id(&[parts[0], parts[1], parts[2], &time]);
        TraceParent::new_root(trace, random_span(), self.is_sampled(trace))
    }

    fn decided(
        &self,
        (decided, made): (&TransitionSpan, &Commit),
        commit: &TraceParent,
        (now, ended): (&ClockReading, u64),
    ) {
        let Some(commit_kind) = CommitKind::from_commit(made) else { return };
        let TransitionSpan { own, parent, timer, started: begun, decided: at } = decided;
        let started = now.nanos_at(*begun);
        if let Some(timer) = timer {
            self.fired(timer, parent, &made.key, started);
        }
        let (kind, name) = (SpanKind::Internal, [made.key.saga.as_str(), " ", commit_kind.label()]);
        let frame = SpanFrame { own, parent: Some(parent), kind, name: &name, start: started, end: ended };
        self.emit(&frame, |span| {
            of_instance(span, &made.key);
            span.text("orlog.input_label", commit_kind.label());
            span.event("decided", now.nanos_at(*at));
            span.link(commit, "commit");
            match commit_kind {
                CommitKind::Transition(record) => {
                    span.number("orlog.instance.version", record.version);
                    span.text("orlog.instance.status", record.status.as_str());
                    span.text("orlog.note", &record.note);
                    if record.status == Status::Stuck {
                        span.error("stuck");
                    }
                }
                CommitKind::Buffered(_) => span.put("orlog.buffered", Value::Bool(true)),
                CommitKind::DeadLettered(dead_letter) => {
                    span.failed(dead_letter.reason.as_str(), "dead letter");
                }
            }
        });
    }

    /// Records the span of a timer, from its due time to its delivery; the length is the lateness.
    fn fired(&self, timer: &FiredTimer, own: &TraceParent, key: &InstanceKey, ended: u64) {
        let FiredTimer { name, due, armed } = timer;
        let (started, name) = (clock::nanos(*due), ["timer ", name.as_str()]);
        let frame = SpanFrame {
            own,
            parent: Some(armed),
            kind: SpanKind::Internal,
            name: &name,
            start: started,
            end: ended,
        };
        self.emit(&frame, |span| {
            of_instance(span, key);
            span.link(armed, "armed_by");
        });
    }

    /// Starts the span of a request: continues the trace of the caller, or starts one if the request
    /// changes state.
    pub(crate) fn start_request(&self, changes: bool, trace: Option<&TraceParent>) -> Option<TraceParent> {
        match trace {
            Some(trace) => trace.is_sampled().then(|| trace.with_span(random_span())),
            None if changes => {
                let trace = random_trace();
                Some(TraceParent::new_root(trace, random_span(), self.is_sampled(trace)))
            }
            None => None,
        }
    }

    /// Records the span of a finished request.
    pub(crate) fn finish_request(&self, response: &FinishedRequest<'_>) {
        let FinishedRequest { own, parent, method, route, path, status, begun: started } = *response;
        if !own.is_sampled() {
            return;
        }
        let name = [method, " ", route];
        self.emit(&SpanFrame::since(started, own, parent, SpanKind::Server, &name), |span| {
            span.text("http.request.method", method);
            span.text("http.route", route);
            span.text("url.path", path);
            span.number("http.response.status_code", status.into());
            if status >= 500 {
                span.failed(&status.to_string(), "the server failed");
            }
        });
    }
}

/// Finished request.
#[derive(Clone, Copy)]
pub(crate) struct FinishedRequest<'a> {
    pub(crate) own: &'a TraceParent,
    pub(crate) parent: Option<&'a TraceParent>,
    pub(crate) method: &'static str,
    pub(crate) route: &'a str,
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) begun: Instant,
}

/// Returns the display label of the work; most work is an effect, which already has a name.
fn label(item: &WorkItem) -> Cow<'_, str> {
    match &item.work {
        Work::Effect(effect) => Cow::Borrowed(effect.name.as_str()),
        other => Cow::Owned(other.label()),
    }
}

fn of_work(span: &mut SpanWriter<'_, '_>, item: &WorkItem) {
    of_instance(span, &item.instance);
    id(span, "orlog.work_id", item.id);
}

fn of_instance(span: &mut SpanWriter<'_, '_>, key: &InstanceKey) {
    span.text("orlog.tenant", key.tenant.as_str());
    span.text("orlog.saga", key.saga.as_str());
    span.text("orlog.correlation", key.correlation.as_str());
}

fn id(span: &mut SpanWriter<'_, '_>, name: &str, id: Uuid) {
    span.text(name, id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
}
