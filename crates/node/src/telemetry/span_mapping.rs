//! Mapping of activities to spans: names, kinds and attributes. docs/tracing.md documents the table
//! of this file.

use std::borrow::Cow;
use std::iter;
use std::time::{Instant, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status as SpanStatus};
use opentelemetry_sdk::trace::SpanData;
use orlog_actors::Tracer;
use orlog_actors::telemetry::tracer::{
    CommitGroupSpan, CommitKind, ExecutedBy, FinishedWork, FiredTimer, IgnoredInput, IngestedEvent,
    TransitionSpan,
};
use orlog_effect::{AttemptReport, EffectObserver};
use orlog_model::{AttemptOutcome, trace::derive_trace_id};
use orlog_model::{
    Commit, InstanceKey, SpanId, Status, TraceParent, Work, WorkItem, WorkKind, WorkOutcome,
};
use uuid::Uuid;

use super::span_exporter::{SpanExporter, SpanFrame, add_event, fail, link};
use crate::clock::{self, ClockReading};

impl Tracer for SpanExporter {
    fn ingested(&self, event: &IngestedEvent<'_>) -> Option<TraceParent> {
        let own = match event.trace {
            // The sender of the event has decided: an unsampled trace gets no spans here.
            Some(trace) => trace.is_sampled().then(|| trace.with_span(random_span()))?,
            None => self.root_of(event),
        };
        if own.is_sampled() {
            let name = ["ingest ", event.kind.as_str()];
            let frame =
                SpanFrame::since(event.started, &own, event.trace, SpanKind::Consumer, &name);
            self.emit(&frame, |span| {
                let (stream, sequence) = event.stream_position;
                span.attributes = vec![
                    KeyValue::new("messaging.system", self.messaging),
                    KeyValue::new("messaging.operation.name", "ingest"),
                    KeyValue::new("messaging.operation.type", "process"),
                    KeyValue::new("messaging.destination.name", stream.to_owned()),
                    KeyValue::new("messaging.message.id", event.id.as_str().to_owned()),
                    KeyValue::new("orlog.tenant", event.tenant.as_str().to_owned()),
                    KeyValue::new("orlog.stream.sequence", sequence.cast_signed()),
                    KeyValue::new("orlog.instance_count", count(event.instances)),
                ];
            });
        }

        Some(own)
    }

    fn committed(&self, group: &CommitGroupSpan<'_>) {
        // A group can have transitions of several traces: its span belongs to none of them, and is
        // linked.
        let commit = TraceParent::new_root(random_trace(), random_span(), true);
        let now = ClockReading::now();
        let CommitGroupSpan {
            traced: followed,
            changes,
            started,
            ended,
        } = *group;
        let start = now.system_at(started);
        let end = now.system_at(ended);
        let kind = SpanKind::Internal;
        let name = &["commit"];

        self.emit(
            &SpanFrame {
                own: &commit,
                parent: None,
                kind,
                name,
                start,
                end,
            },
            |span| {
                span.attributes = vec![
                    KeyValue::new("orlog.commit.group_size", count(changes.len())),
                    KeyValue::new("orlog.commit.traced", count(followed.len())),
                ];
                link(
                    span,
                    followed.iter().map(|(_, decided)| &decided.own),
                    "transition",
                );
            },
        );

        for (transition, stored) in group.commits() {
            self.decided(transition, stored, &commit, &now, end);
        }
    }

    fn ignored(&self, ignored: &IgnoredInput<'_>) {
        let IgnoredInput {
            key,
            input,
            parent,
            reason,
            started,
        } = *ignored;
        let own = parent.with_span(random_span());
        let name = [key.saga.as_str(), " ", input];

        self.emit(
            &SpanFrame::since(started, &own, Some(parent), SpanKind::Internal, &name),
            |span| {
                of_instance(span, key);
                span.attributes
                    .push(KeyValue::new("orlog.input_label", input.to_owned()));
                span.attributes
                    .push(KeyValue::new("orlog.ignored_reason", reason.to_owned()));
            },
        );
    }

    fn received(&self, item: &WorkItem) -> Option<TraceParent> {
        // A job can be delivered twice, to two processes.
        item.trace
            .as_ref()
            .filter(|trace| trace.is_sampled())
            .map(|trace| trace.with_span(random_span()))
    }

    fn finished(&self, concluded: &FinishedWork<'_>) {
        let FinishedWork {
            item,
            parent,
            executed_by,
            outcome,
            attempts,
            started,
        } = *concluded;
        let Some(own) = &item.trace else { return };
        let (verb, kind) = match (executed_by, item.work.kind()) {
            (ExecutedBy::Worker, _) => ("job", SpanKind::Consumer),
            (ExecutedBy::LocalNode, WorkKind::Fact | WorkKind::Saga) => {
                ("publish", SpanKind::Producer)
            }
            (ExecutedBy::LocalNode, WorkKind::Command | WorkKind::Effect) => {
                ("execute", SpanKind::Internal)
            }
        };

        let is_message = kind != SpanKind::Internal;
        let name = [verb, " ", &label(item)];
        self.emit(
            &SpanFrame::since(started, own, Some(parent), kind, &name),
            |span| {
                of_work(span, item);
                span.attributes
                    .push(KeyValue::new("orlog.outcome", outcome.label()));
                span.attributes
                    .push(KeyValue::new("orlog.attempt.count", i64::from(attempts)));

                if is_message {
                    let operation = if executed_by == ExecutedBy::Worker {
                        "process"
                    } else {
                        "send"
                    };
                    span.attributes.extend([
                        KeyValue::new("messaging.system", self.messaging),
                        KeyValue::new("messaging.operation.name", verb),
                        KeyValue::new("messaging.operation.type", operation),
                        id("messaging.message.id", item.id),
                    ]);
                }

                if let WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } =
                    outcome
                {
                    fail(span, &failure.code, outcome.label());
                }
            },
        );
    }
}

impl EffectObserver for SpanExporter {
    fn attempt_started(&self, item: &WorkItem) -> Option<TraceParent> {
        item.trace
            .as_ref()
            .filter(|trace| trace.is_sampled())
            .map(|trace| trace.with_span(random_span()))
    }

    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        let AttemptReport {
            upstream,
            item,
            remote_span,
            number,
            outcome,
            duration,
            ..
        } = *attempted;

        let code = attempted.code();
        let Some(own) = &item.trace else {
            return;
        };
        // The trace of the item is that of the attempt only if the attempt has a span of its own.
        let Some(parent) = attempted.parent else {
            return;
        };

        let now = Instant::now();
        let started = now.checked_sub(duration).unwrap_or(now);
        let name = [&*label(item)];
        self.emit(
            &SpanFrame::since(started, own, Some(parent), SpanKind::Client, &name),
            |span| {
                of_work(span, item);
                span.attributes.extend([
                    KeyValue::new("orlog.upstream", upstream.to_owned()),
                    KeyValue::new("orlog.attempt.number", i64::from(number)),
                    KeyValue::new("orlog.attempt.outcome", outcome.as_str()),
                ]);

                if let Some(remote) = remote_span {
                    link(span, iter::once(remote), "remote");
                }

                if outcome != AttemptOutcome::Succeeded {
                    fail(span, code.unwrap_or(outcome.as_str()), outcome.as_str());
                }
            },
        );
    }
}

impl SpanExporter {
    /// Returns the root trace of an event without one. Every process derives the same trace and the
    /// same sampling decision. An unsampled trace is propagated as unsampled.
    fn root_of(&self, event: &IngestedEvent<'_>) -> TraceParent {
        let time = event.time.as_millis().to_be_bytes();
        let parts = [event.tenant.as_str(), event.source, event.id.as_str()].map(str::as_bytes);
        let trace = derive_trace_id(&[parts[0], parts[1], parts[2], &time]);
        TraceParent::new_root(trace, random_span(), self.is_sampled(trace))
    }

    fn decided(
        &self,
        transition: &TransitionSpan,
        stored: &Commit,
        commit: &TraceParent,
        now: &ClockReading,
        end: SystemTime,
    ) {
        let Some(commit_kind) = CommitKind::from_commit(stored) else {
            return;
        };

        let TransitionSpan {
            own,
            parent,
            timer,
            started,
            decided: at,
        } = transition;
        let start = now.system_at(*started);
        if let Some(timer) = timer {
            self.fired(timer, parent, &stored.key, start);
        }

        let kind = SpanKind::Internal;
        let name = [stored.key.saga.as_str(), " ", commit_kind.label()];
        let frame = SpanFrame {
            own,
            parent: Some(parent),
            kind,
            name: &name,
            start,
            end,
        };

        self.emit(&frame, |span| {
            of_instance(span, &stored.key);
            span.attributes.push(KeyValue::new(
                "orlog.input_label",
                commit_kind.label().to_owned(),
            ));
            // The span lasts until the commit is durable; this event shows which part of it was the
            // decision.
            add_event(span, "decided", now.system_at(*at));
            link(span, iter::once(commit), "commit");

            match commit_kind {
                CommitKind::Transition(record) => {
                    span.attributes.extend([
                        KeyValue::new("orlog.instance.version", record.version.cast_signed()),
                        KeyValue::new("orlog.instance.status", record.status.as_str()),
                        KeyValue::new("orlog.note", record.note.clone()),
                    ]);
                    if record.status == Status::Stuck {
                        span.status = SpanStatus::error("stuck");
                    }
                }
                CommitKind::Buffered(_) => {
                    span.attributes.push(KeyValue::new("orlog.buffered", true));
                }
                CommitKind::DeadLettered(dead_letter) => {
                    fail(span, dead_letter.reason.as_str(), "dead letter");
                }
            }
        });
    }

    /// Records the span of a timer, from its due time to its delivery; the length is the lateness.
    fn fired(&self, timer: &FiredTimer, own: &TraceParent, key: &InstanceKey, end: SystemTime) {
        let FiredTimer { name, due, armed } = timer;
        let start = clock::system_time(*due);
        let name = ["timer ", name.as_str()];
        let parent = Some(armed);
        let kind = SpanKind::Internal;
        self.emit(
            &SpanFrame {
                own,
                parent,
                kind,
                name: &name,
                start,
                end,
            },
            |span| {
                of_instance(span, key);
                link(span, iter::once(armed), "armed_by");
            },
        );
    }
}

/// Returns the display label of the work; most work is an effect, which already has a name.
fn label(item: &WorkItem) -> Cow<'_, str> {
    match &item.work {
        Work::Effect(effect) => Cow::Borrowed(effect.name.as_str()),
        other => Cow::Owned(other.label().into()),
    }
}

fn of_work(span: &mut SpanData, item: &WorkItem) {
    of_instance(span, &item.instance);
    span.attributes.push(id("orlog.work_id", item.id));
}

fn of_instance(span: &mut SpanData, key: &InstanceKey) {
    span.attributes.reserve(10);
    span.attributes.extend([
        KeyValue::new("orlog.tenant", key.tenant.as_str().to_owned()),
        KeyValue::new("orlog.saga", key.saga.as_str().to_owned()),
        KeyValue::new("orlog.correlation", key.correlation.as_str().to_owned()),
    ]);
}

fn id(name: &'static str, id: Uuid) -> KeyValue {
    KeyValue::new(name, id.to_string())
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a random span id, for spans that need no derivable id.
pub(super) fn random_span() -> SpanId {
    // The id need not be unpredictable, and random numbers of the kernel would cost more than the
    // span.
    SpanId::new(fastrand::u64(..).to_be_bytes())
}

/// Returns a random trace id.
pub(super) fn random_trace() -> [u8; 16] {
    // The format forbids an id of zeros.
    fastrand::u128(1..).to_be_bytes()
}
