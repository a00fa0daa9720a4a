//! Lines as they come, in a file or on standard output. In a file the last cursor says where it goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};

use serde_json::Value;

use super::page::Page;
use crate::cli::exit::Failure;

/// Where lines go.
pub(super) enum Lines {
    Standard,
    Path { path: String, file: Option<File> },
}

impl Lines {
    pub(super) fn new(to: &str) -> Self {
        match to {
            "-" => Self::Standard,
            path => Self::Path { path: path.to_owned(), file: None },
        }
    }

    /// Opens the file, drops the end of an answer that was not written whole, and reads the last cursor.
    pub(super) fn open(&mut self) -> Result<Option<String>, Failure> {
        let Self::Path { path, file } = self else { return Ok(None) };
        let wrong = |error: io::Error| Failure::failed(format!("{path}: {error}"));
        let mut opened =
            OpenOptions::new().read(true).append(true).create(true).open(&*path).map_err(wrong)?;
        let (cursor, whole) = last_cursor(&opened).map_err(wrong)?;
        if cursor.is_none() && !is_ours(&opened).map_err(wrong)? {
            let what = "it holds something else than an export; name another file";
            return Err(Failure::usage(format!("--to {path}: {what}")));
        }
        // Of the last answer only a part may have been written.
        opened.set_len(whole).map_err(wrong)?;
        opened.seek(SeekFrom::End(0)).map_err(wrong)?;
        *file = Some(opened);
        Ok(cursor)
    }

    pub(super) fn take(&mut self, page: &Page) -> Result<(), Failure> {
        match self {
            Self::Standard => {
                let mut out = io::stdout().lock();
                out.write_all(page.text.as_bytes())?;
                Ok(out.flush()?)
            }
            Self::Path { path, file } => {
                let file = file.as_mut().expect("it was opened");
                let written = file.write_all(page.text.as_bytes()).and_then(|()| file.sync_data());
                written.map_err(|error| Failure::failed(format!("{path}: {error}")))
            }
        }
    }
}

/// Whether it begins like an export, or not at all.
fn is_ours(mut file: &File) -> io::Result<bool> {
    const BEGINNING: &[u8] = br#"{"kind":"#;
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(BEGINNING.len() as u64).read_to_end(&mut found)?;
    Ok(BEGINNING.starts_with(&found))
}

/// The last cursor of a file, and the bytes up to the end of its line.
fn last_cursor(file: &File) -> io::Result<(Option<String>, u64)> {
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    let (mut at, mut found) = (0, (None, 0));
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(found);
        }
        at += read as u64;
        if line.starts_with(br#"{"kind":"cursor","#) && line.ends_with(b"\n") {
            let last: Value = serde_json::from_slice(&line).unwrap_or_default();
            found = (last["cursor"].as_str().map(str::to_owned), at);
        }
    }
}
