//! Schedules in requests and responses.

use orlog_model::{CorrelationId, Instance, InstanceKey, SagaName, Timestamp};
use orlog_program::SagaState as _;
use orlog_sagas::schedule::{DueRun, EndedRun, Overlap, Run, ScheduleSpec, ScheduleState};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::resources::sagas::built_in::{ListedView, UNREADABLE};
use crate::server::page::BuiltPage;
use crate::server::problem::{Code, Problem};
use orlog_node::redact::{HiddenValues, Redaction};
use orlog_node::url_path::path;

/// Specification of a schedule. Exactly one of `cron`, `every` and `at` is required.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScheduleBody {
    /// Saga that the schedule starts.
    #[schema(example = "billing")]
    saga: String,
    /// Start event. Default: the first start event of the saga.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// Data of the start event. A text that starts with `=` is a CEL expression over
    /// `schedule.name`, `schedule.time` and `schedule.correlation`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    data: Value,
    /// Cron expression of five fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 2 * * *")]
    cron: Option<String>,
    /// Interval, for example `15m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    /// Time from which the intervals count (RFC 3339). Default: 1970-01-01T00:00:00Z.
    #[serde(skip_serializing_if = "Option::is_none")]
    anchor: Option<String>,
    /// One date: a local time in the zone, or a time with an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Time zone of `cron` and `at`. Default: UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    zone: Option<String>,
    /// Policy for a due time while an earlier run has not ended: `skip`, `queue`, `allow` or
    /// `cancel`. Default: `skip`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    overlap: Overlap,
    /// Time for which a due time can start late. Default: `24h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up: Option<String>,
    /// Maximum delay of a start. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<String>,
}

impl From<ScheduleBody> for ScheduleSpec {
    fn from(body: ScheduleBody) -> Self {
        let ScheduleBody {
            saga,
            event,
            data,
            cron,
            every,
            anchor,
            at,
            zone,
            overlap,
            catch_up,
            jitter,
        } = body;
        Self {
            saga,
            event,
            data,
            cron,
            every,
            anchor,
            at,
            zone,
            overlap,
            catch_up,
            jitter,
        }
    }
}

impl From<ScheduleSpec> for ScheduleBody {
    fn from(spec: ScheduleSpec) -> Self {
        let ScheduleSpec {
            saga,
            event,
            data,
            cron,
            every,
            anchor,
            at,
            zone,
            overlap,
            catch_up,
            jitter,
        } = spec;
        Self {
            saga,
            event,
            data,
            cron,
            every,
            anchor,
            at,
            zone,
            overlap,
            catch_up,
            jitter,
        }
    }
}

/// Page of schedules.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SchedulePage {
    /// Schedules.
    items: Vec<ScheduleView>,
    /// Cursor of the next page; `null` at the end.
    next_cursor: Option<String>,
}

impl SchedulePage {
    /// Creates the response of a list.
    pub(super) fn of(page: BuiltPage<ScheduleView>) -> Self {
        Self {
            items: page.entries,
            next_cursor: page.next,
        }
    }
}

/// Schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleView {
    /// Name.
    name: String,
    /// `active`, `paused`, `ended` if no due time and no run remains, or `unreadable`.
    status: &'static str,
    /// Specification.
    spec: ScheduleBody,
    /// File that deployed the schedule; `null` if a user created it.
    file: Option<String>,
    /// Next start times, with jitter.
    next: Vec<String>,
    /// Runs in progress, oldest first.
    running: Vec<RunView>,
    /// Run that waits for the end of another.
    queued: Option<DueView>,
    /// Ended runs, newest first, at most 10.
    recent: Vec<RunView>,
    /// Number of started runs.
    started: u64,
    /// Number of completed runs.
    completed: u64,
    /// Number of runs that failed, were cancelled or could not start.
    failed: u64,
    /// Number of due times that were skipped because an earlier run had not ended.
    skipped: u64,
    /// Number of due times that were older than the catch-up window.
    missed: u64,
    /// Time of the last change.
    #[schema(format = "date-time")]
    updated_at: String,
    /// Path of the instance of the schedule, with its history.
    instance: String,
    /// Reason of the status `unreadable`: only name, time and path are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Due time that waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DueView {
    /// Due time, without jitter.
    #[schema(format = "date-time")]
    due: String,
    /// Whether a user triggered the run.
    triggered: bool,
}

/// Run of a schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunView {
    /// Due time, without jitter.
    #[serde(flatten)]
    due: DueView,
    /// Saga of the started instance.
    saga: String,
    /// Correlation id of the started instance.
    correlation: String,
    /// Path of the started instance.
    instance: String,
    /// Time of the start.
    #[schema(format = "date-time")]
    started_at: String,
    /// Time of the end; `null` while the run is in progress.
    #[schema(format = "date-time")]
    ended_at: Option<String>,
    /// Whether the schedule cancelled the run, because a later time was due.
    cancelled: bool,
    /// Reason of a failed run.
    failure: Option<String>,
}

/// Returns the path of an instance.
fn instance_path(saga: &SagaName, correlation: &CorrelationId) -> String {
    path(&["v1", "sagas", saga.as_str(), correlation.as_str()])
}

impl ScheduleView {
    /// Returns the view of a schedule; `None` if it is deleted.
    pub(super) fn of(
        key: &InstanceKey,
        instance: &Instance,
        redact: &Redaction,
        now: Timestamp,
        next: usize,
    ) -> Result<Option<Self>, Problem> {
        let unreadable = |error: String| {
            Problem::new(
                Code::StoreError,
                format!("the state of {key} cannot be read: {error}"),
            )
        };
        let mut state = ScheduleState::decode(&instance.state)
            .map_err(|error| unreadable(error.to_string()))?;
        // A deleted schedule is still stored as an instance, which a later creation continues.
        if state.deleted {
            return Ok(None);
        }

        let name = key.correlation.to_string();
        let times = state.upcoming(&name, now, next).map_err(unreadable)?;
        // Collected before the data is redacted, because failures of runs can quote it.
        let hidden = redact.hidden_values([&state.spec.data]);
        state.spec.data = redact.redact(state.spec.data);
        // A paused schedule that has ended is shown as ended: a resume would start nothing.
        let status = match () {
            () if state.has_ended() => "ended",
            () if state.paused => "paused",
            () => "active",
        };

        Ok(Some(Self {
            status,
            next: times.iter().map(ToString::to_string).collect(),
            running: state.running.iter().map(RunView::of).collect(),
            queued: state.queued.map(DueView::of),
            recent: state
                .recent
                .iter()
                .map(|ended| RunView::of_ended(ended, &hidden))
                .collect(),
            started: state.counts.started,
            completed: state.counts.completed,
            failed: state.counts.failed,
            skipped: state.counts.skipped,
            missed: state.counts.missed,
            updated_at: instance.updated_at.to_string(),
            instance: instance_path(&key.saga, &key.correlation),
            spec: state.spec.into(),
            file: state.file,
            name,
            error: None,
        }))
    }
}

impl ListedView for ScheduleView {
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self {
        Self {
            name: key.correlation.to_string(),
            status: UNREADABLE,
            spec: ScheduleBody::default(),
            file: None,
            next: Vec::new(),
            running: Vec::new(),
            queued: None,
            recent: Vec::new(),
            started: 0,
            completed: 0,
            failed: 0,
            skipped: 0,
            missed: 0,
            updated_at: instance.updated_at.to_string(),
            instance: instance_path(&key.saga, &key.correlation),
            error: Some(error),
        }
    }
}

impl DueView {
    fn of(due: DueRun) -> Self {
        Self {
            due: due.at.to_string(),
            triggered: due.triggered,
        }
    }
}

impl RunView {
    fn of(run: &Run) -> Self {
        Self {
            due: DueView::of(run.due),
            saga: run.saga.to_string(),
            correlation: run.correlation.to_string(),
            instance: instance_path(&run.saga, &run.correlation),
            started_at: run.started_at.to_string(),
            ended_at: None,
            cancelled: run.cancelling,
            failure: None,
        }
    }

    fn of_ended(ended: &EndedRun, hidden: &HiddenValues) -> Self {
        let failure = ended
            .failure
            .as_ref()
            .map(|failure| hidden.remove_from(&failure.to_string()));
        Self {
            ended_at: Some(ended.ended_at.to_string()),
            failure,
            ..Self::of(&ended.run)
        }
    }
}
