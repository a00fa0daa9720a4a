//! Length of values as JSON, for limits in bytes.

use std::io::{self, Write};

use serde::Serialize;

/// Returns the length of a value as JSON, in bytes, without the text in memory. A value that JSON
/// cannot represent exceeds every limit.
pub fn json_length(value: &impl Serialize) -> usize {
    let mut counter = ByteCounter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

/// Writer that counts bytes.
struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn length_is_that_of_the_text() {
        for text in ["", "a", "\0\"\\ä€😀"] {
            assert_eq!(
                json_length(&text),
                serde_json::to_string(text).unwrap().len()
            );
        }
    }

    #[test]
    fn value_without_a_text_exceeds_every_limit() {
        // The name of a member must be a text.
        assert_eq!(json_length(&BTreeMap::from([((1, 2), 3)])), usize::MAX);
    }
}
