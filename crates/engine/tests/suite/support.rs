//! Scripted program, and builders of inputs.

use std::time::Duration;

use orlog_engine::{BufferedInputRef, Decision, DecisionContext, decide};
use orlog_model::{
    Commit, ControlAction, ControlRequest, CorrelationId, DefinitionRef, Event, EventId, EventType,
    Input, Instance, InstanceKey, Name, SagaName, Status, TenantId, Timestamp, Transition, Work,
};
use orlog_program::{
    Context, EventSubscription, Manifest, Migration, Program, ProgramError, ProgramInput,
    ProgramOutput,
};
use serde_json::json;

/// Function that produces the output of a program.
pub(crate) type ResponseFn = fn(&ProgramInput<'_>) -> Result<ProgramOutput, ProgramError>;

/// Program that runs a test function. Its state is a string.
pub(crate) struct ScriptedProgram {
    reference: DefinitionRef,
    manifest: Manifest,
    respond: ResponseFn,
    pub(crate) migration: Result<Migration, Vec<String>>,
    correlation: CorrelationId,
}

impl ScriptedProgram {
    pub(crate) fn new(respond: ResponseFn) -> Self {
        let subscription = |name: &str, starts| EventSubscription {
            kind: kind(name),
            starts,
        };
        Self {
            reference: DefinitionRef {
                saga: SagaName::new("order").unwrap(),
                version: 1,
                hash: [1; 16],
            },
            manifest: Manifest {
                subscriptions: vec![
                    subscription("Started", true),
                    subscription("Paid", false),
                    subscription("Placed", true),
                ],
                early_event_ttl: Duration::from_hours(1),
                ..Manifest::default()
            },
            respond,
            migration: Err(vec!["no migration rule".to_owned()]),
            correlation: key().correlation,
        }
    }

    pub(crate) fn with_version(self, version: u32) -> Self {
        let hash = [u8::try_from(version).unwrap(); 16];
        Self {
            reference: DefinitionRef {
                version,
                hash,
                ..self.reference
            },
            ..self
        }
    }

    pub(crate) fn correlating_to(self, id: &str) -> Self {
        Self {
            correlation: CorrelationId::new(id).unwrap(),
            ..self
        }
    }

    pub(crate) fn migrating(self, migration: Migration) -> Self {
        Self {
            migration: Ok(migration),
            ..self
        }
    }

    pub(crate) fn with_manifest(mut self, change: impl FnOnce(&mut Manifest)) -> Self {
        change(&mut self.manifest);
        self
    }

    pub(crate) fn without_early_buffer(self) -> Self {
        Self {
            manifest: Manifest {
                early_event_ttl: Duration::ZERO,
                ..self.manifest
            },
            ..self
        }
    }
}

impl Program for ScriptedProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, _: &Event) -> Result<CorrelationId, ProgramError> {
        Ok(self.correlation.clone())
    }

    fn apply(
        &self,
        _: Option<&[u8]>,
        input: &ProgramInput<'_>,
        _: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        (self.respond)(input)
    }

    fn migrate(
        &self,
        _: &dyn Program,
        _: &[u8],
        _: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        self.migration.clone()
    }
}

/// Decision context of a test.
pub(crate) struct DecisionFixture<'a> {
    pub(crate) program: &'a ScriptedProgram,
    pub(crate) instance: Option<Instance>,
    pub(crate) early: Vec<BufferedInputRef>,
    pub(crate) now: Timestamp,
}

impl<'a> DecisionFixture<'a> {
    pub(crate) fn empty(program: &'a ScriptedProgram) -> Self {
        Self {
            program,
            instance: None,
            early: Vec::new(),
            now: at(1_000),
        }
    }

    /// Creates a fixture with an instance that its first event started.
    pub(crate) fn with_instance(program: &'a ScriptedProgram) -> Self {
        let mut fixture = Self::empty(program);
        fixture.commit(&event("Started", "b"));
        fixture
    }

    pub(crate) fn subject<'s>(&'s self, key: &'s InstanceKey) -> DecisionContext<'s> {
        DecisionContext {
            key,
            instance: self.instance.as_ref(),
            program: self.program,
            now: self.now,
            node: "n1",
            buffered: &self.early,
            history_payload_bytes: 2048,
        }
    }

    pub(crate) fn decide(&self, input: &Input) -> Decision {
        decide(&self.subject(&key()), input)
    }

    /// Decides the input and applies the commit.
    #[track_caller]
    pub(crate) fn commit(&mut self, input: &Input) -> Commit {
        match self.decide(input) {
            Decision::Commit(commit) => {
                self.instance = commit.instance.as_deref().cloned().or(self.instance.take());
                *commit
            }
            other => panic!("expected a commit, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_rejection(&self, input: &Input) -> String {
        match self.decide(input) {
            Decision::Reject(rejection) => rejection.to_string(),
            other => panic!("expected a rejection, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect_ignored(&self, input: &Input) -> String {
        match self.decide(input) {
            Decision::Ignore { reason, .. } => reason.to_string(),
            other => panic!("expected an ignored input, got {other:?}"),
        }
    }

    pub(crate) fn current_instance(&self) -> &Instance {
        self.instance.as_ref().unwrap()
    }
}

pub(crate) fn step(status: Status) -> Transition {
    Transition {
        run: orlog_model::RunChange::default(),
        state: b"next".to_vec(),
        status,
        work: vec![],
        timers: vec![],
        tasks: vec![],
        waits: vec![],
        reference: None,
        variables: Vec::new(),
        failure: None,
        note: "stepped".to_owned(),
    }
}

pub(crate) fn applied(transition: Transition) -> ProgramOutput {
    ProgramOutput::Applied(Box::new(transition))
}

pub(crate) fn with_work(status: Status, work: Vec<Work>) -> ProgramOutput {
    applied(Transition {
        work,
        ..step(status)
    })
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
        user: None,
        attributes: None,
    })
}

pub(crate) fn control(action: ControlAction) -> ControlRequest {
    ControlRequest {
        id: id("c-1"),
        action,
        expected_version: None,
        at: at(700),
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    }
}

pub(crate) fn by(user: &str, action: ControlAction) -> Input {
    Input::Control(ControlRequest {
        user: Some(user.to_owned()),
        ..control(action)
    })
}
