//! JSON Lines: one event a line; empty lines are skipped. The node validates the events.

use std::io::BufRead;

use serde_json::Value;

use crate::cli::exit::CommandError;

use super::batches::EventLine;

/// Returns the events of a JSON Lines input.
pub(crate) fn read(
    mut input: impl BufRead,
) -> impl Iterator<Item = Result<EventLine, CommandError>> {
    let mut number = 0;
    let mut buffer = Vec::new();
    std::iter::from_fn(move || {
        loop {
            buffer.clear();
            // Empty lines count, so that the numbers are those of an editor.
            number += 1;
            // Bytes, not text: a line that is not UTF-8 is reported with its number.
            match input.read_until(b'\n', &mut buffer) {
                Ok(0) => return None,
                Ok(_) if buffer.trim_ascii().is_empty() => {}
                Ok(bytes) => return Some(parse(number, bytes, &buffer)),
                Err(error) => {
                    return Some(Err(CommandError::failed(format!(
                        "cannot read line {number}: {error}"
                    ))));
                }
            }
        }
    })
}

fn parse(number: u64, bytes: usize, line: &[u8]) -> Result<EventLine, CommandError> {
    let event: Value = serde_json::from_slice(line).map_err(|error| {
        CommandError::failed(format!(
            "line {number} is not JSON (column {}): {error}",
            error.column()
        ))
    })?;
    if event.is_object() {
        Ok(EventLine::new(number, bytes, event))
    } else {
        Err(CommandError::failed(format!(
            "line {number} is not a JSON object; write one event a line"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_json_lines_and_reports_line_numbers() {
        let mut lines = read(&b"{\"id\":1}\n\n[1]\n{"[..]);
        assert_eq!(lines.next().unwrap().unwrap().number, 1);
        assert!(
            lines
                .next()
                .unwrap()
                .err()
                .unwrap()
                .to_string()
                .starts_with("line 3 is not a JSON object; write one event a line")
        );
        assert!(
            lines
                .next()
                .unwrap()
                .err()
                .unwrap()
                .to_string()
                .starts_with("line 4 is not JSON")
        );
    }
}
