//! Built-in sagas: programs that every node has, beside its definitions. Their names start with
//! `orlog.`.

pub(crate) mod page;

use orlog_model::{DefinitionRef, EventType, SagaName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::contract::ProgramError;

/// Returns whether a saga name belongs to the built-in sagas.
#[must_use]
pub fn is_built_in(saga: &str) -> bool {
    saga.starts_with("orlog.")
}

/// Returns the reference of a built-in saga.
pub(crate) fn reference(saga: &str) -> DefinitionRef {
    // Instances are pinned to this hash, so it never changes; the state has a format version.
    let digest = Sha256::digest(format!("native:{saga}:1"));
    let hash = std::array::from_fn(|index| digest[index]);
    DefinitionRef {
        saga: SagaName::new(saga).expect("the name is short"),
        version: 1,
        hash,
    }
}

/// Returns the type of a signal or fact of a built-in saga.
pub(crate) fn event_type(name: &str) -> EventType {
    EventType::new(name).expect("the name is short")
}

/// Decodes a stored state, whose format must be at most `supported`.
pub(crate) fn decode<S: DeserializeOwned>(
    state: &[u8],
    supported: u16,
    format: impl Fn(&S) -> u16,
) -> Result<S, ProgramError> {
    let state: S = rmp_serde::from_slice(state)
        .map_err(|error| ProgramError::InvalidState(error.to_string()))?;

    let found = format(&state);
    if found > supported {
        let message = format!("format {found} is newer than this release, which reads {supported}");
        return Err(ProgramError::InvalidState(message));
    }
    Ok(state)
}

/// Encodes a state.
pub(crate) fn encode<S: Serialize>(state: &S) -> Result<Vec<u8>, ProgramError> {
    rmp_serde::to_vec_named(state).map_err(|error| ProgramError::Evaluation(error.to_string()))
}
