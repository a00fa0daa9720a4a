//! CSV with a head: some columns become attributes of an event, the others its data.

use std::io::Read;

use jiff::civil;
use jiff::tz::TimeZone;
use orlog_model::{Timestamp, derived_id};
use serde_json::{Map, Value, json};

use crate::cli::exit::Failure;

use super::batches::Line;

/// Which columns mean what.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "the fields are the names of the flags")]
pub(in crate::cli) struct Columns {
    /// Read CSV with a head line, one event a row
    #[arg(long, requires = "correlation_column")]
    csv: bool,
    /// The column with the event's type
    #[arg(long, value_name = "COLUMN", requires = "csv", conflicts_with = "event_type")]
    type_column: Option<String>,
    /// The type of every event, where no column has it
    #[arg(long = "type", id = "event_type", value_name = "TYPE", requires = "csv")]
    event_type: Option<String>,
    /// The column with the correlation id
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    correlation_column: Option<String>,
    /// The column with the time: RFC 3339, or a date with or without a time, then in UTC; now where absent
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    time_column: Option<String>,
    /// The column with the event's id; derived from the row where absent, so that the same file makes the same ids
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    id_column: Option<String>,
    /// The columns that become the event's data; all others where absent
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "csv")]
    data_columns: Vec<String>,
    /// The source of the events
    #[arg(long, value_name = "URI", default_value = "urn:orlog:csv", requires = "csv")]
    source: String,
}

/// Where the columns are in this file.
struct Mapping {
    head: Vec<String>,
    kind: Result<usize, String>,
    correlation: usize,
    time: Option<usize>,
    id: Option<usize>,
    data: Vec<usize>,
    source: String,
}

impl Columns {
    /// Itself, where CSV is asked for.
    pub(super) fn wanted(&self) -> Option<&Self> {
        self.csv.then_some(self)
    }
}

/// The events in a table.
pub(super) fn read(
    input: Box<dyn Read>,
    columns: &Columns,
) -> Result<Box<dyn Iterator<Item = Result<Line, Failure>>>, Failure> {
    let mut table = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(input);
    let head = table.headers().map_err(|error| Failure::failed(format!("the head of the table: {error}")))?;
    let map = Mapping::new(head.iter().map(str::to_owned).collect(), columns)?;
    let rows = table.into_records().map(move |row| {
        let row = row.map_err(|error| Failure::failed(format!("the table cannot be read: {error}")))?;
        let number = row.position().map_or(0, csv::Position::line);
        let event =
            map.event(number, &row).map_err(|why| Failure::failed(format!("line {number}: {why}")))?;
        Ok(Line { number, bytes: row.as_slice().len() + row.len(), event })
    });
    Ok(Box::new(rows))
}

impl Mapping {
    fn new(head: Vec<String>, columns: &Columns) -> Result<Self, Failure> {
        let find = |name: &String| {
            head.iter().position(|column| column == name).ok_or_else(|| {
                let known = head.join(", ");
                Failure::usage(format!("there is no column {name:?}; there are: {known}"))
            })
        };
        let kind = match (&columns.type_column, &columns.event_type) {
            (Some(column), _) => Ok(find(column)?),
            (None, Some(kind)) => Err(kind.clone()),
            (None, None) => {
                return Err(Failure::usage("give --type-column or --type: every event has a type"));
            }
        };
        let correlation = columns.correlation_column.as_ref().expect("--csv requires it");
        let (correlation, time) = (find(correlation)?, columns.time_column.as_ref().map(find).transpose()?);
        let id = columns.id_column.as_ref().map(find).transpose()?;
        let used = [kind.as_ref().ok().copied(), Some(correlation), time, id];
        let data = if columns.data_columns.is_empty() {
            (0..head.len()).filter(|index| !used.contains(&Some(*index))).collect()
        } else {
            columns.data_columns.iter().map(find).collect::<Result<_, _>>()?
        };
        Ok(Self { kind, correlation, time, id, data, source: columns.source.clone(), head })
    }

    fn event(&self, number: u64, row: &csv::StringRecord) -> Result<Value, String> {
        let cell = |index: usize| row.get(index).unwrap_or_default();
        let time = self.time.map(|index| time(cell(index))).transpose()?;
        let id = match self.id {
            Some(index) => cell(index).to_owned(),
            None => self.id(number, row, time.unwrap_or_default()),
        };
        let kind = self.kind.as_ref().map_or_else(String::as_str, |index| cell(*index));
        let filled = self.data.iter().filter(|index| !cell(**index).is_empty());
        let data: Map<String, Value> =
            filled.map(|index| (self.head[*index].clone(), value(cell(*index)))).collect();
        let mut event = json!({
            "specversion": "1.0",
            "id": id,
            "source": self.source,
            "type": kind,
            "correlationid": cell(self.correlation),
            "data": data,
        });
        if let Some(time) = time {
            event["time"] = json!(time.to_string());
        }
        Ok(event)
    }

    fn id(&self, number: u64, row: &csv::StringRecord, at: Timestamp) -> String {
        let number = number.to_string();
        let cells = row.iter().map(str::as_bytes);
        let parts: Vec<&[u8]> =
            [self.source.as_bytes(), number.as_bytes()].into_iter().chain(cells).collect();
        derived_id(at, &parts).to_string()
    }
}

/// RFC 3339; or a civil time or date, which is taken for UTC.
fn time(text: &str) -> Result<Timestamp, String> {
    let iso = text.replace('/', "-");
    let civil = || {
        let at: civil::DateTime =
            iso.parse().ok().or_else(|| Some(iso.parse::<civil::Date>().ok()?.into()))?;
        Some(Timestamp::from_millis(at.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond()))
    };
    let parsed = Timestamp::parse(&iso).ok().or_else(civil);
    parsed.ok_or_else(|| {
        format!("{text:?} is no time such as 2026-11-21T08:30:00Z, 2026-11-21 08:30:00 or 2026-11-21")
    })
}

/// A number or a truth value where writing it again gives the same text (so `007` stays text), else text.
fn value(cell: &str) -> Value {
    let parsed: Option<Value> = serde_json::from_str(cell).ok();
    match parsed.map(|value| (value.to_string(), value)) {
        Some((text, value @ (Value::Number(_) | Value::Bool(_)))) if text == cell => value,
        _ => Value::from(cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"case,activity,when,amount,points\nA1,Create Fine,2006-07-24,35.0,007\nA1,Payment,2006/09/05 00:00:00,,2\n";

    fn columns() -> Columns {
        Columns {
            csv: true,
            type_column: Some("activity".to_owned()),
            event_type: None,
            correlation_column: Some("case".to_owned()),
            time_column: Some("when".to_owned()),
            id_column: None,
            data_columns: Vec::new(),
            source: "urn:police".to_owned(),
        }
    }

    fn events(columns: &Columns) -> Vec<Value> {
        read(Box::new(TABLE), columns).unwrap().map(|line| line.unwrap().event).collect()
    }

    #[test]
    fn columns_become_attributes_and_data() {
        let events = events(&columns());
        assert_eq!(events[0]["type"], "Create Fine");
        assert_eq!(events[0]["correlationid"], "A1");
        assert_eq!(events[0]["time"], "2006-07-24T00:00:00.000Z");
        assert_eq!(events[0]["data"], json!({"amount": 35.0, "points": "007"}));
        assert_eq!(events[1]["time"], "2006-09-05T00:00:00.000Z");
        assert_eq!(events[1]["data"], json!({"points": 2}));
    }

    #[test]
    fn the_same_file_makes_the_same_ids() {
        assert_eq!(events(&columns()), events(&columns()));
        assert_ne!(events(&columns())[0]["id"], events(&columns())[1]["id"]);
    }

    #[test]
    fn a_column_that_is_not_there_is_named_with_those_that_are() {
        let columns = Columns { time_column: Some("date".to_owned()), ..columns() };
        let error = read(Box::new(TABLE), &columns).err().unwrap().to_string();
        assert_eq!(error, "there is no column \"date\"; there are: case, activity, when, amount, points");
    }
}
