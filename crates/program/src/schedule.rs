//! Schedules.
mod cron_fields;
mod times;

pub use times::Times;
