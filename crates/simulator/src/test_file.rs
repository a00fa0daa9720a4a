//! Test files beside definitions (`*.saga.test.yaml`): what happens, and what is then expected.
//!
//! [`Book::read`] reads a file; every mistake has file, line, column and, where there is one, a suggestion. [`run`] plays one
//! case on a lab of its own. A case fails with everything that is not as expected, and with the history of the instance.

mod check;
mod diff;
mod expect;
mod parse;
mod report;

use std::sync::Arc;

use orlog_model::{CorrelationId, InstanceKey, SagaName, Timestamp};

use crate::invariants::Watch;
use crate::runner::{Played, Player};
use crate::simulator::{Lab, Programs, Taken};
use crate::step::Move;

pub use check::story;
pub use expect::{Deadline, Expect, Fields, Reference, WorkItemForm};
pub(crate) use report::escape;
pub use report::{Outcome, Summary, junit};

/// A test file.
#[derive(Clone, Debug)]
pub struct Book {
    /// The file of the definition under test, as it is written: relative to the test file.
    pub definition: String,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// One test.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The line it begins in.
    pub line: usize,
    /// The time at which it begins.
    pub begins: Timestamp,
    /// What happens, with checks in between and at the end.
    pub steps: Vec<Step>,
}

/// One thing of a test, and where it stands.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line it stands in.
    pub line: usize,
    /// Which instance it is about: a correlation id, or a saga and one; the first of the saga without it.
    pub of: Option<String>,
    /// What.
    pub what: What,
}

/// What a step of a test is.
#[derive(Clone, Debug)]
pub enum What {
    /// Something happens. `refused`: the instance must refuse it.
    Move {
        /// What.
        one: Move,
        /// It must be refused, with a text that holds this.
        refused: Option<String>,
    },
    /// Something must be so.
    Expect(Box<Expect>),
}

/// What is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The line of the test file.
    pub line: usize,
    /// What, in lines for people.
    pub message: String,
}

/// Plays a case. Everything that is not as expected, and the story of the instance, where something is not.
#[must_use]
pub fn run(case: &Case, saga: &SagaName, programs: &Arc<Programs>) -> Vec<Miss> {
    let mut player = Player::new(Lab::new(Arc::clone(programs), case.begins), saga.clone());
    let mut watch = Watch::new();
    let mut misses = Vec::new();
    let miss = |line, message| Miss { line, message };
    for step in &case.steps {
        let at = match instance(step, saga, &player) {
            Ok(at) => at,
            Err(message) => {
                misses.push(miss(step.line, message));
                break;
            }
        };
        match &step.what {
            What::Move { one, refused } => {
                let done = player.play(one, at.as_ref(), &mut watch).map_err(|cannot| cannot.to_string());
                if let Err(message) = done.and_then(|done| judge_move(&done, refused.as_deref())) {
                    misses.push(miss(step.line, message));
                    break;
                }
            }
            What::Expect(expect) => {
                let key = at.as_ref().or(player.focus());
                let found = check::misses(expect, key, &player, &watch);
                misses.extend(found.into_iter().map(|message| miss(step.line, message)));
            }
        }
    }
    misses
}

fn instance(step: &Step, saga: &SagaName, player: &Player) -> Result<Option<InstanceKey>, String> {
    let Some(of) = &step.of else { return Ok(None) };
    let (saga, correlation) = match of.split_once('/') {
        Some((saga, correlation)) => (SagaName::new(saga).map_err(|error| error.to_string())?, correlation),
        None => (saga.clone(), of.as_str()),
    };
    let correlation = CorrelationId::new(correlation).map_err(|error| error.to_string())?;
    Ok(Some(player.lab.key(&saga, correlation)))
}

/// An instruction that is refused, or an event that reaches nobody, is a mistake of the test unless it is expected.
fn judge_move(played: &Played, refused: Option<&str>) -> Result<(), String> {
    let why = match played {
        Played::Passed(_) => None,
        Played::Nobody(why) => Some(why.clone()),
        Played::Taken(all) => all.iter().find_map(|taken| match taken {
            Taken::Refused(refusal) => Some(refusal.to_string()),
            Taken::Applied(_) | Taken::Kept | Taken::Ignored(_) | Taken::SetAside(..) => None,
        }),
    };
    match (why, refused) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err("this was to be refused, and was not".to_owned()),
        (Some(why), None) => Err(format!("this was refused: {why}")),
        (Some(why), Some(part)) if why.contains(part) => Ok(()),
        (Some(why), Some(part)) => {
            Err(format!("this was to be refused with `{part}`, it was refused: {why}"))
        }
    }
}

/// The story of the instance of a case, for whoever reads why it failed.
#[must_use]
pub fn story_of(case: &Case, saga: &SagaName, programs: &Arc<Programs>) -> Vec<String> {
    let mut player = Player::new(Lab::new(Arc::clone(programs), case.begins), saga.clone());
    for step in &case.steps {
        let (What::Move { one, .. }, Ok(at)) = (&step.what, instance(step, saga, &player)) else { continue };
        if player.play(one, at.as_ref(), &mut ()).is_err() {
            break;
        }
    }
    let entry = player.focus().and_then(|key| player.lab.entry(key));
    entry.map_or_else(|| vec!["no instance has begun".to_owned()], |entry| story(entry, case.begins))
}
