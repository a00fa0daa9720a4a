//! Streams of a deployment: names, subjects and retention.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

use crate::subject::{self, SubjectKind};

/// Stream of aggregate events; the Aggregate service owns it.
pub const AGGREGATE_EVENTS: &str = "AGGREGATE_EVENTS";
/// Stream of commands to effect workers and messages to instances.
pub const WORKFLOW_COMMANDS: &str = "WORKFLOW_COMMANDS";
/// Stream of effect results and of facts about instances.
pub const WORKFLOW_EVENTS: &str = "WORKFLOW_EVENTS";
/// Stream of copies of dead letters.
pub const WORKFLOW_DEADLETTERS: &str = "WORKFLOW_DEADLETTERS";

/// Retention limits of a stream. Messages above a limit are dropped, even if they are unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRetention {
    /// Maximum age; `None`: unlimited.
    pub age: Option<Duration>,
    /// Maximum size in bytes; `None`: unlimited.
    pub bytes: Option<u64>,
}

/// Common settings of all streams of a deployment, and their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// Number of replicas, 1 to 5.
    pub replicas: usize,
    /// Deduplication window of message ids.
    pub duplicate_window: Duration,
    /// Retention of `WORKFLOW_COMMANDS`.
    pub commands: StreamRetention,
    /// Retention of `WORKFLOW_EVENTS`.
    pub events: StreamRetention,
    /// Retention of `WORKFLOW_DEADLETTERS`.
    pub dead_letters: StreamRetention,
    /// Retention of `AGGREGATE_EVENTS` if no other service owns it; `None`: it is read only.
    pub aggregates: Option<StreamRetention>,
}

/// Specification of one stream.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    pub(super) config: Config,
    /// Whether another service creates the stream; Orlog only reads it.
    pub(super) is_external: bool,
}

impl StreamSpec {
    /// Creates the specification of a stream with these subjects and unlimited retention.
    #[must_use]
    pub fn new(name: &str, subjects: &[&str], replicas: usize, duplicate_window: Duration) -> Self {
        let nothing = StreamRetention {
            age: None,
            bytes: None,
        };
        let streams_config = StreamsConfig {
            replicas,
            duplicate_window,
            commands: nothing,
            events: nothing,
            dead_letters: nothing,
            aggregates: None,
        };

        let subjects: Vec<String> = subjects
            .iter()
            .map(|subject| (*subject).to_owned())
            .collect();
        plan(&streams_config, name, nothing, &subjects, name)
    }

    /// Returns the name of the stream.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }
}

impl From<StreamSpec> for StreamSet {
    fn from(stream: StreamSpec) -> Self {
        Self(vec![stream])
    }
}

/// Specifications of all streams. Components with their own streams add them.
#[derive(Clone, Debug, Default)]
pub struct StreamSet(pub Vec<StreamSpec>);

impl StreamSet {
    /// Returns the specifications of the streams of events, commands and dead letters.
    #[must_use]
    pub fn from_config(streams_config: &StreamsConfig) -> Self {
        let aggregates = streams_config.aggregates.unwrap_or(StreamRetention {
            age: None,
            bytes: None,
        });
        let mut aggregate_events = plan(
            streams_config,
            AGGREGATE_EVENTS,
            aggregates,
            &subjects_of(&[SubjectKind::Aggregate]),
            "Events of aggregates",
        );
        aggregate_events.is_external = streams_config.aggregates.is_none();

        let commands = subjects_of(&[SubjectKind::Effect, SubjectKind::Workflow]);
        let events = subjects_of(&[SubjectKind::EffectResult, SubjectKind::WorkflowEvent]);

        Self(vec![
            aggregate_events,
            plan(
                streams_config,
                WORKFLOW_COMMANDS,
                streams_config.commands,
                &commands,
                "Commands to effect workers, messages to sagas",
            ),
            plan(
                streams_config,
                WORKFLOW_EVENTS,
                streams_config.events,
                &events,
                "Results of effects, facts about sagas",
            ),
            plan(
                streams_config,
                WORKFLOW_DEADLETTERS,
                streams_config.dead_letters,
                &subjects_of(&[SubjectKind::DeadLetter]),
                "Copies of dead letters",
            ),
        ])
    }

    /// Returns the stream with this name.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<&StreamSpec> {
        self.0.iter().find(|stream| stream.name() == name)
    }
}

/// Returns the subjects of every tenant, including the default tenant.
fn subjects_of(kinds: &[SubjectKind]) -> Vec<String> {
    kinds
        .iter()
        .flat_map(|kind| subject::filters(None, *kind, None))
        .collect()
}

/// Creates a stream with `Limits` retention.
fn plan(
    streams_config: &StreamsConfig,
    name: &str,
    retention: StreamRetention,
    subjects: &[String],
    description: &str,
) -> StreamSpec {
    let age = retention.age.unwrap_or_default();
    let window = streams_config.duplicate_window;
    let config = Config {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        subjects: subjects.to_vec(),
        // Never `WorkQueue` or `Interest`: consumers with their own checkpoint acknowledge nothing.
        // `WorkQueue` rejects them, and `Interest` drops delivered messages before a consumer has
        // them on disk.
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        max_age: age,
        max_bytes: retention
            .bytes
            .map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        max_messages: -1,
        max_messages_per_subject: -1,
        num_replicas: streams_config.replicas,
        // The server rejects a window that is longer than the retention of messages.
        duplicate_window: if age.is_zero() {
            window
        } else {
            window.min(age)
        },
        allow_direct: true,
        ..Config::default()
    };
    StreamSpec {
        config,
        is_external: false,
    }
}
