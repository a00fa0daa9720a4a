//! The saga trait, and the two byte-level calls of the runner.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::input::{Context, Input};
use crate::transition::{Status, TransitionBuilder};

/// Saga. Its functions are pure: the same state and input always produce the same output.
pub trait Saga {
    /// State of the saga, stored as JSON, so that fields with `#[serde(default)]` can be added.
    type State: Serialize + DeserializeOwned;

    /// Decides an input. `state` is `None` only for an event that starts an instance.
    fn handle(
        state: Option<Self::State>,
        input: Input,
        transition: &mut TransitionBuilder,
    ) -> SagaDecision<Self::State>;

    /// Migrates the state of another version, which is JSON.
    ///
    /// # Errors
    /// The obstacles that block the migration, one sentence each.
    fn migrate(
        state: &[u8],
        from: &MigrationSource,
    ) -> Result<Migration<Self::State>, Vec<String>> {
        let _ = state;
        Err(vec![format!(
            "migration from version {} is not supported",
            from.version
        )])
    }
}

/// Decision of a saga about an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SagaDecision<S> {
    /// Commit this state and the actions of the transition builder.
    Transition(S),
    /// Ignore the input; this is no error. The text is the reason, for the log.
    Ignore(String),
    /// Reject the request because of the status. The text is the reason, for the operator.
    Reject(String),
    /// Dead-letter the input, because it cannot be applied. The text is the reason.
    DeadLetter(String),
}

/// Source of a state to migrate.
#[derive(Clone, Debug, Deserialize)]
pub struct MigrationSource {
    /// Name of the saga.
    pub saga: String,
    /// Version of the definition.
    pub version: u32,
    /// Hash of the definition, in hexadecimal.
    pub hash: String,
    /// Instance and time.
    pub context: Context,
}

/// Migrated state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration<S> {
    /// State.
    pub state: S,
    /// Status of the instance with this state.
    pub status: Status,
    /// Renamed tags of pending work: old and new.
    pub tags: Vec<(String, String)>,
}

#[derive(Serialize)]
struct TransitionOutput<'a, S> {
    state: &'a S,
    #[serde(flatten)]
    transition: &'a TransitionBuilder,
}

/// Runs the runner's call `apply`: converts the state (empty if there is none) and the input into
/// the output.
///
/// # Panics
/// Panics if the runner and the saga use different ABI versions. In a module that is a trap, which
/// pauses the instance.
#[must_use]
pub fn apply<S: Saga>(state: &[u8], input: &[u8]) -> Vec<u8> {
    let mut transition = TransitionBuilder::default();
    let input = serde_json::from_slice(input).expect("the runner writes a valid input");
    let state = if state.is_empty() {
        None
    } else {
        Some(serde_json::from_slice(state))
    };

    let output = match state.transpose() {
        Ok(state) => S::handle(state, input, &mut transition),
        // A trap pauses the instance, and its state stays as it is.
        Err(error) => panic!("the state does not match this version: {error}"),
    };

    let output = match &output {
        SagaDecision::Transition(state) => serde_json::to_vec(&TransitionOutput {
            state,
            transition: &transition,
        }),
        SagaDecision::Ignore(reason) => serde_json::to_vec(&json!({ "ignored": reason })),
        SagaDecision::Reject(reason) => serde_json::to_vec(&json!({ "rejected": reason })),
        SagaDecision::DeadLetter(reason) => serde_json::to_vec(&json!({ "deadLetter": reason })),
    };

    output.expect("a state is plain data with string keys")
}

/// Runs the runner's call `migrate`: converts the state and its source into the output.
///
/// # Panics
/// Panics like [`apply`].
#[must_use]
pub fn migrate<S: Saga>(state: &[u8], from: &[u8]) -> Vec<u8> {
    let from = serde_json::from_slice(from).expect("the runner writes a valid migration source");
    let output = match S::migrate(state, &from) {
        Ok(Migration {
            state,
            status,
            tags,
        }) => {
            let tags: Vec<_> = tags
                .iter()
                .map(|(from, to)| json!({ "from": from, "to": to }))
                .collect();

            let state =
                serde_json::to_value(state).expect("a state is plain data with string keys");
            json!({ "state": state, "status": status, "tags": tags })
        }
        Err(blocked) => json!({ "blocked": blocked }),
    };

    output.to_string().into_bytes()
}
