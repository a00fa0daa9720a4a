//! One instance of a program, led by hand: the engine's part played in memory, with a clock that stands still.

use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, IN_DOUBT, InstanceKey, Status, TaskChange, TaskForm,
    TenantId, TimerChange, Timestamp, Transition, Verdict, WaitKind, Work,
};
use orlog_program::{Context, Migration, Program, Reaction, Stimulus};
use serde_json::Value;

/// An instance of a program. What leads to no transition is an error that says why; the instance is then unchanged.
pub struct Life<'a> {
    program: &'a dyn Program,
    key: InstanceKey,
    now: Timestamp,
    version: u64,
    state: Option<Vec<u8>>,
    last: Option<Transition>,
    failure: Option<Failure>,
    work: Vec<Work>,
    asked: Vec<String>,
    undone: Vec<String>,
    timers: Vec<(String, Timestamp)>,
    tasks: Vec<TaskForm>,
    inputs: usize,
}

impl<'a> Life<'a> {
    /// An instance that does not exist yet.
    ///
    /// # Panics
    /// Never: its key is a fixed one.
    #[must_use]
    pub fn new(program: &'a dyn Program) -> Self {
        Self {
            program,
            key: InstanceKey {
                tenant: TenantId::default_tenant(),
                saga: program.reference().saga.clone(),
                correlation: CorrelationId::new("o1").expect("a short word"),
            },
            now: Timestamp::from_millis(1_700_000_000_000),
            version: 0,
            state: None,
            last: None,
            failure: None,
            work: Vec::new(),
            asked: Vec::new(),
            undone: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            inputs: 0,
        }
    }

    /// Shows it an event, in the version that the definition's expressions are written for.
    ///
    /// # Errors
    /// Why nothing changed.
    ///
    /// # Panics
    /// When the type is no event type.
    pub fn event(&mut self, kind: &str, data: Value) -> Result<String, String> {
        let definition = self.program.compiled().map(orlog_program::Compiled::definition);
        let known = definition.and_then(|it| it.events.iter().find(|(name, _)| name.as_str() == kind));
        let newest = known.and_then(|(_, form)| form.accepts.iter().max());
        self.event_of(kind, newest.copied().unwrap_or(1), data)
    }

    /// Shows it an event whose payload is of that version.
    ///
    /// # Errors
    /// Why nothing changed.
    ///
    /// # Panics
    /// When the type is no event type.
    pub fn event_of(&mut self, kind: &str, version: u32, data: Value) -> Result<String, String> {
        let event = Event {
            id: EventId::new(format!("e{}", self.inputs)).expect("a short word"),
            tenant: self.key.tenant.clone(),
            kind: EventType::new(kind).expect("tests name events well"),
            source: "urn:test".to_owned(),
            subject: None,
            time: self.now,
            correlation: Some(self.key.correlation.clone()),
            causation: None,
            trace: None,
            schema_version: version,
            data,
        };
        self.take(&Stimulus::Event(&event))
    }

    /// Tells it what became of its work. Whether the work is still open is not checked: late answers come too.
    ///
    /// # Errors
    /// Why nothing changed.
    pub fn outcome(&mut self, tag: &str, verdict: &Verdict) -> Result<String, String> {
        self.take(&Stimulus::Outcome { tag, verdict })
    }

    /// Lets time pass; timers that fall due fire in order.
    ///
    /// # Errors
    /// When one of them was stale.
    pub fn advance(&mut self, by: Duration) -> Result<Vec<String>, String> {
        let end = self.now.after(by);
        let mut notes = Vec::new();
        while let Some(next) = self.next_due(end) {
            let (name, due) = self.timers.remove(next);
            self.now = due;
            notes.push(self.take(&Stimulus::Timer { name: &name })?);
        }
        self.now = end;
        Ok(notes)
    }

    /// Fires one timer after that time, whatever else is armed.
    ///
    /// # Errors
    /// When it is not armed, or stale.
    pub fn fire(&mut self, name: &str, after: Duration) -> Result<String, String> {
        let armed = self.timers.iter().position(|(armed, _)| armed == name);
        self.timers.remove(armed.ok_or_else(|| format!("the timer {name} is not armed"))?);
        self.now = self.now.after(after);
        self.take(&Stimulus::Timer { name })
    }

    fn next_due(&self, end: Timestamp) -> Option<usize> {
        let due = self.timers.iter().enumerate().filter(|(_, (_, due))| *due <= end);
        due.min_by_key(|(index, (_, due))| (*due, *index)).map(|(index, _)| index)
    }

    /// Cancels it.
    ///
    /// # Errors
    /// Why not.
    pub fn cancel(&mut self, reason: &str) -> Result<String, String> {
        self.take(&Stimulus::Cancel { reason })
    }

    /// Retries what made it stuck.
    ///
    /// # Errors
    /// Why not.
    pub fn retry(&mut self) -> Result<String, String> {
        self.take(&Stimulus::Retry)
    }

    /// Leaves undone what made it stuck.
    ///
    /// # Errors
    /// Why not.
    pub fn skip(&mut self) -> Result<String, String> {
        self.take(&Stimulus::Skip)
    }

    /// Ends it as it is.
    ///
    /// # Errors
    /// Why not.
    pub fn force_complete(&mut self) -> Result<String, String> {
        self.take(&Stimulus::ForceComplete)
    }

    /// Moves it to another program of its saga.
    ///
    /// # Errors
    /// Why not.
    pub fn migrate(&mut self, to: &'a dyn Program) -> Result<Migration, Vec<String>> {
        let context = Context { key: &self.key, version: self.version + 1, now: self.now };
        let migration = to.migrate(self.program, self.state.as_deref().unwrap_or_default(), &context)?;
        self.program = to;
        let renamed =
            |tag: &str| migration.tags.iter().find(|(old, _)| old.as_str() == tag).map(|(_, new)| new);
        for asked in &mut self.asked {
            *asked = renamed(asked).map_or_else(|| asked.clone(), ToString::to_string);
        }
        for task in &mut self.tasks {
            task.tag = renamed(task.tag.as_str()).cloned().unwrap_or_else(|| task.tag.clone());
        }
        self.timers.clear();
        self.apply(migration.transition.clone());
        Ok(migration)
    }

    /// Shows it anything.
    ///
    /// # Errors
    /// Why nothing changed.
    ///
    /// # Panics
    /// When the same stimulus on the same state does not give the same transition.
    pub fn take(&mut self, stimulus: &Stimulus<'_>) -> Result<String, String> {
        self.inputs += 1;
        let context = Context { key: &self.key, version: self.version + 1, now: self.now };
        let decide = || self.program.apply(self.state.as_deref(), stimulus, &context);
        let reaction = decide();
        assert_eq!(reaction, decide(), "the same input gave something else the second time");
        match reaction.map_err(|fault| fault.to_string())? {
            Reaction::Applied(transition) => Ok(self.apply(*transition)),
            Reaction::Ignored(why) | Reaction::Refused(why) => Err(why.into_owned()),
        }
    }

    fn apply(&mut self, transition: Transition) -> String {
        self.version += 1;
        for work in &transition.work {
            if let Some(tag) = work.tag() {
                self.asked.retain(|asked| asked != tag.as_str());
                self.asked.push(tag.to_string());
            }
        }
        let tasks = transition.tasks.iter().filter_map(|change| match change {
            TaskChange::Open(form) => Some(&form.tag),
            TaskChange::Assign { .. } | TaskChange::Close { .. } => None,
        });
        let tags = transition.work.iter().filter_map(Work::tag).chain(tasks).map(ToString::to_string);
        self.undone.extend(tags.filter(|tag| tag.starts_with("undo:")));
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
        transition.tasks.iter().for_each(|change| self.change_task(change));
        self.state = Some(transition.state.clone());
        if transition.failure.is_some() {
            self.failure.clone_from(&transition.failure);
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
            TaskChange::Assign { tag, roles, assignee } => {
                for task in self.tasks.iter_mut().filter(|task| task.tag == *tag) {
                    task.roles.clone_from(roles);
                    task.assignee.clone_from(assignee);
                }
            }
            TaskChange::Close { tag } => self.tasks.retain(|task| task.tag != *tag),
        }
    }

    /// Where it stands.
    ///
    /// # Panics
    /// Before it has begun.
    #[must_use]
    pub fn status(&self) -> Status {
        self.last().status
    }

    fn last(&self) -> &Transition {
        self.last.as_ref().expect("the instance has begun")
    }

    /// Its state, empty before it has begun.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        self.state.as_deref().unwrap_or_default()
    }

    /// All work it has asked for.
    #[must_use]
    pub fn work(&self) -> &[Work] {
        &self.work
    }

    /// The labels of all work it has asked for.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.work.iter().map(Work::label).collect()
    }

    /// The tags of undos it has asked for, of people too, in order.
    #[must_use]
    pub fn undone(&self) -> Vec<String> {
        self.undone.clone()
    }

    /// The tags of all work it has asked for, each once, at its last place.
    #[must_use]
    pub fn asked(&self) -> &[String] {
        &self.asked
    }

    /// The names of armed timers.
    #[must_use]
    pub fn timers(&self) -> Vec<&str> {
        self.timers.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The tasks that were opened and not closed. Those that people have done stay among them.
    #[must_use]
    pub fn tasks(&self) -> &[TaskForm] {
        &self.tasks
    }

    /// Its state in words, null before it has begun.
    #[must_use]
    pub fn shown(&self) -> Value {
        self.state.as_deref().and_then(|state| self.program.show(state)).unwrap_or_default()
    }

    /// The timer changes of the last transition.
    #[must_use]
    pub fn last_timers(&self) -> &[TimerChange] {
        &self.last().timers
    }

    /// What it waits for.
    #[must_use]
    pub fn waits(&self) -> Vec<(WaitKind, String)> {
        let waits = self.last.iter().flat_map(|t| &t.waits);
        waits.map(|wait| (wait.kind, wait.name.to_string())).collect()
    }

    /// What went wrong last.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// What the business calls it.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.last.as_ref()?.reference.as_deref()
    }

    /// How many inputs it was shown.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }
}

/// A success with that answer.
#[must_use]
pub fn succeeded(payload: Value) -> Verdict {
    Verdict::Succeeded { event: None, payload }
}

/// Nobody knows whether it was done.
#[must_use]
pub fn in_doubt() -> Verdict {
    let message = "nobody knows whether it was done".to_owned();
    Verdict::TimedOut { failure: Failure { code: IN_DOUBT.to_owned(), message } }
}

/// A final failure with that code.
#[must_use]
pub fn failed(code: &str) -> Verdict {
    let failure = Failure { code: code.to_owned(), message: format!("failed with {code}") };
    Verdict::Failed { event: None, failure, payload: serde_json::Value::Null }
}
