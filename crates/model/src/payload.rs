//! Payloads of a history entry: the data of the input and of the requested work, as JSON text in
//! one buffer.
//!
//! The buffer is one allocation per transition, and a payload costs its JSON text and one or two
//! bytes. A payload is a header, the full size if the text is cut, and the text:
//!
//! | header (LEB128) | content |
//! |---|---|
//! | 0 | no payload |
//! | 1 | the payload of the input again |
//! | 2 + 2 · length + cut | text of this length; `cut` is 1 if the JSON text is longer |

use std::borrow::Cow;
use std::io;

use compact_str::CompactString;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

const NONE: u8 = 0;
const SAME_AS_INPUT: u8 = 1;
const TEXT: u64 = 2;
/// Initial size of the buffer, so that small payloads need one allocation.
const INITIAL_CAPACITY: usize = 192;

/// Change of a variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VariableChange {
    /// Name of the variable.
    pub name: CompactString,
    /// Value before the transition; null if the variable did not exist.
    pub before: Value,
    /// Value after the transition.
    pub after: Value,
}

/// Payloads of a history entry, in order: input, changed variables, then one for each requested
/// work item. Empty if payloads are not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecordedPayloads(#[serde(with = "serde_bytes")] Vec<u8>);

/// Recorded payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPayload<'a> {
    /// JSON text, or its beginning.
    pub text: Cow<'a, str>,
    /// Size of the whole JSON text in bytes.
    pub size: u64,
}

impl RecordedPayload<'_> {
    /// Returns whether the text is only the beginning.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.size > self.text.len() as u64
    }
}

impl RecordedPayloads {
    /// Returns whether no payload is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a payload of which at most `limit` bytes are recorded; with the limit 0, records
    /// nothing.
    pub fn push<T: Serialize + ?Sized>(&mut self, payload: Option<&T>, limit: usize) {
        if limit == 0 {
            return;
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(INITIAL_CAPACITY);
        }

        let start = self.0.len();
        let mut writer = BoundedWriter {
            buffer: &mut self.0,
            end: start.saturating_add(limit),
            size: 0,
        };
        let is_written =
            payload.is_some_and(|payload| serde_json::to_writer(&mut writer, payload).is_ok());
        let size = writer.size;

        if !is_written {
            self.0.truncate(start);
            return self.0.push(NONE);
        }

        // The limit can divide a character. A text in the buffer is always valid UTF-8.
        let length = valid_length(&self.0[start..]);
        self.0.truncate(start + length);

        let is_cut = (length as u64) < size;
        if !is_cut && self.is_input(start) {
            self.0.truncate(start);
            return self.0.push(SAME_AS_INPUT);
        }

        // The header is inserted afterwards, because the length is known only now. Writing the text
        // in place needs no second buffer.
        let mut header = Header::default();
        header.push(TEXT + 2 * length as u64 + u64::from(is_cut));
        if is_cut {
            header.push(size);
        }
        self.0
            .splice(start..start, header.bytes[..header.length].iter().copied());
    }

    /// Adds the changed variables as `{"total": [null, 125]}`: the values before and after the
    /// transition.
    pub fn push_variables(&mut self, variables: &[VariableChange], limit: usize) {
        let changes = Changes(variables);
        // Readers find payloads by their position, so a transition without changes has an empty
        // payload.
        self.push(
            Some(&changes).filter(|changes| changes.iter().next().is_some()),
            limit,
        );
    }

    /// Returns whether the text from `start` on is the payload of the input.
    fn is_input(&self, start: usize) -> bool {
        let mut rest = &self.0[..start];
        let header = read_number(&mut rest)
            .filter(|header| *header >= TEXT && (header - TEXT).is_multiple_of(2));
        let length = header.and_then(|header| usize::try_from((header - TEXT) / 2).ok());

        // A cut text is never equal: the part that is missing may differ.
        length.and_then(|length| rest.get(..length)) == Some(&self.0[start..])
    }

    /// Returns the payloads in order; `None` for an input or a work item without one.
    pub fn iter(&self) -> impl Iterator<Item = Option<RecordedPayload<'_>>> {
        let mut rest = self.0.as_slice();
        let mut input = None;

        std::iter::from_fn(move || {
            let is_input = rest.len() == self.0.len();
            let payload = match read_number(&mut rest)? {
                header if header == u64::from(NONE) => None,
                header if header == u64::from(SAME_AS_INPUT) => input.clone(),
                header => {
                    // The headers below `TEXT` are handled above, so the differences cannot
                    // underflow.
                    let length = usize::try_from((header - TEXT) / 2).ok()?;
                    let is_cut = (header - TEXT) % 2 == 1;
                    let size = if is_cut {
                        read_number(&mut rest)?
                    } else {
                        length as u64
                    };
                    // A damaged row ends the list early. It must not end the process.
                    let (text, behind) = rest.split_at_checked(length)?;
                    rest = behind;
                    Some(RecordedPayload {
                        text: String::from_utf8_lossy(text),
                        size,
                    })
                }
            };

            if is_input {
                input.clone_from(&payload);
            }
            Some(payload)
        })
    }
}

/// Variables whose values differ.
struct Changes<'a>(&'a [VariableChange]);

impl<'a> Changes<'a> {
    fn iter(&self) -> impl Iterator<Item = &'a VariableChange> + use<'a> {
        self.0.iter().filter(|change| change.before != change.after)
    }
}

impl Serialize for Changes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.iter()
                .map(|change| (&change.name, (&change.before, &change.after))),
        )
    }
}

/// Header on the stack.
#[derive(Default)]
struct Header {
    bytes: [u8; 20],
    length: usize,
}

impl Header {
    fn push(&mut self, mut number: u64) {
        loop {
            let byte = (number & 0x7f) as u8;
            number >>= 7;
            self.bytes[self.length] = if number == 0 { byte } else { byte | 0x80 };
            self.length += 1;
            if number == 0 {
                return;
            }
        }
    }
}

fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the length of a text without an incomplete character at its end.
fn valid_length(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len)
}

/// Writer that stores bytes up to an end of the buffer, and counts all.
struct BoundedWriter<'a> {
    buffer: &'a mut Vec<u8>,
    end: usize,
    size: u64,
}

impl io::Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stored = bytes.len().min(self.end.saturating_sub(self.buffer.len()));
        self.buffer.extend_from_slice(&bytes[..stored]);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn texts(payloads: &RecordedPayloads) -> Vec<Option<(String, u64)>> {
        payloads
            .iter()
            .map(|payload| payload.map(|payload| (payload.text.into_owned(), payload.size)))
            .collect()
    }

    #[test]
    fn payloads_are_read_in_order() {
        let mut payloads = RecordedPayloads::default();
        let input = json!({ "id": "o-1" });
        payloads.push(Some(&input), 100);
        payloads.push(None::<&Value>, 100);
        payloads.push(Some(&json!([1])), 100);
        payloads.push(Some(&input), 100);
        let input = Some((r#"{"id":"o-1"}"#.to_owned(), 12));
        assert_eq!(
            texts(&payloads),
            [input.clone(), None, Some(("[1]".to_owned(), 3)), input]
        );
        assert_eq!(payloads.0.len(), 1 + 12 + 1 + 1 + 3 + 1);
    }

    #[test]
    fn long_payload_is_cut_between_characters_and_keeps_its_size() {
        let mut payloads = RecordedPayloads::default();
        payloads.push(Some(&"ä".repeat(200)), 100);
        payloads.push(Some(&"ä".repeat(200)), 100);
        let cut = Some((format!("\"{}", "ä".repeat(49)), 402));
        assert_eq!(texts(&payloads), [cut.clone(), cut]);
        assert!(payloads.iter().flatten().all(|payload| payload.is_cut()));
    }

    #[test]
    fn only_variables_whose_values_differ_are_recorded() {
        let change = |name: &str, before, after| VariableChange {
            name: name.into(),
            before,
            after,
        };
        let same = change("id", json!(1), json!(1));
        let mut payloads = RecordedPayloads::default();
        payloads.push_variables(
            &[same.clone(), change("total", Value::Null, json!(125))],
            100,
        );
        payloads.push_variables(&[same], 100);
        assert_eq!(
            texts(&payloads),
            [Some((r#"{"total":[null,125]}"#.to_owned(), 20)), None]
        );
    }

    #[test]
    fn limit_zero_records_nothing() {
        let mut payloads = RecordedPayloads::default();
        payloads.push(Some(&json!(1)), 0);
        assert!(payloads.is_empty() && payloads.iter().next().is_none());
    }

    #[test]
    fn damaged_buffer_ends_early() {
        for bytes in [vec![200], vec![0x80; 12], vec![7, b'a']] {
            assert_eq!(RecordedPayloads(bytes).iter().flatten().count(), 0);
        }
    }
}
