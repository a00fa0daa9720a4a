//! What becomes a span, with which name, kind and attributes: docs/tracing.md is the table of this file.

use std::borrow::Cow;
use std::time::Instant;

use orlog_actors::Tracer;
use orlog_actors::telemetry::tracer::{Concluded, Decided, Fired, Group, Hands, Ignored, Taken, What};
use orlog_effect::{Attempted, Ending, Observer};
use orlog_model::trace::derived_trace;
use orlog_model::{Commit, InstanceKey, Status, TraceParent, Verdict, Work, WorkItem, WorkKind};
use uuid::Uuid;

use super::protobuf::Value;
use super::span_exporter::{Frame, Kind, Span, Spans, random_span, random_trace};
use crate::clock::{self, Present};

impl Tracer for Spans {
    fn ingested(&self, taken: &Taken<'_>) -> Option<TraceParent> {
        let own = match taken.trace {
            Some(trace) => trace.is_sampled().then(|| trace.at(random_span()))?,
            None => self.root_of(taken),
        };
        if own.is_sampled() {
            let name = ["ingest ", taken.kind.as_str()];
            let frame = Frame::since(taken.begun, &own, taken.trace, Kind::Consumer, &name);
            self.emit(&frame, |span| {
                span.text("messaging.system", self.messaging);
                span.text("messaging.operation.name", "ingest");
                span.text("messaging.operation.type", "process");
                let (stream, sequence) = taken.place;
                span.text("messaging.destination.name", stream);
                span.text("messaging.message.id", taken.id.as_str());
                span.text("orlog.tenant", taken.tenant.as_str());
                span.number("orlog.stream.sequence", sequence);
                span.number("orlog.instances", taken.instances as u64);
            });
        }
        Some(own)
    }

    fn committed(&self, group: &Group<'_>) {
        let (commit, now) = (TraceParent::of(random_trace(), random_span(), true), Present::look());
        let Group { followed, changes, begun, ended } = *group;
        let ended = now.nanos_at(ended);
        let begun = now.nanos_at(begun);
        let frame =
            Frame { own: &commit, parent: None, kind: Kind::Internal, name: &["commit"], begun, ended };
        self.emit(&frame, |span| {
            span.number("orlog.commit.changes", changes.len() as u64);
            span.number("orlog.commit.followed", followed.len() as u64);
            span.links(followed.iter().map(|(_, decided)| &decided.own), "transition");
        });
        for (decided, made) in group.commits() {
            self.decided((decided, made), &commit, (&now, ended));
        }
    }

    fn ignored(&self, ignored: &Ignored<'_>) {
        let Ignored { key, input, parent, why, begun } = *ignored;
        let (own, name) = (parent.at(random_span()), [key.saga.as_str(), " ", input]);
        self.emit(&Frame::since(begun, &own, Some(parent), Kind::Internal, &name), |span| {
            of_instance(span, key);
            span.text("orlog.input", input);
            span.text("orlog.ignored", why);
        });
    }

    fn received(&self, item: &WorkItem) -> Option<TraceParent> {
        // A job may come twice, to two processes.
        item.trace.as_ref().filter(|trace| trace.is_sampled()).map(|trace| trace.at(random_span()))
    }

    fn concluded(&self, concluded: &Concluded<'_>) {
        let Concluded { item, parent, hands, verdict, attempts, begun } = *concluded;
        let Some(own) = &item.trace else { return };
        let (verb, kind) = match (hands, item.work.kind()) {
            (Hands::Worker, _) => ("job", Kind::Consumer),
            (Hands::Own, WorkKind::Fact | WorkKind::Saga) => ("publish", Kind::Producer),
            (Hands::Own, WorkKind::Command | WorkKind::Effect) => ("work", Kind::Internal),
        };
        let name = [verb, " ", &label(item)];
        let frame = Frame::since(begun, own, Some(parent), kind, &name);
        self.emit(&frame, |span| {
            of_work(span, item);
            span.text("orlog.verdict", verdict.label());
            span.number("orlog.attempts", attempts.into());
            if kind != Kind::Internal {
                let operation = if hands == Hands::Worker { "process" } else { "send" };
                span.text("messaging.system", self.messaging);
                span.text("messaging.operation.name", verb);
                span.text("messaging.operation.type", operation);
                id(span, "messaging.message.id", item.id);
            }
            if let Verdict::Failed { failure, .. } | Verdict::TimedOut { failure } = verdict {
                span.failed(&failure.code, verdict.label());
            }
        });
    }
}

impl Observer for Spans {
    fn attempting(&self, item: &WorkItem) -> Option<TraceParent> {
        item.trace.as_ref().filter(|trace| trace.is_sampled()).map(|trace| trace.at(random_span()))
    }

    fn attempted(&self, attempted: &Attempted<'_>) {
        let Attempted { upstream, item, parent, answered, number, ending, code, took } = *attempted;
        let (Some(own), Some(parent)) = (&item.trace, parent) else { return };
        let now = Instant::now();
        let begun = now.checked_sub(took).unwrap_or(now);
        let name = [&*label(item)];
        let frame = Frame::since(begun, own, Some(parent), Kind::Client, &name);
        self.emit(&frame, |span| {
            of_work(span, item);
            span.text("orlog.upstream", upstream);
            span.number("orlog.attempt", number.into());
            span.text("orlog.ending", ending.as_str());
            if let Some(theirs) = answered {
                span.link(theirs, "answered");
            }
            if ending != Ending::Done {
                span.failed(code.unwrap_or(ending.as_str()), ending.as_str());
            }
        });
    }
}

impl Spans {
    /// The trace of an event that came without one: every process that sees the event makes the same, and decides the same
    /// about keeping it. One that is not kept is told as such to whatever comes after it.
    fn root_of(&self, taken: &Taken<'_>) -> TraceParent {
        let time = taken.time.millis().to_be_bytes();
        let parts = [taken.tenant.as_str(), taken.source, taken.id.as_str()].map(str::as_bytes);
        let trace = derived_trace(&[parts[0], parts[1], parts[2], &time]);
        TraceParent::of(trace, random_span(), self.keeps(trace))
    }

    fn decided(
        &self,
        (decided, made): (&Decided, &Commit),
        commit: &TraceParent,
        (now, ended): (&Present, u64),
    ) {
        let Some(what) = What::of(made) else { return };
        let Decided { own, parent, timer, begun, decided: at } = decided;
        let begun = now.nanos_at(*begun);
        if let Some(timer) = timer {
            self.fired(timer, parent, &made.key, begun);
        }
        let (kind, name) = (Kind::Internal, [made.key.saga.as_str(), " ", what.label()]);
        let frame = Frame { own, parent: Some(parent), kind, name: &name, begun, ended };
        self.emit(&frame, |span| {
            of_instance(span, &made.key);
            span.text("orlog.input", what.label());
            span.event("decided", now.nanos_at(*at));
            span.link(commit, "commit");
            match what {
                What::Transition(record) => {
                    span.number("orlog.version", record.version);
                    span.text("orlog.status", record.status.as_str());
                    span.text("orlog.note", &record.note);
                    if record.status == Status::Stuck {
                        span.error("stuck");
                    }
                }
                What::Kept(_) => span.put("orlog.kept", Value::Truth(true)),
                What::SetAside(letter) => span.failed(letter.reason.as_str(), "dead letter"),
            }
        });
    }

    /// The span of a timer lasts from when it was due to when it was heard: how late it was.
    fn fired(&self, timer: &Fired, own: &TraceParent, key: &InstanceKey, ended: u64) {
        let Fired { name, due, armed } = timer;
        let (begun, name) = (clock::nanos(*due), ["timer ", name.as_str()]);
        let frame = Frame { own, parent: Some(armed), kind: Kind::Internal, name: &name, begun, ended };
        self.emit(&frame, |span| {
            of_instance(span, key);
            span.link(armed, "armed");
        });
    }

    /// The span of a request: goes on from the caller's, or begins a trace where the request changes something.
    pub(crate) fn request(&self, changes: bool, trace: Option<&TraceParent>) -> Option<TraceParent> {
        match trace {
            Some(trace) => trace.is_sampled().then(|| trace.at(random_span())),
            None if changes => {
                let trace = random_trace();
                Some(TraceParent::of(trace, random_span(), self.keeps(trace)))
            }
            None => None,
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, answered: &Answered<'_>) {
        let Answered { own, parent, method, route, path, status, begun } = *answered;
        if !own.is_sampled() {
            return;
        }
        let name = [method, " ", route];
        self.emit(&Frame::since(begun, own, parent, Kind::Server, &name), |span| {
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

/// A request that was answered.
#[derive(Clone, Copy)]
pub(crate) struct Answered<'a> {
    pub(crate) own: &'a TraceParent,
    pub(crate) parent: Option<&'a TraceParent>,
    pub(crate) method: &'static str,
    pub(crate) route: &'a str,
    pub(crate) path: &'a str,
    pub(crate) status: u16,
    pub(crate) begun: Instant,
}

/// What people call the work; most of it is effects, whose names are there already.
fn label(item: &WorkItem) -> Cow<'_, str> {
    match &item.work {
        Work::Effect(effect) => Cow::Borrowed(effect.name.as_str()),
        other => Cow::Owned(other.label()),
    }
}

fn of_work(span: &mut Span<'_, '_>, item: &WorkItem) {
    of_instance(span, &item.instance);
    id(span, "orlog.work_id", item.id);
}

fn of_instance(span: &mut Span<'_, '_>, key: &InstanceKey) {
    span.text("orlog.tenant", key.tenant.as_str());
    span.text("orlog.saga", key.saga.as_str());
    span.text("orlog.correlation", key.correlation.as_str());
}

fn id(span: &mut Span<'_, '_>, name: &str, id: Uuid) {
    span.text(name, id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
}
