//! Which streams there are, under which names and subjects, and how long they keep what they hold.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use crate::subject::{self, Kind};

/// Events of aggregates; the Aggregate service owns it.
pub const AGGREGATE_EVENTS: &str = "AGGREGATE_EVENTS";
/// Commands to effect workers, and words to instances.
pub const WORKFLOW_COMMANDS: &str = "WORKFLOW_COMMANDS";
/// What became of effects, and facts about instances.
pub const WORKFLOW_EVENTS: &str = "WORKFLOW_EVENTS";
/// Copies of dead letters.
pub const WORKFLOW_DEADLETTERS: &str = "WORKFLOW_DEADLETTERS";

/// How much a stream keeps. What is older or more is dropped, read or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// For how long; `None`: for ever.
    pub age: Option<Duration>,
    /// How much, in bytes; `None`: whatever comes.
    pub bytes: Option<u64>,
}

/// What all streams of a deployment have in common, and how much each keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Copies of each message, 1 to 5.
    pub replicas: usize,
    /// For how long the id of a message is remembered.
    pub duplicate_window: Duration,
    /// `WORKFLOW_COMMANDS`.
    pub commands: Keep,
    /// `WORKFLOW_EVENTS`.
    pub events: Keep,
    /// `WORKFLOW_DEADLETTERS`.
    pub dead_letters: Keep,
    /// `AGGREGATE_EVENTS`, where nobody else owns it; `None`: it is only read.
    pub aggregates: Option<Keep>,
}

/// One stream as it should be.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    pub(super) config: Config,
    /// Somebody else makes it; it is only read.
    pub(super) foreign: bool,
}

impl StreamPlan {
    /// A stream that keeps whatever comes under its subjects, for ever.
    #[must_use]
    pub fn plain(name: &str, subjects: &[&str], replicas: usize, duplicate_window: Duration) -> Self {
        let nothing = Keep { age: None, bytes: None };
        let (commands, events, dead_letters, aggregates) = (nothing, nothing, nothing, None);
        let wanted = Wanted { replicas, duplicate_window, commands, events, dead_letters, aggregates };
        let subjects: Vec<String> = subjects.iter().map(|subject| (*subject).to_owned()).collect();
        plan(&wanted, name, nothing, &subjects, name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }
}

impl From<StreamPlan> for Plan {
    fn from(stream: StreamPlan) -> Self {
        Self(vec![stream])
    }
}

/// All streams as they should be. Parts with streams of their own add them.
#[derive(Clone, Debug, Default)]
pub struct Plan(pub Vec<StreamPlan>);

impl Plan {
    /// The streams of events, commands and dead letters.
    #[must_use]
    pub fn of(wanted: &Wanted) -> Self {
        let aggregates = wanted.aggregates.unwrap_or(Keep { age: None, bytes: None });
        let mut aggregate_events = plan(
            wanted,
            AGGREGATE_EVENTS,
            aggregates,
            &subjects_of(&[Kind::Aggregate]),
            "Events of aggregates",
        );
        aggregate_events.foreign = wanted.aggregates.is_none();
        let commands = subjects_of(&[Kind::Effect, Kind::Workflow]);
        let events = subjects_of(&[Kind::EffectResult, Kind::WorkflowEvent]);
        Self(vec![
            aggregate_events,
            plan(
                wanted,
                WORKFLOW_COMMANDS,
                wanted.commands,
                &commands,
                "Commands to effect workers, words to sagas",
            ),
            plan(wanted, WORKFLOW_EVENTS, wanted.events, &events, "Results of effects, facts about sagas"),
            plan(
                wanted,
                WORKFLOW_DEADLETTERS,
                wanted.dead_letters,
                &subjects_of(&[Kind::DeadLetter]),
                "Copies of dead letters",
            ),
        ])
    }

    /// The stream of a name.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<&StreamPlan> {
        self.0.iter().find(|stream| stream.name() == name)
    }
}

/// The subjects of every tenant, the default one included.
fn subjects_of(kinds: &[Kind]) -> Vec<String> {
    kinds.iter().flat_map(|kind| subject::filters(None, *kind, None)).collect()
}

/// Limits, never `WorkQueue` or `Interest`: whoever reads from a checkpoint of their own acknowledges nothing, and the one
/// refuses such readers, the other drops what was delivered before anybody has it on disk.
fn plan(wanted: &Wanted, name: &str, keep: Keep, subjects: &[String], description: &str) -> StreamPlan {
    let age = keep.age.unwrap_or_default();
    let window = wanted.duplicate_window;
    let config = Config {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        subjects: subjects.to_vec(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        max_age: age,
        max_bytes: keep.bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        max_messages: -1,
        max_messages_per_subject: -1,
        num_replicas: wanted.replicas,
        // The server refuses a window longer than messages are kept.
        duplicate_window: if age.is_zero() { window } else { window.min(age) },
        allow_direct: true,
        ..Config::default()
    };
    StreamPlan { config, foreign: false }
}
