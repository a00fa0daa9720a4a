//! Checks of the fields of a cron expression, for errors that name the field and its range.

/// Field of a cron expression.
struct CronField {
    name: &'static str,
    min: u32,
    max: u32,
    /// Names of its values.
    value_names: &'static [&'static str],
}

const FIELDS: [CronField; 5] = [
    CronField {
        name: "minute",
        min: 0,
        max: 59,
        value_names: &[],
    },
    CronField {
        name: "hour",
        min: 0,
        max: 23,
        value_names: &[],
    },
    CronField {
        name: "day of the month",
        min: 1,
        max: 31,
        value_names: &[],
    },
    CronField {
        name: "month",
        min: 1,
        max: 12,
        value_names: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
    },
    CronField {
        name: "day of the week",
        min: 0,
        max: 7,
        value_names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
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
    let name = field.name;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if step.and_then(|step| step.parse().ok()) == Some(0_u32) {
            return Err(format!("{name}: the step of \"{part}\" must not be 0"));
        }

        let mut ends = Vec::new();
        for value in range.split('-').filter(|value| !value.is_empty()) {
            ends.extend(check_value(value, field)?);
        }
        if let [first, last] = ends[..]
            && first > last
        {
            return Err(format!("{name}: the range {first}-{last} is descending"));
        }
    }
    Ok(())
}

/// Checks one value; returns it if it is a number.
fn check_value(value: &str, field: &CronField) -> Result<Option<u32>, String> {
    let CronField {
        name,
        min,
        max,
        value_names,
    } = *field;

    // The modifiers of croner: last (`L`), nearest weekday (`15W`), and the n-th weekday (`MON#2`).
    let value = value.split('#').next().unwrap_or_default();
    if is_named(value, value_names) {
        return Ok(None);
    }

    let value = value.trim_end_matches(['L', 'W', 'l', 'w']);
    if let Ok(number) = value.parse::<u32>() {
        if (min..=max).contains(&number) {
            return Ok(Some(number));
        }
        return Err(format!("{name} {number} is out of range ({min}-{max})"));
    }
    if value.chars().all(|c| matches!(c, '*' | '?' | '+')) {
        return Ok(None);
    }

    let mut expected = format!("{min}-{max}");
    if !value_names.is_empty() {
        expected = format!("{expected}, or {}", value_names.join(" "));
    }
    Err(format!("{name} \"{value}\" is not a number ({expected})"))
}

fn is_named(value: &str, names: &[&str]) -> bool {
    let value = value.trim_start_matches('+');
    names.iter().any(|name| name.eq_ignore_ascii_case(value))
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
        rejected("30-10 * * * *", "minute: the range 30-10 is descending");
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
    fn usual_expressions_are_accepted() {
        for expression in [
            "* * * * *",
            "*/15 8-18 * * MON-FRI",
            "0 0 L * *",
            "0 9 15W * *",
            "0 9 1 JUL *",
            "0 9 * * MON#2",
            "0 9 * * FRI#L",
            "@daily",
        ] {
            assert_eq!(check(expression), Ok(()), "{expression}");
        }
    }
}
