//! The first format: a mark and a time for each step, and two flags.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::step_entry::{At, Slot};
use crate::contract::Cause;
use crate::machine::step_state::Phase;

/// A state as the first format has it. It knew no saga that undoes while it goes on.
#[derive(Deserialize)]
pub(super) struct Format1 {
    #[expect(dead_code, reason = "it is known when this is read")]
    format: u8,
    pub(super) phase: Phase,
    pub(super) steps: Vec<Slot>,
    pub(super) done: Vec<At>,
    pub(super) vars: Map<String, Value>,
    pub(super) cause: Option<Cause>,
    pub(super) cancelled: bool,
    pub(super) told: bool,
}
