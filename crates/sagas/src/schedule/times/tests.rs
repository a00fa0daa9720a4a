//! Due times: daylight saving in both directions, leap days, month ends, intervals, and properties of all.

use proptest::prelude::*;

use super::*;

fn ts(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// Checks the due times after a point in time.
#[track_caller]
fn due(times: &Times, after: &str, expected: &[&str]) {
    let actual: Vec<_> = times
        .after(ts(after))
        .take(expected.len())
        .map(|time| time.to_string().replace(".000Z", "Z"))
        .collect();
    assert_eq!(actual, expected);
}

fn cron(expression: &str, zone: &str) -> Times {
    Times::cron(expression, zone).unwrap()
}

#[test]
fn daily_time_in_the_gap_is_due_when_the_clock_is_set_forward() {
    let times = cron("30 2 * * *", "Europe/Berlin");
    due(
        &times,
        "2027-03-27T00:00:00Z",
        &[
            "2027-03-27T01:30:00Z",
            "2027-03-28T01:00:00Z",
            "2027-03-29T00:30:00Z",
        ],
    );
    let times = cron("30 2 * * *", "America/New_York");
    due(
        &times,
        "2027-03-13T12:00:00Z",
        &["2027-03-14T07:00:00Z", "2027-03-15T06:30:00Z"],
    );
    // Lord Howe moves its clock by 30 minutes: 02:00 becomes 02:30.
    let times = cron("15 2 * * *", "Australia/Lord_Howe");
    due(
        &times,
        "2027-10-02T00:00:00Z",
        &["2027-10-02T15:30:00Z", "2027-10-03T15:15:00Z"],
    );
}

#[test]
fn several_times_in_the_gap_are_due_once() {
    let times = cron("*/15 2 * * *", "Europe/Berlin");
    due(
        &times,
        "2027-03-27T12:00:00Z",
        &[
            "2027-03-28T01:00:00Z",
            "2027-03-29T00:00:00Z",
            "2027-03-29T00:15:00Z",
        ],
    );
    let times = cron("0 2,3 * * *", "Europe/Berlin");
    due(
        &times,
        "2027-03-27T12:00:00Z",
        &["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"],
    );
}

#[test]
fn daily_time_that_exists_twice_is_due_at_the_first() {
    let times = cron("30 2 * * *", "Europe/Berlin");
    due(
        &times,
        "2027-10-30T12:00:00Z",
        &["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"],
    );
    // Between the two, it has passed.
    due(&times, "2027-10-31T00:45:00Z", &["2027-11-01T01:30:00Z"]);
    let times = cron("30 1 * * *", "America/New_York");
    due(
        &times,
        "2027-11-06T12:00:00Z",
        &["2027-11-07T05:30:00Z", "2027-11-08T06:30:00Z"],
    );
    let times = cron("45 1 * * *", "Australia/Lord_Howe");
    due(
        &times,
        "2027-04-02T15:00:00Z",
        &["2027-04-03T14:45:00Z", "2027-04-04T15:15:00Z"],
    );
}

#[test]
fn times_of_all_hours_follow_elapsed_time() {
    let times = cron("*/30 * * * *", "Europe/Berlin");
    due(
        &times,
        "2027-03-28T00:15:00Z",
        &[
            "2027-03-28T00:30:00Z",
            "2027-03-28T01:00:00Z",
            "2027-03-28T01:30:00Z",
        ],
    );
    due(
        &times,
        "2027-10-31T00:15:00Z",
        &[
            "2027-10-31T00:30:00Z",
            "2027-10-31T01:00:00Z",
            "2027-10-31T01:30:00Z",
            "2027-10-31T02:00:00Z",
        ],
    );
    // 02:00 does not exist on this day, and 02:00 exists twice on the other.
    let times = cron("0 */2 * * *", "Europe/Berlin");
    due(&times, "2027-03-27T23:30:00Z", &["2027-03-28T02:00:00Z"]);
    due(
        &times,
        "2027-10-30T22:30:00Z",
        &[
            "2027-10-31T00:00:00Z",
            "2027-10-31T01:00:00Z",
            "2027-10-31T03:00:00Z",
        ],
    );
    // A half-hour step of the clock shifts the minutes in UTC.
    let times = cron("0 * * * *", "Australia/Lord_Howe");
    due(
        &times,
        "2027-04-03T13:30:00Z",
        &[
            "2027-04-03T14:00:00Z",
            "2027-04-03T15:30:00Z",
            "2027-04-03T16:30:00Z",
        ],
    );
}

#[test]
fn skipped_calendar_day_is_due_once() {
    // Samoa had no 30 December 2011.
    let times = cron("0 12 * * *", "Pacific/Apia");
    due(
        &times,
        "2011-12-29T00:00:00Z",
        &[
            "2011-12-29T22:00:00Z",
            "2011-12-30T10:00:00Z",
            "2011-12-30T22:00:00Z",
        ],
    );
}

#[test]
fn leap_days_and_month_ends_are_found() {
    let leap = cron("0 0 29 2 *", "UTC");
    due(
        &leap,
        "2096-03-01T00:00:00Z",
        &["2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"],
    );
    let last = cron("0 0 L * *", "UTC");
    due(
        &last,
        "2027-11-15T00:00:00Z",
        &[
            "2027-11-30T00:00:00Z",
            "2027-12-31T00:00:00Z",
            "2028-01-31T00:00:00Z",
            "2028-02-29T00:00:00Z",
        ],
    );
    due(
        &cron("0 0 31 * *", "UTC"),
        "2027-04-01T00:00:00Z",
        &["2027-05-31T00:00:00Z", "2027-07-31T00:00:00Z"],
    );
}

#[test]
fn day_of_month_and_day_of_week_are_alternatives_as_in_cron() {
    let times = cron("0 0 13 * FRI", "UTC");
    due(
        &times,
        "2027-08-11T00:00:00Z",
        &[
            "2027-08-13T00:00:00Z",
            "2027-08-20T00:00:00Z",
            "2027-08-27T00:00:00Z",
        ],
    );
    due(
        &times,
        "2027-09-11T00:00:00Z",
        &["2027-09-13T00:00:00Z", "2027-09-17T00:00:00Z"],
    );
}

#[test]
fn interval_counts_from_its_anchor() {
    let times = Times::every(Duration::from_hours(7), Some(ts("2027-01-01T01:00:00Z"))).unwrap();
    due(
        &times,
        "2027-01-01T02:00:00Z",
        &["2027-01-01T08:00:00Z", "2027-01-01T15:00:00Z"],
    );
    due(&times, "2026-12-31T20:00:00Z", &["2027-01-01T01:00:00Z"]);
    due(&times, "2027-01-01T01:00:00Z", &["2027-01-01T08:00:00Z"]);
    let times = Times::every(Duration::from_mins(15), None).unwrap();
    due(&times, "2027-01-01T02:07:00Z", &["2027-01-01T02:15:00Z"]);
}

#[test]
fn date_is_due_once() {
    let times = Times::at("2027-07-01T09:00", "Europe/Berlin").unwrap();
    due(&times, "2027-01-01T00:00:00Z", &["2027-07-01T07:00:00Z"]);
    assert_eq!(times.next_after(ts("2027-07-01T07:00:00Z")), None);
    due(
        &Times::at("2027-07-01T09:00:00+02:00", "UTC").unwrap(),
        "2027-01-01T00:00:00Z",
        &["2027-07-01T07:00:00Z"],
    );
    due(
        &Times::at("2027-03-28T02:30", "Europe/Berlin").unwrap(),
        "2027-01-01T00:00:00Z",
        &["2027-03-28T01:00:00Z"],
    );
}

#[test]
fn end_of_the_last_year_is_the_latest_due_time() {
    for text in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59"] {
        due(
            &Times::at(text, "America/New_York").unwrap(),
            "2027-01-01T00:00:00Z",
            &["9999-12-30T22:00:00Z"],
        );
    }
}

#[test]
fn stored_expression_of_an_earlier_release_is_due() {
    assert!(Times::cron("0 */24 * * *", "UTC").is_err());
    due(
        &Times::stored_cron("0 */24 * * *", "UTC").unwrap(),
        "2027-01-01T12:00:00Z",
        &["2027-01-02T00:00:00Z"],
    );
}

#[test]
fn errors_name_the_expression_and_the_remedy() {
    let error = |times: Result<Times, String>| times.unwrap_err();
    assert_eq!(
        error(Times::cron("61 * * * *", "UTC")),
        "cron \"61 * * * *\": minute 61 is out of range (0-59)"
    );
    assert_eq!(
        error(Times::cron("0 0 30 2 *", "UTC")),
        "cron \"0 0 30 2 *\": no date matches it: month \"2\" has no day of the month \"30\""
    );
    assert_eq!(
        error(Times::cron("0 0 * * *", "Europe/Berlim")),
        "zone \"Europe/Berlim\" is unknown; did you mean `Europe/Berlin`?"
    );
    assert_eq!(
        error(Times::cron("0 0 * * *", "berlin")),
        "zone \"berlin\" is unknown; did you mean `Europe/Berlin`?"
    );
    assert!(error(Times::every(Duration::from_millis(10), None)).contains("the minimum is 1s"));
    assert!(error(Times::at("-009999-01-01T00:00", "Asia/Tokyo")).contains("too early"));
    assert!(error(Times::at("soon", "UTC")).contains("\"soon\" is not a date"));
}

const ZONES: [&str; 5] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
];
const EXPRESSIONS: [&str; 6] = [
    "*/7 * * * *",
    "30 2 * * *",
    "*/20 1-3 * * *",
    "0 */5 * * *",
    "0 0 L * *",
    "15 12 * * MON#1",
];

proptest! {
    /// The times increase, and the search from any point between two times finds the second.
    #[test]
    fn times_increase_and_do_not_depend_on_the_start(
        zone in 0..ZONES.len(),
        expression in 0..EXPRESSIONS.len(),
        start in 1_300_000_000_i64..2_000_000_000,
        part in 0.0..1.0_f64,
    ) {
        let times = cron(EXPRESSIONS[expression], ZONES[zone]);
        let start = Timestamp::from_millis(start * 1000 + 123);
        let list: Vec<_> = times.after(start).take(30).collect();
        prop_assert_eq!(list.len(), 30);
        prop_assert!(list[0] > start);
        for pair in list.windows(2) {
            prop_assert!(pair[0] < pair[1], "{} {}", pair[0], pair[1]);
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a point between two times")]
            let between = ((pair[1].as_millis() - pair[0].as_millis()) as f64 * part) as i64;
            let between = Timestamp::from_millis(pair[0].as_millis() + between);
            prop_assert_eq!(times.next_after(between), Some(pair[1]));
        }
    }

    /// A daily time is due exactly once on each day of the calendar, except a day that does not exist.
    #[test]
    fn daily_time_is_due_once_on_each_day(zone in 0..4_usize, hour in 0..24_u32, minute in 0..60_u32, start in 1_500_000_000_i64..2_000_000_000) {
        let times = cron(&format!("{minute} {hour} * * *"), ZONES[zone]);
        let zone = zone_named(ZONES[zone]).unwrap();
        let days: Vec<_> = times
            .after(Timestamp::from_millis(start * 1000))
            .take(400)
            .map(|time| zone.to_datetime(Instant::from_millisecond(time.as_millis()).unwrap()).date())
            .collect();
        for pair in days.windows(2) {
            prop_assert_eq!(pair[0].tomorrow().unwrap(), pair[1]);
        }
    }
}
