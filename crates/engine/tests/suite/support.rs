//! A program that answers as a test wants, and the words for what it is told.

use std::time::Duration;

use orlog_engine::{Decision, Kept, Subject, decide};
use orlog_model::{
    Action, Commit, Control, CorrelationId, Event, EventId, EventType, Input, Instance, InstanceKey, Name,
    ProgramRef, SagaName, Status, TenantId, Timestamp, Transition, Work,
};
use orlog_program::{Context, Fault, Manifest, Migration, Program, Reaction, Stimulus, Trigger};
use serde_json::json;

/// What a program answers.
pub(crate) type Answer = fn(&Stimulus<'_>) -> Result<Reaction, Fault>;

/// Answers as its function says. Its state is a text.
pub(crate) struct Puppet {
    reference: ProgramRef,
    manifest: Manifest,
    answer: Answer,
    pub(crate) migration: Result<Migration, Vec<String>>,
}

impl Puppet {
    pub(crate) fn new(answer: Answer) -> Self {
        let trigger = |name: &str, starts| Trigger { kind: kind(name), starts };
        Self {
            reference: ProgramRef { saga: SagaName::new("order").unwrap(), version: 1, hash: [1; 16] },
            manifest: Manifest {
                triggers: vec![trigger("Begun", true), trigger("Paid", false), trigger("Placed", true)],
                early: Duration::from_hours(1),
                ..Manifest::default()
            },
            answer,
            migration: Err(vec!["nobody said how".to_owned()]),
        }
    }

    pub(crate) fn numbered(self, version: u32) -> Self {
        let hash = [u8::try_from(version).unwrap(); 16];
        Self { reference: ProgramRef { version, hash, ..self.reference }, ..self }
    }

    pub(crate) fn migrating(self, migration: Migration) -> Self {
        Self { migration: Ok(migration), ..self }
    }

    pub(crate) fn without_early(self) -> Self {
        Self { manifest: Manifest { early: Duration::ZERO, ..self.manifest }, ..self }
    }
}

impl Program for Puppet {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, _: &Event) -> Result<CorrelationId, Fault> {
        Ok(key().correlation)
    }

    fn apply(&self, _: Option<&[u8]>, stimulus: &Stimulus<'_>, _: &Context<'_>) -> Result<Reaction, Fault> {
        (self.answer)(stimulus)
    }

    fn migrate(&self, _: &dyn Program, _: &[u8], _: &Context<'_>) -> Result<Migration, Vec<String>> {
        self.migration.clone()
    }
}

/// The subject of a test.
pub(crate) struct Stage<'a> {
    pub(crate) program: &'a Puppet,
    pub(crate) instance: Option<Instance>,
    pub(crate) early: Vec<Kept>,
    pub(crate) now: Timestamp,
}

impl<'a> Stage<'a> {
    pub(crate) fn empty(program: &'a Puppet) -> Self {
        Self { program, instance: None, early: Vec::new(), now: at(1_000) }
    }

    /// With an instance that its first event began.
    pub(crate) fn begun(program: &'a Puppet) -> Self {
        let mut stage = Self::empty(program);
        stage.commit(&event("Begun", "b"));
        stage
    }

    pub(crate) fn subject<'s>(&'s self, key: &'s InstanceKey) -> Subject<'s> {
        Subject {
            key,
            instance: self.instance.as_ref(),
            program: self.program,
            now: self.now,
            node: "n1",
            early: &self.early,
        }
    }

    pub(crate) fn decide(&self, input: &Input) -> Decision {
        decide(&self.subject(&key()), input)
    }

    /// Decides and goes on with what came of it.
    #[track_caller]
    pub(crate) fn commit(&mut self, input: &Input) -> Commit {
        match self.decide(input) {
            Decision::Commit(commit) => {
                self.instance = commit.instance.clone().or(self.instance.take());
                *commit
            }
            other => panic!("expected a commit, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn refused(&self, input: &Input) -> String {
        match self.decide(input) {
            Decision::Refuse(refusal) => refusal.to_string(),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn ignored(&self, input: &Input) -> String {
        match self.decide(input) {
            Decision::Ignore { why, .. } => why.to_string(),
            other => panic!("expected nothing, got {other:?}"),
        }
    }

    pub(crate) fn now_instance(&self) -> &Instance {
        self.instance.as_ref().unwrap()
    }
}

pub(crate) fn step(status: Status) -> Transition {
    Transition {
        state: b"next".to_vec(),
        status,
        work: vec![],
        timers: vec![],
        tasks: vec![],
        waits: vec![],
        reference: None,
        failure: None,
        note: "stepped".to_owned(),
    }
}

pub(crate) fn applied(transition: Transition) -> Reaction {
    Reaction::Applied(Box::new(transition))
}

pub(crate) fn with_work(status: Status, work: Vec<Work>) -> Reaction {
    applied(Transition { work, ..step(status) })
}

pub(crate) fn key() -> InstanceKey {
    named("order", "o-1")
}

pub(crate) fn named(saga: &str, correlation: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new(saga).unwrap(),
        correlation: CorrelationId::new(correlation).unwrap(),
    }
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

pub(crate) fn kind(name: &str) -> EventType {
    EventType::new(name).unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn id(text: &str) -> EventId {
    EventId::new(text).unwrap()
}

pub(crate) fn event(of: &str, number: &str) -> Input {
    Input::Event(Event {
        id: id(number),
        tenant: key().tenant,
        kind: kind(of),
        source: "urn:test".to_owned(),
        subject: None,
        time: at(500),
        correlation: Some(key().correlation),
        causation: None,
        trace: None,
        schema_version: 1,
        data: json!({}),
    })
}

pub(crate) fn control(action: Action) -> Control {
    Control {
        id: id("c-1"),
        action,
        expected_version: None,
        at: at(700),
        by: None,
        reason: None,
        trace: None,
    }
}

pub(crate) fn by(who: &str, action: Action) -> Input {
    Input::Control(Control { by: Some(who.to_owned()), ..control(action) })
}
