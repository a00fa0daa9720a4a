//! Schedules: start sagas by cron expressions, at intervals or at one date.
//!
//! A schedule is an instance of a built-in saga, so it has the guarantees of instances: each due
//! time is decided in one transition that also requests the start of the child saga, and the timer
//! of the next due time is durable. Only signals start and change a schedule; events on the bus do
//! not.

mod cron_fields;
mod program;
mod spec;
mod state;
mod times;

pub use program::{PutSchedule, ScheduleSaga, program};
pub use spec::{
    DEFAULT_CATCH_UP, MAX_NAME_BYTES, Overlap, ScheduleError, ScheduleSpec, check_name,
};
pub use state::{Counts, DueRun, EndedRun, MAX_RUNNING, Run, ScheduleState};
pub use times::{LAST_CRON_YEAR, Times, local_time};

/// Name of the saga of schedules.
pub const SAGA: &str = "orlog.schedule";
/// Signal that creates or replaces a schedule; its data is a [`PutSchedule`].
pub const PUT: &str = "orlog.schedule.put";
/// Signal that pauses a schedule.
pub const PAUSE: &str = "orlog.schedule.pause";
/// Signal that resumes a schedule.
pub const RESUME: &str = "orlog.schedule.resume";
/// Signal that triggers a run.
pub const TRIGGER: &str = "orlog.schedule.trigger";
/// Signal that deletes a schedule.
pub const DELETE: &str = "orlog.schedule.delete";

#[cfg(test)]
mod tests;
