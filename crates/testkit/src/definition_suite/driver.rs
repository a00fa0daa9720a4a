//! Driver of one instance of a program: the in-memory part of the engine, with a manual clock.

use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, PendingWork, Reference, Status,
    TaskChange, TaskSpec, TenantId, TimerChange, Timestamp, Transition, WaitKind, Work,
    WorkOutcome,
};
use orlog_program::{Context, Migration, Program, ProgramInput, ProgramOutput};
use serde_json::Value;
use uuid::Uuid;

/// Instance of a program. An input without a transition returns an error with the reason; the instance
/// does not change.
pub struct InstanceDriver<'a> {
    program: &'a dyn Program,
    key: InstanceKey,
    now: Timestamp,
    version: u64,
    state: Option<Vec<u8>>,
    last: Option<Transition>,
    failure: Option<Failure>,
    work: Vec<Work>,
    pending: Vec<PendingWork>,
    was_requested: Vec<String>,
    was_compensated: Vec<String>,
    timers: Vec<(String, Timestamp)>,
    tasks: Vec<TaskSpec>,
    inputs: usize,
}

impl<'a> InstanceDriver<'a> {
    /// Creates a driver of an instance that does not exist yet.
    ///
    /// # Panics
    /// Never: the key is a valid constant.
    #[must_use]
    pub fn new(program: &'a dyn Program) -> Self {
        Self {
            program,
            key: InstanceKey {
                tenant: TenantId::default_tenant(),
                saga: program.definition_ref().saga.clone(),
                correlation: CorrelationId::new("o1").expect("a valid name"),
            },
            now: Timestamp::from_millis(1_700_000_000_000),
            version: 0,
            state: None,
            last: None,
            failure: None,
            work: Vec::new(),
            pending: Vec::new(),
            was_requested: Vec::new(),
            was_compensated: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            inputs: 0,
        }
    }

    /// Applies an event, in the version that the expressions of the definition use.
    ///
    /// # Errors
    /// The reason why nothing changed.
    ///
    /// # Panics
    /// If the event type is invalid.
    pub fn event(&mut self, kind: &str, data: Value) -> Result<String, String> {
        let definition = self
            .program
            .as_compiled()
            .map(orlog_program::CompiledDefinition::definition);
        let known =
            definition.and_then(|it| it.events.iter().find(|(name, _)| name.as_str() == kind));
        let newest = known.and_then(|(_, form)| form.accepts.iter().max());
        self.event_of(kind, newest.copied().unwrap_or(1), data)
    }

    /// Applies an event with this payload version.
    ///
    /// # Errors
    /// The reason why nothing changed.
    ///
    /// # Panics
    /// If the event type is invalid.
    pub fn event_of(&mut self, kind: &str, version: u32, data: Value) -> Result<String, String> {
        let event = self.new_event(kind, version, data);
        self.deliver(&event)
    }

    /// Returns an event for the instance, without further attributes.
    ///
    /// # Panics
    /// If the event type is invalid.
    #[must_use]
    pub fn new_event(&self, kind: &str, version: u32, data: Value) -> Event {
        Event {
            id: EventId::new(format!("e{}", self.inputs)).expect("a valid name"),
            tenant: self.key.tenant.clone(),
            kind: EventType::new(kind).expect("a valid event type"),
            source: "urn:test".to_owned(),
            subject: None,
            time: self.now,
            correlation: Some(self.key.correlation.clone()),
            causation: None,
            trace: None,
            schema_version: version,
            data,
            user: None,
            attributes: None,
        }
    }

    /// Applies this event.
    ///
    /// # Errors
    /// The reason why nothing changed.
    pub fn deliver(&mut self, event: &Event) -> Result<String, String> {
        self.take(&ProgramInput::Event(event))
    }

    /// Applies a work result. Does not check whether the work is still pending, because results can be
    /// late.
    ///
    /// # Errors
    /// The reason why nothing changed.
    pub fn outcome(&mut self, tag: &str, work_outcome: &WorkOutcome) -> Result<String, String> {
        self.take(&ProgramInput::WorkResult {
            tag,
            outcome: work_outcome,
        })
    }

    /// Advances the time; due timers fire in order.
    ///
    /// # Errors
    /// A fired timer was stale.
    pub fn advance(&mut self, by: Duration) -> Result<Vec<String>, String> {
        let end = self.now.saturating_add(by);
        let mut notes = Vec::new();
        while let Some(next) = self.next_due(end) {
            let (name, due) = self.timers.remove(next);
            self.now = due;
            notes.push(self.take(&ProgramInput::Timer { name: &name })?);
        }
        self.now = end;
        Ok(notes)
    }

    /// Fires one timer after this time, regardless of other timers.
    ///
    /// # Errors
    /// The timer is not armed, or is stale.
    pub fn fire(&mut self, name: &str, after: Duration) -> Result<String, String> {
        let armed = self.timers.iter().position(|(armed, _)| armed == name);
        self.timers
            .remove(armed.ok_or_else(|| format!("the timer {name} is not armed"))?);
        self.now = self.now.saturating_add(after);
        self.take(&ProgramInput::Timer { name })
    }

    /// Returns the time until a timer is due, if it is armed.
    #[must_use]
    pub fn time_until(&self, name: &str) -> Option<Duration> {
        let armed = self.timers.iter().find(|(armed, _)| armed == name);
        armed.map(|(_, due)| due.duration_since(self.now))
    }

    fn next_due(&self, end: Timestamp) -> Option<usize> {
        let due = self
            .timers
            .iter()
            .enumerate()
            .filter(|(_, (_, due))| *due <= end);
        due.min_by_key(|(index, (_, due))| (*due, *index))
            .map(|(index, _)| index)
    }

    /// Cancels the instance.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn cancel(&mut self, reason: &str) -> Result<String, String> {
        self.take(&ProgramInput::Cancel { reason })
    }

    /// Retries the work that made the instance stuck.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn retry(&mut self) -> Result<String, String> {
        self.take(&ProgramInput::Retry)
    }

    /// Skips the failed compensation that made the instance stuck.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn skip(&mut self) -> Result<String, String> {
        self.take(&ProgramInput::Skip)
    }

    /// Ends the instance without further steps or compensations.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn force_complete(&mut self) -> Result<String, String> {
        self.take(&ProgramInput::ForceComplete)
    }

    /// Migrates the instance to another program of its saga.
    ///
    /// # Errors
    /// The obstacles to the migration.
    pub fn migrate(&mut self, to: &'a dyn Program) -> Result<Migration, Vec<String>> {
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now: self.now,
            pending_work: &self.pending,
            attempts: 0,
        };
        let migration = to.migrate(
            self.program,
            self.state.as_deref().unwrap_or_default(),
            &context,
        )?;
        self.program = to;
        let renamed = |tag: &str| {
            migration
                .tags
                .iter()
                .find(|(old, _)| old.as_str() == tag)
                .map(|(_, new)| new)
        };
        for requested in &mut self.was_requested {
            *requested = renamed(requested).map_or_else(|| requested.clone(), ToString::to_string);
        }
        for work in &mut self.pending {
            work.tag = renamed(work.tag.as_str()).unwrap_or(&work.tag).clone();
        }
        for task in &mut self.tasks {
            task.tag = renamed(task.tag.as_str())
                .cloned()
                .unwrap_or_else(|| task.tag.clone());
        }
        self.timers.clear();
        self.apply(migration.transition.clone());
        Ok(migration)
    }

    /// Applies any input.
    ///
    /// # Errors
    /// The reason why nothing changed.
    ///
    /// # Panics
    /// If the same input on the same state produces different transitions.
    pub fn take(&mut self, input: &ProgramInput<'_>) -> Result<String, String> {
        self.inputs += 1;
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now: self.now,
            pending_work: &self.pending,
            attempts: 0,
        };
        let decide = || self.program.apply(self.state.as_deref(), input, &context);
        let output = decide();
        assert_eq!(output, decide(), "the same input produced another output");
        let output = output.map_err(|fault| fault.to_string())?;

        // Also a result that changes nothing ends its work.
        if let ProgramInput::WorkResult { tag, .. } = input {
            self.pending.retain(|work| work.tag.as_str() != *tag);
        }
        match output {
            ProgramOutput::Applied(transition) => Ok(self.apply(*transition)),
            ProgramOutput::Ignored(reason) | ProgramOutput::Rejected(reason) => {
                Err(reason.into_owned())
            }
        }
    }

    fn apply(&mut self, transition: Transition) -> String {
        self.version += 1;

        // A new run awaits no work of the one before.
        let new_run = transition.run.begins_at;
        if new_run.is_some() {
            self.pending.clear();
        }

        for (index, work) in transition.work.iter().enumerate() {
            if let Some(tag) = work.tag() {
                self.was_requested
                    .retain(|requested| requested != tag.as_str());
                self.was_requested.push(tag.to_string());

                if new_run.is_some_and(|first| index < first) {
                    continue;
                }
                self.pending.retain(|pending| pending.tag != *tag);
                self.pending.push(PendingWork {
                    id: Uuid::nil(),
                    kind: work.kind(),
                    tag: tag.clone(),
                    requested_at: self.now,
                    survives_end: false,
                    dead_letter: None,
                    abandoned: false,
                });
            }
        }
        let tasks = transition.tasks.iter().filter_map(|change| match change {
            TaskChange::Open(form) => Some(&form.tag),
            TaskChange::Assign { .. } | TaskChange::Close { .. } => None,
        });
        let tags = transition
            .work
            .iter()
            .filter_map(Work::tag)
            .chain(tasks)
            .map(ToString::to_string);
        self.was_compensated
            .extend(tags.filter(|tag| tag.starts_with("compensate:")));
        self.work.extend(transition.work.iter().cloned());
        for change in &transition.timers {
            let (TimerChange::Arm { name, .. } | TimerChange::Cancel { name }) = change;
            self.timers.retain(|(armed, _)| armed != name.as_str());
            if let TimerChange::Arm { name, due } = change {
                self.timers.push((name.to_string(), *due));
            }
        }
        if transition.status.is_final() || transition.status == Status::Stuck {
            self.timers.clear();
        }
        transition
            .tasks
            .iter()
            .for_each(|change| self.change_task(change));
        self.state = Some(transition.state.clone());
        if let Some(reported) = &transition.failure {
            self.failure = Some(reported.failure.clone());
        }
        let note = transition.note.clone();
        self.last = Some(transition);
        note
    }

    fn change_task(&mut self, change: &TaskChange) {
        match change {
            TaskChange::Open(form) => {
                self.tasks.retain(|task| task.tag != form.tag);
                self.tasks.push(form.clone());
            }
            TaskChange::Assign {
                tag,
                roles,
                assignee,
            } => {
                for task in self.tasks.iter_mut().filter(|task| task.tag == *tag) {
                    task.roles.clone_from(roles);
                    task.assignee.clone_from(assignee);
                }
            }
            TaskChange::Close { tag } => self.tasks.retain(|task| task.tag != *tag),
        }
    }

    /// Returns the version of the history entry that the last transition deletes.
    #[must_use]
    pub fn forgets(&self) -> Option<u64> {
        self.last
            .as_ref()
            .and_then(|transition| transition.run.forgets)
    }

    /// Returns the status.
    ///
    /// # Panics
    /// If the instance has not started.
    #[must_use]
    pub fn status(&self) -> Status {
        self.last().status
    }

    fn last(&self) -> &Transition {
        self.last.as_ref().expect("the instance has started")
    }

    /// Returns the state; empty before the instance has started.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        self.state.as_deref().unwrap_or_default()
    }

    /// Returns all requested work.
    #[must_use]
    pub fn work(&self) -> &[Work] {
        &self.work
    }

    /// Returns the labels of all requested work.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.work.iter().map(|work| work.label().into()).collect()
    }

    /// Returns the tags of requested compensations, including human tasks, in order.
    #[must_use]
    pub fn compensated(&self) -> Vec<String> {
        self.was_compensated.clone()
    }

    /// Returns the tags of all requested work, each once, at its last position.
    #[must_use]
    pub fn requested(&self) -> &[String] {
        &self.was_requested
    }

    /// Returns the names of armed timers.
    #[must_use]
    pub fn timers(&self) -> Vec<&str> {
        self.timers.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the tasks that were opened and not closed, including tasks that users completed.
    #[must_use]
    pub fn tasks(&self) -> &[TaskSpec] {
        &self.tasks
    }

    /// Returns the readable view of the state; null before the instance has started.
    #[must_use]
    pub fn state_view(&self) -> Value {
        self.state
            .as_deref()
            .and_then(|state| self.program.view_state(state))
            .unwrap_or_default()
    }

    /// Returns the timer changes of the last transition.
    #[must_use]
    pub fn last_timers(&self) -> &[TimerChange] {
        &self.last().timers
    }

    /// Returns the waits of the instance.
    #[must_use]
    pub fn waits(&self) -> Vec<(WaitKind, String)> {
        let waits = self.last.iter().flat_map(|t| &t.waits);
        waits
            .map(|wait| (wait.kind, wait.name.to_string()))
            .collect()
    }

    /// Returns the last failure.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns the business reference.
    #[must_use]
    pub fn reference(&self) -> Option<&Reference> {
        self.last.as_ref()?.reference.as_ref()
    }

    /// Returns the number of applied inputs.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }
}
