//! Tracing of the transitions and ignored inputs of an instance.

use std::time::Instant;

use orlog_model::{Commit, Input, TraceParent};

use super::State;
use crate::telemetry::trace_context;
use crate::telemetry::tracer::{IgnoredInput, TransitionSpan};

impl State {
    /// Returns the current time if the input is traced.
    pub(super) fn trace_start(&self, input: &Input) -> Option<Instant> {
        self.instances.context.tracer.as_ref()?;
        trace_context::is_traced(input, self.instance.as_ref()).then(Instant::now)
    }

    /// Creates a transition span if the input is traced.
    pub(super) fn follow(
        &self,
        commit: &mut Commit,
        input: &Input,
        started: Option<Instant>,
    ) -> Option<Box<TransitionSpan>> {
        trace_context::start_transition_span(commit, input, self.instance.as_ref(), started?)
    }

    /// Reports an ignored input to the tracer.
    pub(super) fn trace_ignored(&self, input: &Input, started: Option<Instant>, reason: &str) {
        let parent = input.trace().filter(|trace| trace.is_sampled());
        if let (Some(tracer), Some(started), Some(parent)) = (&self.instances.context.tracer, started, parent)
        {
            tracer.ignored(&IgnoredInput {
                key: &self.mailbox.key,
                input: input.label(),
                parent,
                reason,
                started,
            });
        }
    }

    /// Returns the trace of the instance, for log records.
    pub(super) fn trace(&self) -> Option<&TraceParent> {
        self.instance.as_ref()?.trace.as_ref()
    }
}
