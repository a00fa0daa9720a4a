//! Times of a schedule: the next due time after a point in time, for a cron expression, an interval
//! or one date.
//!
//! Time zones come from the database in the binary, so that all nodes agree.
//!
//! Daylight saving, for cron expressions and local dates:
//!
//! | hours of the expression | local time that does not exist | local time that exists twice |
//! |---|---|---|
//! | named (`30 2 * * *`) or a local date | due when the clock is set forward | due at the first |
//! | all, or a step of all (`*/15 * * * *`) | not due | due at both |
//!
//! This is the rule of cron on Debian and other systems: a daily run happens once on each day, a
//! run every 15 minutes happens every 15 minutes.

use std::sync::LazyLock;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Instant};
use orlog_model::Timestamp;

use super::cron_fields;
use orlog_program::did_you_mean;

/// Last year in which a cron expression is due: the search for its next time ends with it.
pub const LAST_CRON_YEAR: i32 = croner::YEAR_UPPER_LIMIT - 1;
/// Minimum interval.
pub(super) const MIN_INTERVAL: Duration = Duration::from_secs(1);

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Due times of a schedule. They have no jitter.
#[derive(Clone, Debug)]
pub struct Times(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Cron {
        cron: Box<Cron>,
        zone: TimeZone,
        every_hour: bool,
    },
    Every {
        interval: i64,
        anchor: i64,
    },
    At(Timestamp),
}

impl Times {
    /// Parses a cron expression of five fields: minute, hour, day of the month, month, day of the
    /// week.
    ///
    /// # Errors
    /// A message with the field that is invalid.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, String> {
        cron_fields::check(expression)
            .map_err(|reason| format!("cron \"{expression}\": {reason}"))?;
        Self::stored_cron(expression, zone)
    }

    /// Parses the cron expression of a stored schedule. An earlier release can have accepted one
    /// that is rejected today; its schedule continues.
    pub(super) fn stored_cron(expression: &str, zone: &str) -> Result<Self, String> {
        let failed = |reason: String| format!("cron \"{expression}\": {reason}");

        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser
            .parse(expression)
            .map_err(|error| failed(error.to_string()))?;

        let every_hour = cron_fields::names_no_hour(expression);
        let times = Self(Kind::Cron {
            cron: Box::new(cron),
            zone: zone_named(zone)?,
            every_hour,
        });

        match times.next_after(Timestamp::from_millis(0)) {
            Some(_) => Ok(times),
            None => Err(failed(cron_fields::no_date(expression))),
        }
    }

    /// Creates the times `anchor + n * interval`. Default of the anchor: 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// If the interval is shorter than a second.
    pub fn every(interval: Duration, anchor: Option<Timestamp>) -> Result<Self, String> {
        if interval < MIN_INTERVAL {
            return Err(format!(
                "every: {interval:?} is too short; the minimum is 1s"
            ));
        }

        // The times count from the anchor, so that they do not drift with the starts.
        let interval = i64::try_from(interval.as_millis())
            .map_err(|_| "every: the interval is too long".to_owned())?;
        Ok(Self(Kind::Every {
            interval,
            anchor: anchor.map_or(0, Timestamp::as_millis),
        }))
    }

    /// Parses one date: with an offset (`2027-01-31T09:00:00Z`), or a local time in the zone.
    ///
    /// # Errors
    /// If the text is neither.
    pub fn at(text: &str, zone: &str) -> Result<Self, String> {
        let zone = zone_named(zone)?;
        if let Ok(at) = Timestamp::parse(text) {
            return Ok(Self(Kind::At(at)));
        }

        let local = text.parse::<DateTime>().map_err(|_| {
            format!(
                "at: {text:?} is not a date; write 2027-01-31T09:00 for a time in the zone, or \
                 2027-01-31T09:00:00Z"
            )
        })?;
        let at = match resolve(&zone, local) {
            Some(instant) => Timestamp::from_millis(instant.as_millisecond()),
            // The end of the last year, or the start of the first one: beyond the limits of times.
            None if local.year() > 0 => Timestamp::MAX_RFC_3339,
            None => return Err(format!("at: {text:?} is too early")),
        };
        Ok(Self(Kind::At(at)))
    }

    /// Returns the first due time after `after`.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Cron {
                cron,
                zone,
                every_hour,
            } => {
                let after = Instant::from_millisecond(after.as_millis()).ok()?;
                let next = if *every_hour {
                    next_elapsed(cron, zone, after)
                } else {
                    next_local(cron, zone, after)
                };
                next.map(|next| Timestamp::from_millis(next.as_millisecond()))
            }
            Kind::Every { interval, anchor } => {
                let passed = after
                    .as_millis()
                    .checked_sub(*anchor)?
                    .div_euclid(*interval);
                let next = passed
                    .checked_add(1)?
                    .checked_mul(*interval)?
                    .checked_add(*anchor)?;
                Some(Timestamp::from_millis(next))
            }
            Kind::At(at) => Some(*at).filter(|at| *at > after),
        }
    }

    /// Returns the due times after `after`.
    pub fn after(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last))
    }
}

/// Returns the zone of a name in the database of the binary.
///
/// # Errors
/// A message with the most similar names.
pub(super) fn zone_named(name: &str) -> Result<TimeZone, String> {
    ZONES.get(name).map_err(|_| {
        let known: Vec<_> = ZONES.available().map(|zone| zone.to_string()).collect();

        // `berlin` is a part of `Europe/Berlin`.
        let lower = name.to_lowercase();
        let cities: Vec<_> = known
            .iter()
            .filter(|known| {
                known
                    .to_lowercase()
                    .rsplit('/')
                    .next()
                    .is_some_and(|city| city == lower)
            })
            .take(3)
            .map(|known| format!("`{known}`"))
            .collect();

        let advice = match did_you_mean(name, known.iter().map(String::as_str)) {
            _ if !cities.is_empty() => format!("did you mean {}?", cities.join(" or ")),
            Some(advice) => advice,
            None => "use a name of the IANA database, for example Europe/Berlin".to_owned(),
        };
        format!("zone \"{name}\" is unknown; {advice}")
    })
}

/// Returns a time in a zone, with its offset; empty if the zone is unknown.
#[must_use]
pub fn local_time(time: Timestamp, zone: &str) -> String {
    let instant = Instant::from_millisecond(time.as_millis()).ok();
    let local = instant
        .zip(zone_named(zone).ok())
        .map(|(instant, zone)| instant.to_zoned(zone));
    local
        .map(|local| local.strftime("%a %F %T %:z").to_string())
        .unwrap_or_default()
}

/// Returns the next time of an expression that names its hours.
fn next_local(cron: &Cron, zone: &TimeZone, after: Instant) -> Option<Instant> {
    // The search runs on local times, which are due once each.
    let mut local = zone.to_datetime(after);
    loop {
        local = cron.find_next_occurrence(&local, false).ok()?;

        // A local time that exists twice is due at its first instant, also if `after` is between
        // the two.
        match resolve(zone, local)? {
            instant if instant > after => return Some(instant),
            _ => {}
        }
    }
}

/// Returns the instant of a local time: the first of two, and the end of the gap if it does not
/// exist.
fn resolve(zone: &TimeZone, local: DateTime) -> Option<Instant> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(local).ok()
        }
        AmbiguousOffset::Gap { before, .. } => {
            // With the offset before the gap, the time lies at or after its end.
            let beyond = before
                .to_timestamp(local)
                .ok()?
                .checked_add(SignedDuration::from_secs(1))
                .ok()?;
            zone.preceding(beyond)
                .next()
                .map(|transition| transition.timestamp())
        }
    }
}

/// Returns the next time of an expression for all hours.
fn next_elapsed(cron: &Cron, zone: &TimeZone, after: Instant) -> Option<Instant> {
    // The search runs with a fixed offset up to each change of the offset.
    let mut offset = zone.to_offset(after);
    let mut local = zone.to_datetime(after);
    let mut transitions = zone.following(after);

    loop {
        let next = cron.find_next_occurrence(&local, false).ok()?;
        let instant = offset.to_timestamp(next).ok()?;
        let Some(change) = transitions
            .next()
            .filter(|change| change.timestamp() <= instant)
        else {
            return Some(instant);
        };

        // The clock changes before the next time: the search continues from the change, just before
        // it, so that a time at the change itself is found.
        offset = change.offset();
        local = offset.to_datetime(
            change
                .timestamp()
                .checked_sub(SignedDuration::from_secs(1))
                .ok()?,
        );
    }
}

#[cfg(test)]
mod tests;
