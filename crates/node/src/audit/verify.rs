//! Verification of a trail: no record was changed, inserted or removed.
//!
//! The chain has no key. A user who can write the files can replace the end of the trail with
//! another one, or remove it. The hash of a record that is stored elsewhere detects this:
//! [`ExpectedRecord`].

use std::path::Path;
use std::{fs, io};

use serde::Serialize;

use super::chain::{LineHash, Link, lines};
use super::files::FileSet;

/// Record that is expected in a trail: its sequence number and its hash, noted at an earlier time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRecord {
    sequence: u64,
    hash: String,
}

impl std::str::FromStr for ExpectedRecord {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(sequence, hash)| {
            let is_hash = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            is_hash.then_some(Self {
                sequence: sequence.parse().ok()?,
                hash: hash.to_ascii_lowercase(),
            })
        });
        parsed.ok_or_else(|| {
            format!(
                "invalid record {text:?}; expected <sequence>:<hash>, as `orlog audit verify` \
                prints"
            )
        })
    }
}

/// Result of a verification without errors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Sequence number of the first record; 0 if there is none. Retention deletes the records
    /// before it.
    pub first: u64,
    /// Sequence number of the last record.
    pub last: u64,
    /// Hash of the last record.
    pub hash: String,
    /// Number of records from before the chain.
    pub unchained: u64,
    /// Number of lines that a crash has truncated.
    pub truncated: u64,
}

/// Error of a verification.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The files cannot be read.
    #[error("cannot read the audit trail: {0}")]
    Io(#[from] io::Error),
    /// The chain is broken.
    #[error("{file}:{line}: {reason}")]
    Broken {
        /// File of the first line that does not continue the chain.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// Reason.
        reason: String,
    },
    /// The trail lacks the expected record, or another record has its sequence number.
    #[error("record {sequence} with the hash {hash} is missing: records were removed or replaced")]
    Missing {
        /// Expected sequence number.
        sequence: u64,
        /// Expected hash.
        hash: String,
    },
}

/// State of a verification after a line.
struct Verifier<'a> {
    found: Verification,
    last_hash: Option<LineHash>,
    expected: Option<&'a ExpectedRecord>,
}

/// Verifies the chain of a set of files: no record was changed, inserted or removed between the
/// first and the last one.
///
/// # Errors
/// The first line that does not continue the chain, or a missing expected record.
pub fn verify(
    dir: &Path,
    set: FileSet,
    expected: Option<&ExpectedRecord>,
) -> Result<Verification, VerifyError> {
    let mut verifier = Verifier {
        found: Verification::default(),
        last_hash: None,
        expected,
    };
    // Each file continues the chain of the file before it.
    for number in set.numbers(dir)? {
        let path = set.path(dir, number);
        let bytes = fs::read(&path)?;

        for (index, line) in lines(&bytes).enumerate() {
            verifier.check(line).map_err(|reason| VerifyError::Broken {
                file: path.display().to_string(),
                line: index + 1,
                reason,
            })?;
        }
    }

    match verifier.expected {
        Some(record) => Err(VerifyError::Missing {
            sequence: record.sequence,
            hash: record.hash.clone(),
        }),
        None => Ok(verifier.found),
    }
}

impl Verifier<'_> {
    fn check(&mut self, line: &[u8]) -> Result<(), String> {
        let hash = LineHash::of(line);
        match Link::of(line) {
            Some(found) => self.check_link(&found, hash)?,
            // A crash has truncated the line. It is part of the chain: the next record contains its
            // hash.
            None if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() => {
                self.found.truncated += 1;
            }
            // An earlier release wrote records without a chain; they precede all others.
            None if self.found.first == 0 => self.found.unchained += 1,
            None => {
                return Err(format!(
                    "the record after record {} has no sequence",
                    self.found.last
                ));
            }
        }

        self.last_hash = Some(hash);
        Ok(())
    }

    fn check_link(&mut self, link: &Link, hash: LineHash) -> Result<(), String> {
        let Link { sequence, previous } = link;
        let is_first = self.found.first == 0;
        if !is_first && *sequence != self.found.last + 1 {
            return Err(format!(
                "record {sequence} follows record {}",
                self.found.last
            ));
        }

        // Retention has deleted the line before the first one, unless the first record is the start
        // of the chain.
        let before = self
            .last_hash
            .or((*sequence == 1).then_some(LineHash::START));
        if before.is_some_and(|before| before.to_hex() != *previous) {
            return Err(format!(
                "record {sequence} does not contain the hash of the line before it"
            ));
        }

        if is_first {
            self.found.first = *sequence;
        }

        self.found.last = *sequence;
        self.found.hash = hash.to_hex();
        self.expected
            .take_if(|record| record.sequence == *sequence && record.hash == self.found.hash);

        Ok(())
    }
}
