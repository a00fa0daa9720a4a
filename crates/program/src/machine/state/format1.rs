//! State format 1: a state and a time for each step, and two flags.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::step_entry::{StepEntry, StepIndex};
use crate::contract::FailureCause;
use crate::machine::step_state::Phase;

/// State in format 1. It supported no compensation while the saga runs forward.
#[derive(Deserialize)]
pub(super) struct Format1 {
    #[expect(dead_code, reason = "the format is already checked")]
    format: u8,
    pub(super) phase: Phase,
    pub(super) steps: Vec<StepEntry>,
    pub(super) done: Vec<StepIndex>,
    pub(super) vars: Map<String, Value>,
    pub(super) cause: Option<FailureCause>,
    pub(super) cancelled: bool,
    pub(super) announced: bool,
}
