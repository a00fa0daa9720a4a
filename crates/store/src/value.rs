//! Values: a byte that states the format, then MessagePack without field names.
//!
//! A field may be added at the end of a struct with `#[serde(default)]`: values without it stay readable. Any other
//! change needs a new format.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::table::Table;

/// The format of every value so far.
const FORMAT: u8 = 1;

/// The value of rows whose key says it all.
pub(crate) const EMPTY: &[u8] = &[FORMAT];

/// Appends a value.
pub(crate) fn encode<T: Serialize>(buffer: &mut Vec<u8>, value: &T) {
    buffer.push(FORMAT);
    rmp_serde::encode::write(buffer, value)
        .expect("values of the model can be encoded, and memory takes them");
}

/// Reads a value of `table`.
pub(crate) fn decode<T: DeserializeOwned>(table: Table, bytes: &[u8]) -> Result<T, Error> {
    let wrong =
        |reason: String| Error::Corrupt { place: format!("a value of table {}", table.name()), reason };
    match bytes.split_first() {
        Some((&FORMAT, body)) => rmp_serde::from_slice(body).map_err(|error| wrong(error.to_string())),
        Some((format, _)) => Err(wrong(format!("its format is {format}, {FORMAT} is known"))),
        None => Err(wrong("it is empty".to_owned())),
    }
}
