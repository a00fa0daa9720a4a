//! What a saga orders: work, timers, tasks, and how the instance is to be shown.

use serde::Serialize;
use serde_json::Value;

use crate::input::Failure;

/// Takes down what is to be done. Names that are none, or that the manifest does not list, make the runner pause the
/// instance with a dead letter that says so.
#[derive(Debug, Default, Serialize)]
pub struct Orders {
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    work: Vec<Work>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timers: Vec<Timer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<TaskOrder>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<Wait>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Where an instance stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Going forward.
    #[default]
    Running,
    /// Undoing what was done.
    Compensating,
    /// Final: everything is done.
    Completed,
    /// Final: something failed, and everything done was undone.
    Failed,
    /// Final: cancelled, and everything done was undone.
    Cancelled,
    /// Something could not be undone: a person must decide.
    Stuck,
}

/// A command to an aggregate.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Comes back with a refusal or, where asked for, with the acceptance.
    pub tag: String,
    /// `aggregate.Command`, as the manifest lists it.
    pub name: String,
    /// Which aggregate; the correlation id where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Arguments.
    pub payload: Value,
    /// The acceptance is to come back too: it is the answer.
    pub confirm: bool,
    /// Not sent any more after so many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// An act on the world. Its outcome comes back under the tag.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// Comes back with the outcome.
    pub tag: String,
    /// As the manifest lists it, for example `payments.charge`.
    pub name: String,
    /// Arguments.
    pub payload: Value,
    /// The time for all attempts together, in milliseconds; the provider's where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What a person is asked. The choice comes back as an outcome under the tag.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Task {
    /// Comes back with the outcome.
    pub tag: String,
    /// What it is called.
    pub title: String,
    /// The roles of those who may take it; empty: everybody.
    pub roles: Vec<String>,
    /// Who is to do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// When it should be done, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// What a person can choose; empty: only that it is done.
    pub outcomes: Vec<String>,
    /// What the person sees.
    pub data: Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Work {
    Command(Command),
    Effect(Effect),
    Fact {
        #[serde(rename = "type")]
        kind: String,
        data: Value,
    },
    Start {
        tag: String,
        saga: String,
        correlation: String,
        data: Value,
    },
    Stop {
        saga: String,
        correlation: String,
        reason: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Timer {
    Arm {
        name: String,
        #[serde(rename = "afterMs")]
        after_ms: u64,
    },
    Cancel {
        name: String,
    },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum TaskOrder {
    Open(Task),
    Close { tag: String },
}

#[derive(Debug, Serialize)]
struct Wait {
    kind: &'static str,
    name: String,
}

impl Orders {
    /// Asks the aggregate of the correlation id for something; its answer is an event. `name` is `aggregate.Command`.
    pub fn command(&mut self, tag: &str, name: &str, payload: &impl Serialize) {
        let payload = value(payload);
        self.send(Command { tag: tag.to_owned(), name: name.to_owned(), payload, ..Command::default() });
    }

    /// The same with everything that can be said about it.
    pub fn send(&mut self, command: Command) {
        self.work.push(Work::Command(command));
    }

    /// Asks for an effect; its outcome comes back under the tag.
    pub fn effect(&mut self, tag: &str, name: &str, payload: &impl Serialize) {
        let payload = value(payload);
        self.perform(Effect { tag: tag.to_owned(), name: name.to_owned(), payload, timeout_ms: None });
    }

    /// The same with everything that can be said about it.
    pub fn perform(&mut self, effect: Effect) {
        self.waits.push(Wait { kind: "outcome", name: effect.tag.clone() });
        self.work.push(Work::Effect(effect));
    }

    /// Tells everybody that something happened.
    pub fn tell(&mut self, kind: &str, data: &impl Serialize) {
        self.work.push(Work::Fact { kind: kind.to_owned(), data: value(data) });
    }

    /// Begins another saga with its first start event; its end comes back under the tag.
    pub fn start(&mut self, tag: &str, saga: &str, correlation: &str, data: &impl Serialize) {
        let [tag, saga, correlation] = [tag, saga, correlation].map(str::to_owned);
        self.work.push(Work::Start { tag, saga, correlation, data: value(data) });
    }

    /// Cancels a saga that was begun.
    pub fn stop(&mut self, saga: &str, correlation: &str, reason: &str) {
        let [saga, correlation, reason] = [saga, correlation, reason].map(str::to_owned);
        self.work.push(Work::Stop { saga, correlation, reason });
    }

    /// Arms a timer, so many milliseconds after the transition's time. A timer of the same name is replaced.
    pub fn arm(&mut self, name: &str, after_ms: u64) {
        self.timers.push(Timer::Arm { name: name.to_owned(), after_ms });
    }

    /// Cancels a timer.
    pub fn disarm(&mut self, name: &str) {
        self.timers.push(Timer::Cancel { name: name.to_owned() });
    }

    /// Asks a person.
    pub fn open(&mut self, task: Task) {
        self.tasks.push(TaskOrder::Open(task));
    }

    /// A task is no longer needed.
    pub fn close(&mut self, tag: &str) {
        self.tasks.push(TaskOrder::Close { tag: tag.to_owned() });
    }

    /// Says which event it waits for, for people.
    pub fn wait_for_event(&mut self, kind: &str) {
        self.waits.push(Wait { kind: "event", name: kind.to_owned() });
    }

    /// Says that it waits for an operator, for people.
    pub fn wait_for_operator(&mut self, name: &str) {
        self.waits.push(Wait { kind: "operator", name: name.to_owned() });
    }

    /// Where the instance stands after this; [`Status::Running`] without a word.
    pub fn end(&mut self, status: Status) {
        self.status = status;
    }

    /// What the business calls the instance.
    pub fn reference(&mut self, reference: impl Into<String>) {
        self.reference = Some(reference.into());
    }

    /// What went wrong.
    pub fn failure(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// What happened, in a few words, for the history.
    pub fn note(&mut self, note: impl Into<String>) {
        self.note = Some(note.into());
    }
}

/// A payload as JSON. What cannot be JSON (a map with keys that are no texts) traps: the runner pauses the instance.
fn value(payload: &impl Serialize) -> Value {
    serde_json::to_value(payload).expect("a payload is plain data with text keys")
}
