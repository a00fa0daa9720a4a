//! Checks of the fields of a cron expression, for errors that name the field and its range.

/// Field of a cron expression.
struct CronField {
    name: &'static str,
    kind: FieldKind,
    min: u32,
    max: u32,
    /// Names of its values.
    value_names: &'static [&'static str],
    /// Value of the first name.
    first_named: u32,
}

/// Kind of a field, which determines its modifiers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    DayOfMonth,
    DayOfWeek,
    Other,
}

impl CronField {
    /// Returns the last value that is not another text of an earlier one: 7 is Sunday, as is 0.
    fn last_distinct(&self) -> u32 {
        match self.kind {
            FieldKind::DayOfWeek => 6,
            FieldKind::DayOfMonth | FieldKind::Other => self.max,
        }
    }
}

const FIELDS: [CronField; 5] = [
    CronField {
        name: "minute",
        kind: FieldKind::Other,
        min: 0,
        max: 59,
        value_names: &[],
        first_named: 0,
    },
    CronField {
        name: "hour",
        kind: FieldKind::Other,
        min: 0,
        max: 23,
        value_names: &[],
        first_named: 0,
    },
    CronField {
        name: "day of the month",
        kind: FieldKind::DayOfMonth,
        min: 1,
        max: 31,
        value_names: &[],
        first_named: 0,
    },
    CronField {
        name: "month",
        kind: FieldKind::Other,
        min: 1,
        max: 12,
        value_names: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
        first_named: 1,
    },
    CronField {
        name: "day of the week",
        kind: FieldKind::DayOfWeek,
        min: 0,
        max: 7,
        value_names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
        first_named: 0,
    },
];
/// Nicknames of whole expressions.
const NICKNAMES: [&str; 6] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@hourly",
];

/// Checks the number of fields and the numbers in them.
///
/// # Errors
/// A message that names the field.
pub(super) fn check(expression: &str) -> Result<(), String> {
    let text = expression.trim();
    if text.starts_with('@') {
        if NICKNAMES.iter().any(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(());
        }
        return Err(format!(
            "{text} is unknown; nicknames: {}",
            NICKNAMES.join(", ")
        ));
    }

    let fields: Vec<_> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let count = fields.len();
        let names = FIELDS.each_ref().map(|field| field.name).join(", ");
        return Err(format!("it has {count} fields; write 5: {names}"));
    }

    fields
        .iter()
        .zip(&FIELDS)
        .try_for_each(|(text, field)| check_field(text, field))
}

/// Checks one field: parts separated by commas, each a value or a range, with a step or without.
fn check_field(text: &str, field: &CronField) -> Result<(), String> {
    // With a plus sign, both day fields must match.
    let values = match field.kind {
        FieldKind::DayOfWeek => text.strip_prefix('+').unwrap_or(text),
        FieldKind::DayOfMonth | FieldKind::Other => text,
    };
    if values == "*" || (values == "?" && field.kind != FieldKind::Other) {
        return Ok(());
    }

    for part in values.split(',') {
        if part.is_empty() {
            let name = field.name;
            return Err(format!("{name}: \"{text}\" lacks a value at a comma"));
        }
        check_part(part, field)?;
    }
    Ok(())
}

/// Checks one part of a field.
fn check_part(part: &str, field: &CronField) -> Result<(), String> {
    let name = field.name;
    let Some((range, step)) = part.split_once('/') else {
        return check_without_step(part, field);
    };

    let Some(step) = number(step) else {
        return Err(format!("{name}: the step of \"{part}\" is not a number"));
    };
    if step == 0 {
        return Err(format!("{name}: the step of \"{part}\" must not be 0"));
    }

    let (first, last) = if range == "*" {
        (field.min, field.last_distinct())
    } else if range.contains('-') {
        check_range(range, field)?
    } else {
        let max = field.last_distinct();
        return Err(format!(
            "{name}: \"{part}\" has a step without a range; write */{step}, or {range}-{max}/{step}"
        ));
    };

    // A longer step matches the first value only: `*/90` would be due once in each hour.
    let longest = (last - first).max(1);
    if step > longest {
        return Err(format!(
            "{name}: the step of \"{part}\" is longer than the range {first}-{last}, so that only \
             {first} would match; the maximum is {longest}"
        ));
    }
    Ok(())
}

/// Checks a value or a range, with a modifier of the day fields or without: last (`L`), nearest
/// weekday (`15W`), and the n-th weekday (`MON#2`, `FRI#L`).
fn check_without_step(part: &str, field: &CronField) -> Result<(), String> {
    let upper = part.to_ascii_uppercase();
    let plain = match field.kind {
        FieldKind::DayOfMonth if matches!(upper.as_str(), "L" | "LW") => return Ok(()),
        FieldKind::DayOfMonth => part.strip_suffix(['W', 'w']).unwrap_or(part),
        FieldKind::DayOfWeek => match part.split_once('#') {
            Some((plain, "1" | "2" | "3" | "4" | "5" | "L" | "l")) => plain,
            Some((_, nth)) => {
                let name = field.name;
                return Err(format!(
                    "{name}: \"{nth}\" of \"{part}\" is no week of a month (1-5, or L for the last)"
                ));
            }
            None => part.strip_suffix(['L', 'l']).unwrap_or(part),
        },
        FieldKind::Other => part,
    };

    if plain.contains('-') {
        check_range(plain, field).map(drop)
    } else if plain.is_empty() {
        check_value(part, field).map(drop)
    } else {
        check_value(plain, field).map(drop)
    }
}

/// Checks a range; returns its first and its last value.
fn check_range(text: &str, field: &CronField) -> Result<(u32, u32), String> {
    let CronField { name, min, max, .. } = *field;
    let (first, last) = text.split_once('-').unwrap_or((text, ""));
    if first.is_empty() || last.is_empty() {
        return Err(format!(
            "{name}: the range \"{text}\" lacks a value; write for example {min}-{max}"
        ));
    }

    let first = check_value(first, field)?;
    let last = check_value(last, field)?;
    if first > last {
        let end = field.last_distinct();
        return Err(format!(
            "{name}: the range {text} is descending; write {first}-{end},{min}-{last}"
        ));
    }
    Ok((first, last))
}

/// Checks one value; returns its number.
fn check_value(value: &str, field: &CronField) -> Result<u32, String> {
    let CronField {
        name,
        min,
        max,
        value_names,
        ..
    } = *field;

    if let Some(index) = index_of(value, value_names) {
        return Ok(field.first_named + index);
    }
    if let Some(number) = number(value) {
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        return Err(format!("{name} {number} is out of range ({min}-{max})"));
    }

    let mut expected = format!("{min}-{max}");
    if !value_names.is_empty() {
        expected = format!("{expected}, or {}", value_names.join(" "));
    }
    let other = FIELDS
        .iter()
        .find(|other| index_of(value, other.value_names).is_some());
    let advice = other.map_or_else(String::new, |other| {
        format!("; it belongs to the field {}", other.name)
    });
    Err(format!(
        "{name} \"{value}\" is not a number ({expected}){advice}"
    ))
}

/// Parses digits; a sign is no part of a cron expression.
fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn index_of(value: &str, names: &[&str]) -> Option<u32> {
    let index = names
        .iter()
        .position(|name| name.eq_ignore_ascii_case(value))?;
    u32::try_from(index).ok()
}

/// Returns the reason for which an expression of valid fields matches no date.
pub(super) fn no_date(expression: &str) -> String {
    let fields: Vec<_> = expression.split_whitespace().collect();
    match fields[..] {
        [_, _, days, months, _] if months != "*" => {
            format!("no date matches it: month \"{months}\" has no day of the month \"{days}\"")
        }
        _ => "no date matches it".to_owned(),
    }
}

/// Returns whether the expression matches all hours, or a step of all.
pub(super) fn names_no_hour(expression: &str) -> bool {
    let text = expression.trim();
    let hour = if text.starts_with('@') {
        None
    } else {
        text.split_whitespace().nth(1)
    };
    hour.map_or(text.eq_ignore_ascii_case("@hourly"), |hour| {
        hour.starts_with('*')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn rejected(expression: &str, expected: &str) {
        assert_eq!(check(expression).unwrap_err(), expected);
    }

    #[test]
    fn field_errors_name_the_field_and_its_range() {
        rejected("61 * * * *", "minute 61 is out of range (0-59)");
        rejected("0 24 * * *", "hour 24 is out of range (0-23)");
        rejected("0 0 0 * *", "day of the month 0 is out of range (1-31)");
        rejected("0 0 1 13 *", "month 13 is out of range (1-12)");
        rejected("0 0 * * 8", "day of the week 8 is out of range (0-7)");
        rejected(
            "0 0 * * MONDAY",
            "day of the week \"MONDAY\" is not a number (0-7, or SUN MON TUE WED THU FRI SAT)",
        );
        rejected("*/0 * * * *", "minute: the step of \"*/0\" must not be 0");
        rejected(
            "30-10 * * * *",
            "minute: the range 30-10 is descending; write 30-59,0-10",
        );
        rejected(
            "0 0 * * FRI-MON",
            "day of the week: the range FRI-MON is descending; write 5-6,0-1",
        );
        rejected("50-70 * * * *", "minute 70 is out of range (0-59)");
        rejected(
            "5- * * * *",
            "minute: the range \"5-\" lacks a value; write for example 0-59",
        );
        rejected("1,,2 * * * *", "minute: \"1,,2\" lacks a value at a comma");
        rejected("+5 * * * *", "minute \"+5\" is not a number (0-59)");
        rejected("L * * * *", "minute \"L\" is not a number (0-59)");
        rejected("*,5 * * * *", "minute \"*\" is not a number (0-59)");
        rejected(
            "0 * * *",
            "it has 4 fields; write 5: minute, hour, day of the month, month, day of the week",
        );
        rejected(
            "@often",
            "@often is unknown; nicknames: @yearly, @annually, @monthly, @weekly, @daily, @hourly",
        );
    }

    #[test]
    fn step_that_matches_one_value_is_rejected() {
        rejected(
            "*/61 * * * *",
            "minute: the step of \"*/61\" is longer than the range 0-59, so that only 0 would match; \
             the maximum is 59",
        );
        rejected(
            "0 */24 * * *",
            "hour: the step of \"*/24\" is longer than the range 0-23, so that only 0 would match; \
             the maximum is 23",
        );
        rejected(
            "0 0 * * */7",
            "day of the week: the step of \"*/7\" is longer than the range 0-6, so that only 0 would \
             match; the maximum is 6",
        );
        rejected(
            "0 8-18/12 * * *",
            "hour: the step of \"8-18/12\" is longer than the range 8-18, so that only 8 would match; \
             the maximum is 10",
        );
        rejected(
            "5-50/0 * * * *",
            "minute: the step of \"5-50/0\" must not be 0",
        );
        rejected("5/0 * * * *", "minute: the step of \"5/0\" must not be 0");
        rejected(
            "5/10 * * * *",
            "minute: \"5/10\" has a step without a range; write */10, or 5-59/10",
        );
        rejected("*/x * * * *", "minute: the step of \"*/x\" is not a number");
    }

    #[test]
    fn name_in_another_field_is_rejected() {
        rejected(
            "0 0 * MON *",
            "month \"MON\" is not a number (1-12, or JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV \
             DEC); it belongs to the field day of the week",
        );
        rejected(
            "0 JAN * * *",
            "hour \"JAN\" is not a number (0-23); it belongs to the field month",
        );
        rejected(
            "0 0 * * MON#6",
            "day of the week: \"6\" of \"MON#6\" is no week of a month (1-5, or L for the last)",
        );
        rejected(
            "0 0 * * L",
            "day of the week \"L\" is not a number (0-7, or SUN MON TUE WED THU FRI SAT)",
        );
    }

    #[test]
    fn usual_expressions_are_accepted() {
        for expression in [
            "* * * * *",
            "*/15 8-18 * * MON-FRI",
            "0 0 L * *",
            "0 9 15W * *",
            "0 9 1 JUL *",
            "0 9 * * MON#2",
            "0 9 * * FRI#L",
            "0 9 * * friL",
            "0 9 * * 1-5#2",
            "0 9 LW * ?",
            "0 9 ? * 6-7",
            "0 9 13 * +FRI",
            "*/59 */23 */30 */11 */6",
            "5-5/1,8-18/10 * * * *",
            "@daily",
        ] {
            assert_eq!(check(expression), Ok(()), "{expression}");
        }
    }
}
