//! Specification of a schedule: what it starts, and when.

use std::fmt;
use std::time::Duration;

use orlog_model::{CorrelationId, EventType, SagaName, Timestamp, parse_duration};
use orlog_program::{TemplateError, VariableTemplate, is_built_in};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::times::Times;

/// Maximum length of the name of a schedule, in bytes: the correlation ids of its runs contain it.
pub const MAX_NAME_BYTES: usize = 200;
/// Catch-up window of a schedule that sets none.
pub const DEFAULT_CATCH_UP: Duration = Duration::from_hours(24);
/// Minimum catch-up window: a timer that fires late must not miss its due time.
const MIN_CATCH_UP: Duration = Duration::from_secs(10);
/// Name of the variables of the data.
const VARIABLES: &str = "schedule";

/// Specification of a schedule. Exactly one of `cron`, `every` and `at` is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSpec {
    /// Saga that the schedule starts.
    pub saga: String,
    /// Start event. Default: the first start event of the saga.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Data of the start event; a text that starts with `=` is an expression over `schedule`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Cron expression of five fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Interval, for example `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Time from which the intervals count (RFC 3339). Default: 1970-01-01T00:00:00Z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// One date: a local time in the zone, or a time with an offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Time zone of `cron` and `at`. Default: UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Policy for a due time while an earlier run has not ended. Default: `skip`.
    #[serde(default, skip_serializing_if = "Overlap::is_default")]
    pub overlap: Overlap,
    /// Time for which a due time can start late, for example after an outage. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<String>,
    /// Maximum delay of a start. The delay is derived from the schedule and the due time. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
}

/// Policy for a due time while an earlier run of the schedule has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The due time is skipped.
    #[default]
    Skip,
    /// One due time waits for the end of the run; further ones are skipped.
    Queue,
    /// The runs overlap.
    Allow,
    /// The running instance is cancelled; the due time starts when it has ended.
    Cancel,
}

impl Overlap {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Error of a specification: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    /// Path of the field, for example `data.day`.
    pub field: String,
    /// Description of the error.
    pub message: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages about times name their field.
        if self.message.starts_with(&self.field) {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// Validated specification.
#[derive(Debug)]
pub(super) struct CompiledSchedule {
    pub(super) saga: SagaName,
    pub(super) event: Option<EventType>,
    pub(super) times: Times,
    pub(super) catch_up: Duration,
    pub(super) jitter: Duration,
    data: VariableTemplate,
}

impl ScheduleSpec {
    /// Validates the specification.
    ///
    /// # Errors
    /// All errors.
    pub fn check(&self) -> Result<(), Vec<ScheduleError>> {
        self.compile_with(self.times()).map(|_| ())
    }

    /// Returns the due times, without jitter.
    ///
    /// # Errors
    /// The invalid field.
    pub fn times(&self) -> Result<Times, ScheduleError> {
        self.times_with(Times::cron)
    }

    fn times_with(
        &self,
        parse_cron: fn(&str, &str) -> Result<Times, String>,
    ) -> Result<Times, ScheduleError> {
        let zone = self.zone.as_deref().unwrap_or("UTC");
        let failed = |field: &str, message: String| {
            let field = if message.starts_with("zone ") {
                "zone"
            } else {
                field
            };
            ScheduleError {
                field: field.to_owned(),
                message,
            }
        };

        match (&self.cron, &self.every, &self.at) {
            (Some(cron), None, None) => {
                parse_cron(cron, zone).map_err(|error| failed("cron", error))
            }
            (None, None, Some(at)) => Times::at(at, zone).map_err(|error| failed("at", error)),
            (None, Some(every), None) => {
                let anchor = self.anchor.as_deref().map(Timestamp::parse).transpose();
                let anchor = anchor.map_err(|error| failed("anchor", error.to_string()))?;
                let every = duration("every", every)?;
                Times::every(every, anchor).map_err(|error| failed("every", error))
            }
            (None, None, None) => Err(failed("cron", "write one of cron, every and at".to_owned())),
            _ => Err(failed(
                "cron",
                "write only one of cron, every and at".to_owned(),
            )),
        }
    }

    /// Compiles a stored specification, also if a newer release would not accept it any more.
    pub(super) fn compile(&self) -> Result<CompiledSchedule, Vec<ScheduleError>> {
        self.compile_with(self.times_with(Times::stored_cron))
    }

    fn compile_with(
        &self,
        times: Result<Times, ScheduleError>,
    ) -> Result<CompiledSchedule, Vec<ScheduleError>> {
        let mut errors = Vec::new();
        let saga = keep(&mut errors, "saga", SagaName::for_path(self.saga.as_str()));
        if is_built_in(&self.saga) {
            errors.push(ScheduleError {
                field: "saga".to_owned(),
                message: format!("{} is reserved", self.saga),
            });
        }

        let event = self.event.as_deref().map(EventType::for_input).transpose();
        let event = keep(&mut errors, "event", event);
        let times = keep_error(&mut errors, times);
        let catch_up = duration_or("catch_up", self.catch_up.as_deref(), DEFAULT_CATCH_UP);
        let catch_up = keep_error(&mut errors, catch_up);
        let jitter = duration_or("jitter", self.jitter.as_deref(), Duration::ZERO);
        let jitter = keep_error(&mut errors, jitter);

        if catch_up.is_some_and(|window| window < MIN_CATCH_UP) {
            let message = "the window is too short; the minimum is 10s".to_owned();
            errors.push(ScheduleError {
                field: "catch_up".to_owned(),
                message,
            });
        }

        let data = match VariableTemplate::compile(&self.data, "data", VARIABLES) {
            Ok(data) => Some(data),
            Err(found) => {
                errors.extend(found.into_iter().map(ScheduleError::from));
                None
            }
        };

        match (saga, event, times, catch_up, jitter, data) {
            (Some(saga), Some(event), Some(times), Some(catch_up), Some(jitter), Some(data))
                if errors.is_empty() =>
            {
                Ok(CompiledSchedule {
                    saga,
                    event,
                    times,
                    catch_up,
                    jitter,
                    data,
                })
            }
            _ => Err(errors),
        }
    }
}

impl CompiledSchedule {
    /// Returns the data of a start event.
    pub(super) fn data(
        &self,
        name: &str,
        at: Timestamp,
        run: &CorrelationId,
    ) -> Result<Value, String> {
        let value = json!({ "name": name, "time": at.to_string(), "correlation": run });
        self.data.evaluate(&value)
    }
}

impl From<TemplateError> for ScheduleError {
    fn from(error: TemplateError) -> Self {
        let suggestion = error
            .suggestion
            .map(|text| format!("; {text}"))
            .unwrap_or_default();
        Self {
            field: error.path,
            message: error.message + &suggestion,
        }
    }
}

fn keep<T, E: fmt::Display>(
    errors: &mut Vec<ScheduleError>,
    field: &str,
    value: Result<T, E>,
) -> Option<T> {
    let value = value.map_err(|error| ScheduleError {
        field: field.to_owned(),
        message: error.to_string(),
    });
    keep_error(errors, value)
}

/// Returns the value, or adds its error to those of the specification, which reports all at once.
fn keep_error<T>(errors: &mut Vec<ScheduleError>, value: Result<T, ScheduleError>) -> Option<T> {
    match value {
        Ok(value) => Some(value),
        Err(error) => {
            errors.push(error);
            None
        }
    }
}

fn duration_or(
    field: &str,
    text: Option<&str>,
    default: Duration,
) -> Result<Duration, ScheduleError> {
    text.map_or(Ok(default), |text| duration(field, text))
}

fn duration(field: &str, text: &str) -> Result<Duration, ScheduleError> {
    parse_duration(text).map_err(|_| ScheduleError {
        field: field.to_owned(),
        message: format!("`{text}` is not a duration; write 90s, 30m, 1h30m or 7d"),
    })
}

/// Checks the name of a schedule.
///
/// # Errors
/// If it cannot be a correlation id, or is too long.
pub fn check_name(name: &str) -> Result<CorrelationId, String> {
    let id = CorrelationId::for_path(name)
        .map_err(|error| error.to_string().replace("correlation id", "schedule name"))?;
    if name.len() > MAX_NAME_BYTES {
        return Err(format!(
            "schedule name has {} bytes, the limit is {MAX_NAME_BYTES}",
            name.len()
        ));
    }
    Ok(id)
}
