//! JSON lines in a file or on standard output. In a file, the last cursor is the resume position.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};

use serde_json::Value;

use super::page::ExportPage;
use crate::cli::exit::CommandError;
use crate::cli::printable::printable_json;

/// Target for JSON lines.
pub(crate) enum LineSink {
    Standard,
    Path { path: String, file: Option<File> },
}

impl LineSink {
    pub(crate) fn new(to: &str) -> Self {
        match to {
            "-" => Self::Standard,
            path => Self::Path {
                path: path.to_owned(),
                file: None,
            },
        }
    }

    /// Opens the file, removes an incomplete response at the end, and reads the last cursor.
    pub(crate) fn open(&mut self) -> Result<Option<String>, CommandError> {
        let Self::Path { path, file } = self else {
            return Ok(None);
        };

        let file_error = |error: io::Error| CommandError::failed(format!("{path}: {error}"));
        let mut opened = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&*path)
            .map_err(file_error)?;
        // Lines after the last cursor belong to a response that was not written completely. The
        // node sends them again.
        let (cursor, whole) = last_cursor(&opened).map_err(file_error)?;
        // The file is truncated below, which must not happen to a file of another program.
        if cursor.is_none() && !is_ours(&opened).map_err(file_error)? {
            let reason = "the file is not an export; use another file";
            return Err(CommandError::usage(format!("--to {path}: {reason}")));
        }

        // The last response can be incomplete.
        opened.set_len(whole).map_err(file_error)?;
        opened.seek(SeekFrom::End(0)).map_err(file_error)?;
        *file = Some(opened);
        Ok(cursor)
    }

    pub(crate) fn take(&mut self, page: &ExportPage) -> Result<(), CommandError> {
        match self {
            Self::Standard => {
                let mut out = io::stdout().lock();
                // Standard output can be a terminal, and the lines contain texts of callers.
                out.write_all(printable_json(&page.text).as_bytes())?;
                Ok(out.flush()?)
            }
            Self::Path { path, file } => {
                let file = file.as_mut().expect("the file is open");
                // Durable before the next request: a power failure must not lose lines before a
                // stored cursor.
                let written = file
                    .write_all(page.text.as_bytes())
                    .and_then(|()| file.sync_data());
                written.map_err(|error| CommandError::failed(format!("{path}: {error}")))
            }
        }
    }
}

/// Returns whether the file is empty or starts like an export.
fn is_ours(mut file: &File) -> io::Result<bool> {
    const BEGINNING: &[u8] = br#"{"kind":"#;
    // A shorter file can be a write that was interrupted in its first bytes.
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(BEGINNING.len() as u64).read_to_end(&mut found)?;
    Ok(BEGINNING.starts_with(&found))
}

/// Returns the last cursor of a file, and the offset after its line.
fn last_cursor(file: &File) -> io::Result<(Option<String>, u64)> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut at = 0;
    let mut found = (None, 0);

    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(found);
        }

        at += read as u64;
        // A line without its line feed is not complete, even if it is valid JSON.
        if line.starts_with(br#"{"kind":"cursor","#) && line.ends_with(b"\n") {
            let last: Value = serde_json::from_slice(&line).unwrap_or_default();
            found = (last["cursor"].as_str().map(str::to_owned), at);
        }
    }
}
