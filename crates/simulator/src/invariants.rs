//! Rules that hold for every definition in every life, watched decision by decision.
//!
//! - The same input on the same snapshot gives the same commit.
//! - What was done and has an undo is undone once, the last done first, one after another; nothing else is undone; nothing
//!   done before a point of no return is undone after it; no success is lost.
//! - What is in doubt is not asked for again before a person says that it was not done, where the definition says so.
//! - After it turned back, nothing but undos is asked for.
//! - At the end nothing is left standing; the end is told once.
//! - Timers are armed only for what is under way; the state stays within its bound.

mod in_doubt;
mod invariant;
mod ledger;
mod step_states;
mod view;

use std::collections::BTreeMap;

use orlog_engine::{Decision, decide};
use orlog_model::InstanceKey;
use orlog_program::MAX_PAYLOAD_BYTES;

use crate::simulator::{Observer, Seen};
pub use invariant::{Broken, Rule};
use ledger::Ledger;
pub(crate) use step_states::{Marks, is_asking, is_under_way, is_undo};

/// Watches all instances of a lab.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    ledgers: BTreeMap<InstanceKey, Ledger>,
    broken: Vec<Broken>,
}

impl Watch {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The rules that did not hold, in the order in which that was seen.
    #[must_use]
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    fn break_rule(&mut self, rule: Rule, message: String) {
        self.broken.push(Broken { rule, message });
    }
}

impl Observer for Watch {
    fn decided(&mut self, seen: &Seen<'_>) {
        if decide(&seen.subject, seen.input) != *seen.decision {
            let message = format!("{} was decided twice, and differently", seen.input.label());
            self.break_rule(Rule::Deterministic, message);
        }
        let ledger = self.ledgers.entry(seen.subject.key.clone()).or_default();
        let mut broken = Vec::new();
        match seen.decision {
            Decision::Commit(commit) => {
                if let Some(after) = &commit.instance {
                    if after.state.len() > MAX_PAYLOAD_BYTES {
                        let message = format!("the state has {} bytes", after.state.len());
                        broken.push(Broken { rule: Rule::Bounded, message });
                    }
                    ledger.take(seen, commit, after, &mut broken);
                }
            }
            Decision::Ignore { why, .. } => ledger.ignored(seen, why, &mut broken),
            Decision::Refuse(_) => {}
        }
        self.broken.extend(broken);
    }
}
