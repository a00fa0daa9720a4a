//! JSON Lines: one event a line, empty lines skipped. Whether it is an event is for the node to say.

use std::io::BufRead;

use serde_json::Value;

use crate::cli::exit::Failure;

use super::batches::Line;

/// The events in a text.
pub(super) fn read(mut input: impl BufRead) -> impl Iterator<Item = Result<Line, Failure>> {
    let mut number = 0;
    let mut buffer = Vec::new();
    std::iter::from_fn(move || {
        loop {
            buffer.clear();
            number += 1;
            match input.read_until(b'\n', &mut buffer) {
                Ok(0) => return None,
                Ok(_) if buffer.trim_ascii().is_empty() => {}
                Ok(bytes) => return Some(parse(number, bytes, &buffer)),
                Err(error) => {
                    return Some(Err(Failure::failed(format!("line {number} cannot be read: {error}"))));
                }
            }
        }
    })
}

fn parse(number: u64, bytes: usize, line: &[u8]) -> Result<Line, Failure> {
    let event: Value = serde_json::from_slice(line).map_err(|error| {
        Failure::failed(format!("line {number} is not JSON (column {}): {error}", error.column()))
    })?;
    if event.is_object() {
        Ok(Line { number, bytes, event })
    } else {
        Err(Failure::failed(format!("line {number} is no JSON object; give one event a line")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_event_a_line_and_names_the_line_of_a_mistake() {
        let mut lines = read(&b"{\"id\":1}\n\n[1]\n{"[..]);
        assert_eq!(lines.next().unwrap().unwrap().number, 1);
        assert!(lines.next().unwrap().err().unwrap().to_string().starts_with("line 3 is no JSON object"));
        assert!(lines.next().unwrap().err().unwrap().to_string().starts_with("line 4 is not JSON"));
    }
}
