//! The work, timers and waits in a module's answer, as it writes them and as the runner keeps them.

use std::time::Duration;

use orlog_model::{
    Command, Confirmation, CorrelationId, Effect, EffectName, EventType, Fact, Name, Retry, SagaName, Start,
    Stop, TaskChange, TaskForm, TimerChange, Timestamp, Wait, WaitKind, Work,
};
use serde::Deserialize;
use serde_json::Value;

use super::manifest::Declared;
use crate::builder::split_command;
use crate::contract::Context;
use crate::limits::{MAX_TEXT_BYTES, check_payload};

/// A piece of work.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Order {
    Command(CommandOrder),
    Effect(EffectOrder),
    Fact(FactOrder),
    Start(StartOrder),
    Stop(StopOrder),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CommandOrder {
    tag: Name,
    /// `aggregate.Name`.
    name: String,
    /// Which aggregate; the correlation id where nothing is said.
    id: Option<String>,
    #[serde(default)]
    payload: Value,
    /// Whether the acceptance is to come back too, because it is the answer.
    #[serde(default)]
    confirm: bool,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EffectOrder {
    tag: Name,
    name: EffectName,
    #[serde(default)]
    payload: Value,
    timeout_ms: Option<u64>,
    retry: Option<RetryOrder>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RetryOrder {
    attempts: Option<u32>,
    backoff_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactOrder {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// A child saga to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartOrder {
    tag: Name,
    saga: SagaName,
    correlation: CorrelationId,
    /// The event that begins it; its first start event without one.
    event: Option<EventType>,
    #[serde(default)]
    data: Value,
}

/// A child saga to cancel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StopOrder {
    saga: SagaName,
    correlation: CorrelationId,
    reason: String,
}

/// A change to a task for a person.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaskOrder {
    Open(OpenOrder),
    Assign(AssignOrder),
    Close(CloseOrder),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenOrder {
    tag: Name,
    title: String,
    #[serde(default)]
    roles: Vec<String>,
    assignee: Option<String>,
    /// Milliseconds since 1970.
    due: Option<i64>,
    #[serde(default)]
    outcomes: Vec<EventType>,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignOrder {
    tag: Name,
    #[serde(default)]
    roles: Vec<String>,
    assignee: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseOrder {
    tag: Name,
}

/// A change to a timer.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TimerOrder {
    Arm(ArmOrder),
    Cancel(CancelOrder),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ArmOrder {
    name: Name,
    after_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelOrder {
    name: Name,
}

/// Something the instance waits for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitOrder {
    kind: WaitKind,
    name: Name,
    /// Milliseconds since 1970.
    until: Option<i64>,
}

/// The work item, if the manifest names what it asks for and its payload fits.
pub(super) fn work(order: Order, declared: &Declared, context: &Context<'_>) -> Result<Work, String> {
    let work = match order {
        Order::Command(order) => command(order, declared, context)?,
        Order::Effect(order) => effect(order, declared)?,
        Order::Fact(FactOrder { kind, data }) => Work::Fact(Fact { kind, data }),
        Order::Start(StartOrder { tag, saga, correlation, event, data }) => {
            known_saga(&saga, declared)?;
            Work::Start(Start { tag, saga, correlation, event, data })
        }
        Order::Stop(StopOrder { saga, correlation, reason }) => {
            known_saga(&saga, declared)?;
            Work::Stop(Stop { saga, correlation, reason })
        }
    };
    match payload(&work).map(check_payload) {
        Some(Err(large)) => Err(format!("the payload of {}: {large}", work.label())),
        Some(Ok(())) | None => Ok(work),
    }
}

fn payload(work: &Work) -> Option<&Value> {
    match work {
        Work::Command(command) => Some(&command.payload),
        Work::Effect(effect) => Some(&effect.payload),
        Work::Fact(fact) => Some(&fact.data),
        Work::Start(start) => Some(&start.data),
        Work::Stop(_) | Work::End(_) => None,
    }
}

fn known_saga(saga: &SagaName, declared: &Declared) -> Result<(), String> {
    let known = declared.sagas.binary_search(saga).is_ok();
    if known { Ok(()) } else { Err(format!("it names the saga `{saga}`, which its manifest does not list")) }
}

fn command(order: CommandOrder, declared: &Declared, context: &Context<'_>) -> Result<Work, String> {
    if declared.commands.binary_search(&order.name).is_err() {
        return Err(format!("it asks for the command `{}`, which its manifest does not list", order.name));
    }
    let (aggregate_type, name) = split_command(&order.name).map_err(|finding| finding.message)?;
    let aggregate_id = order.id.unwrap_or_else(|| context.key.correlation.to_string());
    if aggregate_id.is_empty() || aggregate_id.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "the id of its command `{}` is empty or longer than {MAX_TEXT_BYTES} bytes",
            order.name
        ));
    }
    Ok(Work::Command(Command {
        tag: order.tag,
        aggregate_type,
        aggregate_id,
        name,
        payload: order.payload,
        confirmation: if order.confirm { Confirmation::Acceptance } else { Confirmation::RefusalOnly },
        timeout: order.timeout_ms.map(Duration::from_millis),
    }))
}

fn effect(order: EffectOrder, declared: &Declared) -> Result<Work, String> {
    if declared.effects.binary_search(&order.name).is_err() {
        return Err(format!("it asks for the effect `{}`, which its manifest does not list", order.name));
    }
    if order.retry.as_ref().is_some_and(|retry| retry.attempts == Some(0)) {
        return Err(format!("its effect `{}` allows no attempt", order.name));
    }
    let retry = order.retry.map(|RetryOrder { attempts, backoff_ms }| Retry {
        attempts,
        backoff: backoff_ms.map(Duration::from_millis),
    });
    Ok(Work::Effect(Effect {
        tag: order.tag,
        name: order.name,
        payload: order.payload,
        timeout: order.timeout_ms.map(Duration::from_millis),
        retry,
        in_doubt: None,
    }))
}

pub(super) fn timer(order: TimerOrder, context: &Context<'_>) -> TimerChange {
    match order {
        TimerOrder::Arm(ArmOrder { name, after_ms }) => {
            TimerChange::Arm { name, due: context.now.after(Duration::from_millis(after_ms)) }
        }
        TimerOrder::Cancel(CancelOrder { name }) => TimerChange::Cancel { name },
    }
}

/// The task, if what the person is to see fits.
pub(super) fn task(order: TaskOrder) -> Result<TaskChange, String> {
    Ok(match order {
        TaskOrder::Open(OpenOrder { tag, title, roles, assignee, due, outcomes, data }) => {
            check_payload(&data).map_err(|large| format!("the data of its task `{tag}`: {large}"))?;
            let due = due.map(Timestamp::from_millis);
            TaskChange::Open(TaskForm { tag, title, roles, assignee, due, outcomes, data })
        }
        TaskOrder::Assign(AssignOrder { tag, roles, assignee }) => {
            TaskChange::Assign { tag, roles, assignee }
        }
        TaskOrder::Close(CloseOrder { tag }) => TaskChange::Close { tag },
    })
}

pub(super) fn wait(order: WaitOrder) -> Wait {
    let WaitOrder { kind, name, until } = order;
    Wait { kind, name, until: until.map(Timestamp::from_millis) }
}
