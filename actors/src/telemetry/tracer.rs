//! For whoever makes spans of what happens. Told after the fact, so that nothing waits for it; what it answers before is only
//! which ids spans have.
//!
//! ```text
//! ingest ── transition ── work ── attempt ── (another pod: job ── attempt) ── transition ── …
//!               │ link
//!             commit
//! ```

use std::time::Instant;

use orlog_model::{
    Change, Commit, DeadLetter, EventId, EventType, Input, InstanceKey, Name, Original, Record, TenantId,
    Timestamp, TraceParent, Verdict, WorkItem,
};

/// Makes spans. Called in the middle of things: it must be quick and never block.
pub trait Tracer: Send + Sync + 'static {
    /// An event was taken from the bus and goes to instances. The span of that, for them to go on from; `None` where nobody
    /// follows it: then the event's own trace goes on with it.
    fn ingested(&self, taken: &Taken<'_>) -> Option<TraceParent>;

    /// A group of commits is durable.
    fn committed(&self, group: &Group<'_>);

    /// An input that somebody follows meant nothing to its instance, or was taken before.
    fn ignored(&self, ignored: &Ignored<'_>);

    /// A job of another process was taken from the queue. Its span, for attempts to go on from; `None` where nobody follows it.
    fn received(&self, item: &WorkItem) -> Option<TraceParent>;

    /// A work item has come to an end, with these hands.
    fn concluded(&self, concluded: &Concluded<'_>);
}

/// An event that was taken from the bus.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Whose it is.
    pub tenant: &'a TenantId,
    /// Its id.
    pub id: &'a EventId,
    /// Its type.
    pub kind: &'a EventType,
    /// Who says so.
    pub source: &'a str,
    /// When it happened.
    pub time: Timestamp,
    /// The trace that it came with.
    pub trace: Option<&'a TraceParent>,
    /// The stream it was taken from, and where it lies there.
    pub place: (&'a str, u64),
    /// Instances it is for, here.
    pub instances: usize,
    /// When it was taken.
    pub begun: Instant,
}

/// An input of which nothing came.
#[derive(Clone, Copy, Debug)]
pub struct Ignored<'a> {
    /// Whose it was.
    pub key: &'a InstanceKey,
    /// What it is called.
    pub input: &'a str,
    /// The span that led to it.
    pub parent: &'a TraceParent,
    /// Why nothing came of it.
    pub why: &'a str,
    /// When it was taken.
    pub begun: Instant,
}

/// A group of commits that is durable.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// What in it is followed, and which of the changes it is; never empty.
    pub followed: &'a [(usize, Box<Decided>)],
    /// All changes.
    pub changes: &'a [Change],
    /// When the writing began.
    pub begun: Instant,
    /// When it was durable.
    pub ended: Instant,
}

impl<'a> Group<'a> {
    /// What is followed, with what was committed of it.
    pub fn commits(self) -> impl Iterator<Item = (&'a Decided, &'a Commit)> {
        self.followed.iter().filter_map(move |(place, decided)| match self.changes.get(*place)? {
            Change::Apply(commit) => Some((&**decided, &**commit)),
            _ => None,
        })
    }
}

/// How a commit that somebody follows came about; what it came to stands in the commit.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Its own span.
    pub own: TraceParent,
    /// The span that led to it.
    pub parent: TraceParent,
    /// The timer that led to it. Then the parent is the span of this timer, which is made together with this one.
    pub timer: Option<Fired>,
    /// When deciding began.
    pub begun: Instant,
    /// When it was decided; what follows is the wait for the disk.
    pub decided: Instant,
}

/// A timer that fired.
#[derive(Clone, Debug)]
pub struct Fired {
    /// Its name.
    pub name: Name,
    /// When it was due.
    pub due: Timestamp,
    /// The transition that armed it.
    pub armed: TraceParent,
}

/// What a commit made of its input.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A transition.
    Transition(&'a Record),
    /// Kept for later.
    Kept(&'a Input),
    /// Set aside as a dead letter.
    SetAside(&'a DeadLetter),
}

impl<'a> What<'a> {
    /// `None`: nothing that is worth a span.
    #[must_use]
    pub fn of(commit: &'a Commit) -> Option<Self> {
        if let Some(letter) = &commit.dead_letter {
            return Some(What::SetAside(letter));
        }
        let kept = commit.hold.as_ref().map(What::Kept);
        kept.or_else(|| commit.history.as_ref().map(What::Transition))
    }

    /// What the input is called.
    #[must_use]
    pub fn label(&self) -> &'a str {
        match self {
            What::Transition(record) => &record.label,
            What::Kept(input) => input.label(),
            What::SetAside(letter) => match &letter.original {
                Original::Input(input) => input.label(),
                Original::Message { .. } => "message",
            },
        }
    }
}

/// Which hands a work item was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hands {
    /// Those of the process that has the instance.
    Own,
    /// Those of a process that performs for others.
    Worker,
}

/// A work item that has come to an end.
#[derive(Clone, Copy, Debug)]
pub struct Concluded<'a> {
    /// The item; its trace is the span of this.
    pub item: &'a WorkItem,
    /// The span above.
    pub parent: &'a TraceParent,
    /// In which hands.
    pub hands: Hands,
    /// How it ended.
    pub verdict: &'a Verdict,
    /// Attempts made.
    pub attempts: u32,
    /// When it came into these hands.
    pub begun: Instant,
}
