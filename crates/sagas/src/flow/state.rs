//! State of a flow: its text, and the state of the step machine.

use std::collections::BTreeMap;

use orlog_model::{CorrelationId, Failure};
use orlog_program::SagaState;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Version of the state.
const FORMAT: u16 = 1;
/// Maximum length of the id of a flow, in bytes.
const MAX_ID_BYTES: usize = 100;

/// Data of the signal [`super::SUBMIT`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitFlow {
    /// Text of the flow, YAML or JSON.
    pub source: String,
    /// User who submits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether its results are the result of its instance, for a parent saga.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns_results: bool,
}

/// State of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowState {
    format: u16,
    /// Text of the flow.
    pub(super) source: String,
    /// Hash of the text.
    pub(super) hash: [u8; 16],
    /// User who submitted it.
    pub(super) user: Option<String>,
    /// Whether its results are the result of its instance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) returns_results: bool,
    /// Failure of each failed job.
    pub(super) failures: BTreeMap<String, Failure>,
    /// Number of ended attempts of each job, in all its runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attempts: BTreeMap<String, u32>,
    /// State of the step machine.
    #[serde(with = "serde_bytes")]
    pub(super) machine: Vec<u8>,
}

impl FlowState {
    /// Returns the state of a submitted flow, before the first transition of the machine.
    pub(super) fn new(submitted: SubmitFlow) -> Self {
        let SubmitFlow {
            source,
            user,
            returns_results,
        } = submitted;
        let digest = Sha256::digest(source.as_bytes());
        let hash = std::array::from_fn(|index| digest[index]);

        Self {
            format: FORMAT,
            source,
            hash,
            user,
            returns_results,
            failures: BTreeMap::new(),
            attempts: BTreeMap::new(),
            machine: Vec::new(),
        }
    }

    /// Counts the attempts of a job or of an element of it.
    pub(super) fn count_attempts(&mut self, tag: &str, attempts: u32) {
        let job = tag.split_once('[').map_or(tag, |(job, _)| job);
        match self.attempts.get_mut(job) {
            Some(count) => *count = count.saturating_add(attempts),
            None => drop(self.attempts.insert(job.to_owned(), attempts)),
        }
    }
}

impl SagaState for FlowState {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

/// Checks the id of a flow.
///
/// # Errors
/// If it cannot be a correlation id, or is too long.
pub fn check_id(id: &str) -> Result<CorrelationId, String> {
    let checked = CorrelationId::for_path(id)
        .map_err(|error| error.to_string().replace("correlation id", "flow id"))?;
    if id.len() > MAX_ID_BYTES {
        return Err(format!(
            "flow id has {} bytes, the limit is {MAX_ID_BYTES}",
            id.len()
        ));
    }
    Ok(checked)
}
