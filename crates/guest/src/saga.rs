//! The saga itself, and the two calls from bytes to bytes that the runner makes.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::input::{Context, Input};
use crate::transition::{Orders, Status};

/// A saga. Its functions are pure: the same state and input always give the same answer.
pub trait Saga {
    /// What is remembered; JSON, so that fields with `#[serde(default)]` can be added.
    type State: Serialize + DeserializeOwned;

    /// Decides. `state` is `None` only for an event that begins an instance.
    fn on(state: Option<Self::State>, input: Input, orders: &mut Orders) -> Answer<Self::State>;

    /// Takes over the state of another version, which is JSON.
    ///
    /// # Errors
    /// What keeps the instance with its version, one sentence for each obstacle.
    fn migrate(state: &[u8], from: &Origin) -> Result<Migration<Self::State>, Vec<String>> {
        let _ = state;
        Err(vec![format!("there is no way from version {}", from.version)])
    }
}

/// What a saga makes of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<S> {
    /// This is the state from now on; the orders given are carried out.
    Become(S),
    /// Nothing changes, and that is right. The text says why, for the log.
    Ignore(String),
    /// The status forbids it. The operator is told why.
    Refuse(String),
    /// The input cannot be applied; it becomes a dead letter with this reason.
    Reject(String),
}

/// Where a state comes from that is to be migrated.
#[derive(Clone, Debug, Deserialize)]
pub struct Origin {
    /// The name of the saga.
    pub saga: String,
    /// The number of its version.
    pub version: u32,
    /// Its identity, in hexadecimal.
    pub hash: String,
    /// Which instance, and when.
    pub context: Context,
}

/// A state that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration<S> {
    /// The state.
    pub state: S,
    /// Where the instance stands with it.
    pub status: Status,
    /// Tags of open work that go by another name from now on: old and new.
    pub tags: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Become<'a, S> {
    state: &'a S,
    #[serde(flatten)]
    orders: &'a Orders,
}

/// The runner's call `apply`: the state (empty where there is none) and the input to the answer.
///
/// # Panics
/// When the runner and the saga do not speak the same version of these words; in a module that is a trap, which pauses the
/// instance.
#[must_use]
pub fn apply<S: Saga>(state: &[u8], input: &[u8]) -> Vec<u8> {
    let mut orders = Orders::default();
    let input = serde_json::from_slice(input).expect("the runner writes an input");
    let state = if state.is_empty() { None } else { Some(serde_json::from_slice(state)) };
    let answer = match state.transpose() {
        Ok(state) => S::on(state, input, &mut orders),
        Err(error) => panic!("the state is none of this version: {error}"),
    };
    let answer = match &answer {
        Answer::Become(state) => serde_json::to_vec(&Become { state, orders: &orders }),
        Answer::Ignore(why) => serde_json::to_vec(&json!({ "ignored": why })),
        Answer::Refuse(why) => serde_json::to_vec(&json!({ "refused": why })),
        Answer::Reject(why) => serde_json::to_vec(&json!({ "rejected": why })),
    };
    answer.expect("a state is plain data with text keys")
}

/// The runner's call `migrate`: the state and where it comes from to the answer.
///
/// # Panics
/// As [`apply`].
#[must_use]
pub fn migrate<S: Saga>(state: &[u8], from: &[u8]) -> Vec<u8> {
    let from = serde_json::from_slice(from).expect("the runner writes an origin");
    let answer = match S::migrate(state, &from) {
        Ok(Migration { state, status, tags }) => {
            let tags: Vec<_> = tags.iter().map(|(from, to)| json!({ "from": from, "to": to })).collect();
            let state = serde_json::to_value(state).expect("a state is plain data with text keys");
            json!({ "state": state, "status": status, "tags": tags })
        }
        Err(blocked) => json!({ "blocked": blocked }),
    };
    answer.to_string().into_bytes()
}
