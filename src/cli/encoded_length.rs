//! Length of values in a request, whose size a node limits.

use std::io::{self, Write};

use serde::Serialize;

/// Returns the length of a value as JSON, in bytes.
pub(crate) fn encoded_length(value: &impl Serialize) -> usize {
    let mut length = EncodedLength(0);
    serde_json::to_writer(&mut length, value).expect("a counter accepts all bytes");
    length.0
}

/// Writer that counts bytes.
struct EncodedLength(usize);

impl Write for EncodedLength {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
