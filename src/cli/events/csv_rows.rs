//! CSV with a header line: some columns become attributes of an event, the others its data.

use std::io::Read;

use jiff::civil;
use orlog_model::{Timestamp, derive_id};
use serde_json::{Map, Value, json};

use crate::cli::exit::CommandError;

use super::batches::EventLine;

/// Mapping of columns to event attributes.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_field_names,
    reason = "the field names are the flag names"
)]
pub(crate) struct Columns {
    /// Read CSV with a header line, one event a row
    #[arg(long, requires = "correlation_column")]
    csv: bool,
    /// Column with the event type
    #[arg(
        long,
        value_name = "COLUMN",
        requires = "csv",
        conflicts_with = "event_type"
    )]
    type_column: Option<String>,
    /// Type of every event, if no column contains it
    #[arg(
        long = "type",
        id = "event_type",
        value_name = "TYPE",
        requires = "csv"
    )]
    event_type: Option<String>,
    /// Column with the correlation id
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    correlation_column: Option<String>,
    /// Column with the time: RFC 3339, or a date with or without a time in UTC; default: the
    /// current time
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    time_column: Option<String>,
    /// Column with the event id; default: derived from the row, so that the same file gives the
    /// same ids
    #[arg(long, value_name = "COLUMN", requires = "csv")]
    id_column: Option<String>,
    /// Columns that become the data of the event; default: all other columns
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', requires = "csv")]
    data_columns: Vec<String>,
    /// Source of the events
    #[arg(
        long,
        value_name = "URI",
        default_value = "urn:orlog:csv",
        requires = "csv"
    )]
    source: String,
}

/// Column indexes in this file.
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
    /// Returns the columns if CSV is requested.
    pub(crate) fn csv_columns(&self) -> Option<&Self> {
        self.csv.then_some(self)
    }
}

/// Returns the events of a CSV table.
pub(crate) fn read(
    input: Box<dyn Read>,
    columns: &Columns,
) -> Result<Box<dyn Iterator<Item = Result<EventLine, CommandError>>>, CommandError> {
    // Spaces around cells are no part of a name or a value.
    let mut table = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(input);
    let head = table
        .headers()
        .map_err(|error| CommandError::failed(format!("invalid CSV header: {error}")))?;
    let map = Mapping::new(head.iter().map(str::to_owned).collect(), columns)?;
    let rows = table.into_records().map(move |row| {
        let row = row
            .map_err(|error| CommandError::failed(format!("cannot read the CSV table: {error}")))?;
        let number = row.position().map_or(0, csv::Position::line);
        let event = map
            .event(number, &row)
            .map_err(|reason| CommandError::failed(format!("line {number}: {reason}")))?;

        // The cells and their separators; quotes are not counted.
        let bytes = row.as_slice().len() + row.len();
        Ok(EventLine::new(number, bytes, event))
    });

    Ok(Box::new(rows))
}

impl Mapping {
    fn new(head: Vec<String>, columns: &Columns) -> Result<Self, CommandError> {
        // Unknown columns are rejected before the first event is sent.
        let find = |name: &String| {
            head.iter()
                .position(|column| column == name)
                .ok_or_else(|| {
                    let known = head.join(", ");
                    CommandError::usage(format!("unknown column {name:?}; columns: {known}"))
                })
        };
        let kind = match (&columns.type_column, &columns.event_type) {
            (Some(column), _) => Ok(find(column)?),
            (None, Some(kind)) => Err(kind.clone()),
            (None, None) => {
                return Err(CommandError::usage(
                    "the event type is missing; set --type-column or --type",
                ));
            }
        };

        let correlation = columns
            .correlation_column
            .as_ref()
            .expect("clap requires the column with --csv");
        let correlation = find(correlation)?;
        let time = columns.time_column.as_ref().map(find).transpose()?;
        let id = columns.id_column.as_ref().map(find).transpose()?;
        let used = [kind.as_ref().ok().copied(), Some(correlation), time, id];
        let data = if columns.data_columns.is_empty() {
            (0..head.len())
                .filter(|index| !used.contains(&Some(*index)))
                .collect()
        } else {
            columns
                .data_columns
                .iter()
                .map(find)
                .collect::<Result<_, _>>()?
        };

        Ok(Self {
            kind,
            correlation,
            time,
            id,
            data,
            source: columns.source.clone(),
            head,
        })
    }

    fn event(&self, number: u64, row: &csv::StringRecord) -> Result<Value, String> {
        let field = |index: usize| row.get(index).unwrap_or_default();
        let time = self.time.map(|index| time(field(index))).transpose()?;
        let id = match self.id {
            Some(index) => field(index).to_owned(),
            None => self.id(number, row, time.unwrap_or_default()),
        };
        let kind = self
            .kind
            .as_ref()
            .map_or_else(String::as_str, |index| field(*index));

        // CSV has no null: an empty cell is an absent field, not an empty text.
        let filled = self.data.iter().filter(|index| !field(**index).is_empty());
        let data: Map<String, Value> = filled
            .map(|index| (self.head[*index].clone(), value(field(*index))))
            .collect();
        let mut event = json!({
            "specversion": "1.0",
            "id": id,
            "source": self.source,
            "type": kind,
            "correlationid": field(self.correlation),
            "data": data,
        });

        if let Some(time) = time {
            event["time"] = json!(time.to_string());
        }
        Ok(event)
    }

    fn id(&self, number: u64, row: &csv::StringRecord, at: Timestamp) -> String {
        // With the line, two equal rows are two events. With all cells, an edited row is a new one.
        let number = number.to_string();
        let fields = row.iter().map(str::as_bytes);
        let parts: Vec<&[u8]> = [self.source.as_bytes(), number.as_bytes()]
            .into_iter()
            .chain(fields)
            .collect();
        derive_id(at, &parts).to_string()
    }
}

/// Parses an RFC 3339 time, or a civil time or date in UTC.
fn time(text: &str) -> Result<Timestamp, String> {
    // Dates such as 2026/11/21 are accepted too.
    let iso = text.replace('/', "-");
    let civil = || {
        let at: civil::DateTime = iso
            .parse()
            .ok()
            .or_else(|| Some(iso.parse::<civil::Date>().ok()?.into()))?;
        // With its offset, because the end of the year 9999 is beyond the times of the library.
        Timestamp::parse(&format!("{at}Z")).ok()
    };

    // RFC 3339 first: its offset must not be read as UTC.
    let parsed = Timestamp::parse(&iso).ok().or_else(civil);
    parsed.ok_or_else(|| {
        format!(
            "invalid time {text:?}; expected 2026-11-21T08:30:00Z, 2026-11-21 08:30:00 or \
             2026-11-21"
        )
    })
}

/// Converts a cell to a number or a Boolean if its serialized form equals the cell (so `007` stays
/// text), else to text.
fn value(field: &str) -> Value {
    let parsed: Option<Value> = serde_json::from_str(field).ok();
    match parsed.map(|value| (value.to_string(), value)) {
        Some((text, value @ (Value::Number(_) | Value::Bool(_)))) if text == field => value,
        _ => Value::from(field),
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
        read(Box::new(TABLE), columns)
            .unwrap()
            .map(|line| line.unwrap().event)
            .collect()
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
    fn event_ids_are_deterministic() {
        assert_eq!(events(&columns()), events(&columns()));
        assert_ne!(events(&columns())[0]["id"], events(&columns())[1]["id"]);
    }

    #[test]
    fn unknown_column_error_lists_columns() {
        let columns = Columns {
            time_column: Some("date".to_owned()),
            ..columns()
        };
        let error = read(Box::new(TABLE), &columns).err().unwrap().to_string();
        assert_eq!(
            error,
            "unknown column \"date\"; columns: case, activity, when, amount, points"
        );
    }
}
