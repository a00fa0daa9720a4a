//! Work, timers and waits in the output of a module, and their conversion to the types of the
//! runner.

use std::time::Duration;

use compact_str::CompactString;
use orlog_model::{
    CancelChild, Command, Confirmation, CorrelationId, Effect, EffectName, EventType, ExcludedUser,
    Fact, Name, ParentEndPolicy, Priority, RetryPolicy, SagaName, StartChild, TaskChange, TaskSpec,
    TimerChange, Timestamp, Wait, WaitKind, Work,
};
use serde::Deserialize;
use serde_json::Value;

use super::limits::MAX_TEXT_BYTES;
use super::manifest::ModuleManifest;
use crate::contract::Context;
use crate::limits::check_payload;
use crate::steps::split_command;

/// Request for work.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum WorkRequest {
    Command(CommandRequest),
    Effect(EffectRequest),
    Fact(FactRequest),
    StartChild(StartChildRequest),
    CancelChild(CancelChildRequest),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct CommandRequest {
    tag: Name,
    #[serde(default)]
    round: u64,
    /// Command as `aggregate.Name`.
    name: String,
    /// Id of the aggregate. Default: the correlation id.
    id: Option<String>,
    #[serde(default)]
    payload: Value,
    /// Whether the acceptance is also returned, because it is the response.
    #[serde(default)]
    confirm: bool,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EffectRequest {
    tag: Name,
    #[serde(default)]
    round: u64,
    name: EffectName,
    #[serde(default)]
    payload: Value,
    timeout_ms: Option<u64>,
    retry: Option<RetryRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RetryRequest {
    max_attempts: Option<u32>,
    initial_backoff_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactRequest {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    data: Value,
    /// Identity of the fact within the run. Default: the input and the position.
    key: Option<CompactString>,
}

/// Request to start a child saga.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartChildRequest {
    tag: Name,
    #[serde(default)]
    round: u64,
    saga: SagaName,
    correlation: CorrelationId,
    /// Event that starts the child saga. Default: its first start event.
    event: Option<EventType>,
    #[serde(default)]
    data: Value,
}

/// Request to cancel a child saga.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelChildRequest {
    saga: SagaName,
    correlation: CorrelationId,
    reason: String,
}

/// Change of a human task.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaskRequest {
    Open(OpenTaskRequest),
    Assign(AssignTaskRequest),
    Close(CloseTaskRequest),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct OpenTaskRequest {
    tag: Name,
    #[serde(default)]
    round: u64,
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
    #[serde(default)]
    not_by: Vec<ExcludedUser>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignTaskRequest {
    tag: Name,
    #[serde(default)]
    roles: Vec<String>,
    assignee: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseTaskRequest {
    tag: Name,
}

/// Change of a timer.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TimerRequest {
    Arm(ArmTimerRequest),
    Cancel(CancelTimerRequest),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ArmTimerRequest {
    name: Name,
    after_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelTimerRequest {
    name: Name,
}

/// Wait of the instance.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitRequest {
    kind: WaitRequestKind,
    name: Name,
    /// Milliseconds since 1970.
    until: Option<i64>,
}

/// Kind of a wait.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum WaitRequestKind {
    Event,
    WorkResult,
    Timer,
    Operator,
    Task,
    Saga,
}

/// Returns the work item if the manifest lists its target and its payload is within the limits.
pub(super) fn work(
    request: WorkRequest,
    declared: &ModuleManifest,
    context: &Context<'_>,
) -> Result<Work, String> {
    let work = match request {
        WorkRequest::Command(request) => command(request, declared, context)?,
        WorkRequest::Effect(request) => effect(request, declared)?,
        WorkRequest::Fact(FactRequest { kind, data, key }) => Work::Fact(Fact {
            key,
            ..Fact::new(kind, data)
        }),
        WorkRequest::StartChild(StartChildRequest {
            tag,
            round,
            saga,
            correlation,
            event,
            data,
        }) => {
            known_saga(&saga, declared)?;
            // A module decides itself when it cancels a child; the engine uses `stop` (ADR 0065).
            let on_parent_end = ParentEndPolicy::default();
            Work::StartChild(StartChild {
                tag,
                round,
                saga,
                correlation,
                event,
                data,
                on_parent_end,
            })
        }
        WorkRequest::CancelChild(CancelChildRequest {
            saga,
            correlation,
            reason,
        }) => {
            known_saga(&saga, declared)?;
            Work::CancelChild(CancelChild {
                saga,
                correlation,
                reason,
            })
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
        Work::StartChild(start) => Some(&start.data),
        Work::CancelChild(_) | Work::NotifyParent(_) | Work::PublishResult(_) => None,
    }
}

fn known_saga(saga: &SagaName, declared: &ModuleManifest) -> Result<(), String> {
    let known = declared.sagas.binary_search(saga).is_ok();
    if known {
        Ok(())
    } else {
        Err(format!(
            "it names the saga `{saga}`, which its manifest does not list"
        ))
    }
}

fn command(
    request: CommandRequest,
    declared: &ModuleManifest,
    context: &Context<'_>,
) -> Result<Work, String> {
    // The node checks what the manifest lists when it loads the module.
    if declared.commands.binary_search(&request.name).is_err() {
        return Err(format!(
            "it requests the command `{}`, which its manifest does not list",
            request.name
        ));
    }

    let (aggregate_type, name) = split_command(&request.name).map_err(|finding| finding.message)?;
    let aggregate_id = request
        .id
        .unwrap_or_else(|| context.key.correlation.to_string());
    if aggregate_id.is_empty() || aggregate_id.len() > MAX_TEXT_BYTES {
        return Err(format!(
            "the id of its command `{}` is empty or longer than {MAX_TEXT_BYTES} bytes",
            request.name
        ));
    }

    Ok(Work::Command(Command {
        tag: request.tag,
        round: request.round,
        aggregate_type,
        aggregate_id,
        name,
        payload: request.payload,
        confirmation: if request.confirm {
            Confirmation::Acceptance
        } else {
            Confirmation::RejectionOnly
        },
        timeout: request.timeout_ms.map(Duration::from_millis),
        priority: Priority::Normal,
    }))
}

fn effect(request: EffectRequest, declared: &ModuleManifest) -> Result<Work, String> {
    // The manifest is what a node checks against its upstreams, so a module cannot request anything
    // else.
    if declared.effects.binary_search(&request.name).is_err() {
        return Err(format!(
            "it requests the effect `{}`, which its manifest does not list",
            request.name
        ));
    }

    if request
        .retry
        .as_ref()
        .is_some_and(|retry| retry.max_attempts == Some(0))
    {
        return Err(format!("its effect `{}` allows no attempts", request.name));
    }

    let retry = request.retry.map(
        |RetryRequest {
             max_attempts,
             initial_backoff_ms,
         }| RetryPolicy {
            max_attempts,
            initial_backoff: initial_backoff_ms.map(Duration::from_millis),
        },
    );

    Ok(Work::Effect(Effect {
        tag: request.tag,
        round: request.round,
        name: request.name,
        payload: request.payload,
        timeout: request.timeout_ms.map(Duration::from_millis),
        retry,
        schema_version: 1,
        // A request has no such field: the policy of the upstream applies.
        in_doubt: None,
        priority: Priority::Normal,
    }))
}

pub(super) fn timer(request: TimerRequest, context: &Context<'_>) -> TimerChange {
    match request {
        TimerRequest::Arm(ArmTimerRequest { name, after_ms }) => TimerChange::Arm {
            name,
            due: context.now.saturating_add(Duration::from_millis(after_ms)),
        },
        TimerRequest::Cancel(CancelTimerRequest { name }) => TimerChange::Cancel { name },
    }
}

/// Returns the task change if its data is within the limits.
pub(super) fn task(request: TaskRequest) -> Result<TaskChange, String> {
    Ok(match request {
        TaskRequest::Open(request) => {
            let OpenTaskRequest {
                tag,
                round,
                title,
                roles,
                assignee,
                due,
                outcomes,
                data,
                not_by,
            } = request;
            check_payload(&data)
                .map_err(|large| format!("the data of its task `{tag}`: {large}"))?;
            let due = due.map(Timestamp::from_millis);
            let is_in_doubt = false;
            TaskChange::Open(TaskSpec {
                tag,
                round,
                title,
                roles,
                assignee,
                due,
                outcomes,
                data,
                not_by,
                is_in_doubt,
            })
        }
        TaskRequest::Assign(AssignTaskRequest {
            tag,
            roles,
            assignee,
        }) => TaskChange::Assign {
            tag,
            roles,
            assignee,
        },
        TaskRequest::Close(CloseTaskRequest { tag }) => TaskChange::Close { tag },
    })
}

pub(super) fn wait(request: WaitRequest) -> Wait {
    let WaitRequest { kind, name, until } = request;
    let kind = match kind {
        WaitRequestKind::Event => WaitKind::Event,
        WaitRequestKind::WorkResult => WaitKind::WorkResult,
        WaitRequestKind::Timer => WaitKind::Timer,
        WaitRequestKind::Operator => WaitKind::Operator,
        WaitRequestKind::Task => WaitKind::Task,
        WaitRequestKind::Saga => WaitKind::Saga,
    };
    Wait::new(kind, name, until.map(Timestamp::from_millis))
}
