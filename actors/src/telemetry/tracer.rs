//! Tracer interface. The runtime reports events after they happened and waits only for span ids.
//!
//! ```text
//! ingest ── transition ── work ── attempt ── (another pod: job ── attempt) ── transition ── …
//!               │ link
//!             commit
//! ```

use std::time::Instant;

use orlog_model::{
    Change, Commit, DeadLetter, DeadLetterOriginal, EventId, EventType, HistoryEntry, Input,
    InstanceKey, Name, TenantId, Timestamp, TraceParent, WorkItem, WorkOutcome,
};

/// Creates spans. Called on the processing path: implementations must be quick and never block.
pub trait Tracer: Send + Sync + 'static {
    /// Reports an event that was ingested and is delivered to instances. Returns its span as parent
    /// of the transitions; `None` if the event is not traced, then they continue the trace of the
    /// event.
    fn ingested(&self, event: &IngestedEvent<'_>) -> Option<TraceParent>;

    /// Reports a durable group commit.
    fn committed(&self, group: &CommitGroupSpan<'_>);

    /// Reports a traced input that its instance ignored or had already applied.
    fn ignored(&self, ignored: &IgnoredInput<'_>);

    /// Reports a job of another process that was received from the queue. Returns its span as
    /// parent of the attempts; `None` if it is not traced.
    fn received(&self, item: &WorkItem) -> Option<TraceParent>;

    /// Reports a finished work item.
    fn finished(&self, concluded: &FinishedWork<'_>);
}

/// An event that was ingested from the bus.
#[derive(Clone, Copy, Debug)]
pub struct IngestedEvent<'a> {
    /// Tenant of the event.
    pub tenant: &'a TenantId,
    /// Event id.
    pub id: &'a EventId,
    /// Event type.
    pub kind: &'a EventType,
    /// Source of the event.
    pub source: &'a str,
    /// Time of the event.
    pub time: Timestamp,
    /// Trace context of the event.
    pub trace: Option<&'a TraceParent>,
    /// Stream name and sequence number.
    pub stream_position: (&'a str, u64),
    /// Number of instances of the event in this process.
    pub instances: usize,
    /// Time of ingestion.
    pub started: Instant,
}

/// An ignored input.
#[derive(Clone, Copy, Debug)]
pub struct IgnoredInput<'a> {
    /// Key of the instance.
    pub key: &'a InstanceKey,
    /// Label of the input.
    pub input: &'a str,
    /// Span that caused the input.
    pub parent: &'a TraceParent,
    /// Reason why the input was ignored.
    pub reason: &'a str,
    /// Time at which processing started.
    pub started: Instant,
}

/// A durable group of commits.
#[derive(Clone, Copy, Debug)]
pub struct CommitGroupSpan<'a> {
    /// Traced transitions with the positions of their changes; never empty.
    pub traced: &'a [(usize, Box<TransitionSpan>)],
    /// All changes of the group.
    pub changes: &'a [Change],
    /// Time at which the write started.
    pub started: Instant,
    /// Time at which the group was durable.
    pub ended: Instant,
}

impl<'a> CommitGroupSpan<'a> {
    /// Returns the traced transitions with their commits.
    pub fn commits(self) -> impl Iterator<Item = (&'a TransitionSpan, &'a Commit)> {
        self.traced
            .iter()
            .filter_map(move |(index, decided)| match self.changes.get(*index)? {
                Change::Apply(commit) => Some((&**decided, &**commit)),
                _ => None,
            })
    }
}

/// Span data of a traced transition; the commit contains the result.
#[derive(Clone, Debug)]
pub struct TransitionSpan {
    /// Span of the transition.
    pub own: TraceParent,
    /// Span that caused the transition.
    pub parent: TraceParent,
    /// Timer that caused the transition. Then the parent is the timer span, which is created
    /// together with this span.
    pub timer: Option<FiredTimer>,
    /// Time at which processing started.
    pub started: Instant,
    /// Time at which the transition was computed; afterwards it waits for the commit.
    pub decided: Instant,
}

/// A fired timer.
#[derive(Clone, Debug)]
pub struct FiredTimer {
    /// Timer name.
    pub name: Name,
    /// Due time.
    pub due: Timestamp,
    /// Span of the transition that armed the timer.
    pub armed: TraceParent,
}

/// Kind of result that a commit stores for its input.
#[derive(Clone, Copy, Debug)]
pub enum CommitKind<'a> {
    /// A transition.
    Transition(&'a HistoryEntry),
    /// A buffered input.
    Buffered(&'a Input),
    /// A dead letter.
    DeadLettered(&'a DeadLetter),
}

impl<'a> CommitKind<'a> {
    /// Returns the kind of a commit; `None` if it needs no span.
    #[must_use]
    pub fn from_commit(commit: &'a Commit) -> Option<Self> {
        if let Some(dead_letter) = &commit.dead_letter {
            return Some(CommitKind::DeadLettered(dead_letter));
        }
        let buffered = commit.buffer.as_deref().map(CommitKind::Buffered);
        buffered.or_else(|| commit.history.as_ref().map(CommitKind::Transition))
    }

    /// Returns the label of the input.
    #[must_use]
    pub fn label(&self) -> &'a str {
        match self {
            CommitKind::Transition(record) => &record.input_label,
            CommitKind::Buffered(input) => input.label(),
            CommitKind::DeadLettered(dead_letter) => match &dead_letter.original {
                DeadLetterOriginal::Input(input) => input.label(),
                DeadLetterOriginal::Message { .. } => "message",
            },
        }
    }
}

/// Executor of a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutedBy {
    /// The process that owns the instance.
    LocalNode,
    /// A worker process that executes effects for other processes.
    Worker,
}

/// A finished work item.
#[derive(Clone, Copy, Debug)]
pub struct FinishedWork<'a> {
    /// The work item; its trace is the span of this execution.
    pub item: &'a WorkItem,
    /// Parent span.
    pub parent: &'a TraceParent,
    /// Executor of the item.
    pub executed_by: ExecutedBy,
    /// Outcome of the item.
    pub outcome: &'a WorkOutcome,
    /// Number of attempts.
    pub attempts: u32,
    /// Time at which the executor received the item.
    pub started: Instant,
}
