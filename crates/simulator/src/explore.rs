//! Random lives of a definition, under rules that hold for every life: answers, failures, silence, duplicates, late and early
//! events, operators, in any order.
//!
//! Seeded: the same seed takes the same ways. What breaks a rule is shrunk to the fewest moves that still break it, and told
//! as a test case that `orlog test` plays.

mod coverage;
mod generate;
mod reachability;
mod samples;

use std::collections::BTreeMap;
use std::sync::Arc;

use coverage::Coverage;
use fastrand::Rng;
use generate::Chooser;
use orlog_model::{InstanceKey, Timestamp};
use orlog_program::Program;
use reachability::reaches_end;
use samples::Samples;
use serde_json::{Value, json};

use crate::invariants::{Broken, Marks, Rule, Watch};
use crate::runner::{Cannot, Played, Player};
use crate::simulator::{Lab, Observer, Programs, Seen};
use crate::step::Move;

/// When every life begins: as test cases do.
const BEGINS: &str = "2026-01-01T00:00:00Z";
/// How often it is tried to reach an end from the same combination of marks.
const PROBES: usize = 2;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The same seed takes the same ways.
    pub seed: u64,
    /// Lives.
    pub runs: usize,
    /// Moves in a life.
    pub steps: usize,
}

/// What an exploration came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was tried.
    pub options: Options,
    /// Moves that were made.
    pub moves: usize,
    /// Combinations of marks that were seen.
    pub states: usize,
    /// How often lives stood there at their end, by status.
    pub statuses: BTreeMap<String, usize>,
    /// What was reached.
    pub covered: Vec<String>,
    /// What was not.
    pub not_covered: Vec<String>,
    /// The rule that did not hold, and how.
    pub counterexample: Option<Counterexample>,
}

/// The fewest moves that break a rule.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The rule.
    pub broken: Broken,
    /// The life in which it was found.
    pub run: usize,
    /// The moves.
    pub moves: Vec<Move>,
    /// How many there were before they were shrunk.
    pub before: usize,
}

/// Sees everything at once: rules and coverage.
struct Scout<'p> {
    watch: Watch,
    coverage: &'p mut Coverage,
}

impl Observer for Scout<'_> {
    fn decided(&mut self, seen: &Seen<'_>) {
        self.watch.decided(seen);
        self.coverage.decided(seen);
    }
}

/// Explores a program that was made from a definition; others have no steps to try.
#[must_use]
pub fn explore(program: &Arc<dyn Program>, options: Options) -> Report {
    let programs = Arc::new(Programs::new([Arc::clone(program)]));
    let definition = program.compiled().map(orlog_program::Compiled::definition);
    let samples = definition.map(Samples::of).unwrap_or_default();
    let mut coverage = definition.map(Coverage::of).unwrap_or_default();
    let mut found = Found::default();
    for run in 0..options.runs {
        let mut rng = Rng::with_seed(options.seed.wrapping_add(run as u64));
        if let Err((broken, moves)) =
            live(program, &programs, &samples, &mut coverage, &mut rng, options.steps, &mut found)
        {
            let before = moves.len();
            let moves = shrink(moves, broken.rule, |moves| replay(program, &programs, moves));
            let broken = replay(program, &programs, &moves).unwrap_or(broken);
            found.counterexample = Some(Counterexample { broken, run, moves, before });
            break;
        }
    }
    let (covered, not_covered) = coverage.split();
    Report {
        options,
        moves: found.moves,
        states: found.signatures.len(),
        statuses: found.statuses,
        covered,
        not_covered,
        counterexample: found.counterexample,
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    moves: usize,
    signatures: BTreeMap<String, usize>,
    statuses: BTreeMap<String, usize>,
    counterexample: Option<Counterexample>,
}

fn player(program: &Arc<dyn Program>, programs: &Arc<Programs>) -> Player {
    let begins = Timestamp::parse(BEGINS).expect("a constant");
    Player::new(Lab::new(Arc::clone(programs), begins), program.reference().saga.clone())
}

/// One life.
fn live(
    program: &Arc<dyn Program>,
    programs: &Arc<Programs>,
    samples: &Samples,
    coverage: &mut Coverage,
    rng: &mut Rng,
    steps: usize,
    found: &mut Found,
) -> Result<(), (Broken, Vec<Move>)> {
    let mut player = player(program, programs);
    let mut scout = Scout { watch: Watch::new(), coverage };
    let mut moves = Vec::new();
    let calm = rng.bool();
    for _ in 0..steps {
        let one = Chooser { program: program.as_ref(), samples, player: &player, calm }.choose(rng);
        let Ok(checked) = checked(&mut player, &one, &mut scout) else { continue };
        found.moves += 1;
        moves.push(one);
        if let Some(broken) = checked.or_else(|| scout.watch.broken().first().cloned()) {
            return Err((broken, moves));
        }
        let marks = marks(program.as_ref(), &player);
        let times = found.signatures.entry(marks.signature()).or_default();
        *times += 1;
        if *times <= PROBES
            && let Err(broken) = reaches_end(program.as_ref(), &player, samples)
        {
            return Err((broken, moves));
        }
    }
    let status = player.focus().and_then(|key| player.lab.instance(key)).map(|instance| instance.status);
    let status = status.map_or("not begun", |status| status.as_str());
    *found.statuses.entry(status.to_owned()).or_default() += 1;
    Ok(())
}

fn marks(program: &dyn Program, player: &Player) -> Marks {
    Marks::of(program, player.focus().and_then(|key| player.lab.instance(key)))
}

/// Makes a move. A second delivery must change nothing.
fn checked(player: &mut Player, one: &Move, observer: &mut dyn Observer) -> Result<Option<Broken>, Cannot> {
    if *one != Move::Duplicate {
        return player.play(one, None, observer).map(|_| None);
    }
    let before = snapshot(player);
    let again: Played = player.play(one, None, observer)?;
    if snapshot(player) == before {
        return Ok(None);
    }
    let message = format!("the last input came a second time, and it was not ignored: {again:?}");
    Ok(Some(Broken { rule: Rule::DuplicateHarmless, message }))
}

fn snapshot(player: &Player) -> Option<orlog_model::Instance> {
    let key: Option<&InstanceKey> = player.focus();
    key.and_then(|key| player.lab.instance(key)).cloned()
}

/// Plays moves anew; those that cannot be made are left out. The first rule that does not hold.
fn replay(program: &Arc<dyn Program>, programs: &Arc<Programs>, moves: &[Move]) -> Option<Broken> {
    let mut player = player(program, programs);
    let mut watch = Watch::new();
    for one in moves {
        let checked = checked(&mut player, one, &mut watch).ok().flatten();
        if let Some(broken) = checked.or_else(|| watch.broken().first().cloned()) {
            return Some(broken);
        }
    }
    let samples = program.compiled().map(|compiled| Samples::of(compiled.definition())).unwrap_or_default();
    reaches_end(program.as_ref(), &player, &samples).err()
}

/// Whether an end can be reached from where the instance of a player stands.
///
/// # Errors
/// What it waits for, and that nothing leads on.
pub fn end_is_reachable(player: &Player) -> Result<(), Broken> {
    let Some(program) = player.lab.programs().of(player.saga()) else { return Ok(()) };
    let samples = program.compiled().map(|compiled| Samples::of(compiled.definition())).unwrap_or_default();
    reaches_end(program.as_ref(), player, &samples)
}

impl Counterexample {
    /// As a test file. `definition` is the file of the definition, as seen from the test.
    #[must_use]
    pub fn test_case(&self, definition: &str, seed: u64) -> String {
        let moves: Vec<_> = self.moves.iter().map(|one| format!("      - {one}\n")).collect();
        let moves = moves.concat();
        let comment = self.broken.message.replace('\n', " ");
        format!(
            "# {comment}\nsaga: {}\ntests:\n  - name: found by explore with seed {}\n    given:\n{moves}    expect: {{ sound: true }}\n",
            Value::from(definition),
            seed.wrapping_add(self.run as u64),
        )
    }
}

impl Report {
    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let counterexample = self.counterexample.as_ref().map(|found| {
            json!({
                "rule": format!("{:?}", found.broken.rule),
                "message": found.broken.message,
                "run": found.run,
                "moves": found.moves.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "moves_before_shrinking": found.before,
            })
        });
        json!({
            "seed": self.options.seed,
            "runs": self.options.runs,
            "moves": self.moves,
            "states": self.states,
            "statuses": self.statuses,
            "covered": self.covered,
            "not_covered": self.not_covered,
            "counterexample": counterexample,
        })
    }
}

#[cfg(test)]
mod tests;

/// First large pieces, then single moves, until nothing more can go.
pub(super) fn shrink(
    mut moves: Vec<Move>,
    rule: Rule,
    replay: impl Fn(&[Move]) -> Option<Broken>,
) -> Vec<Move> {
    let still = |moves: &[Move]| replay(moves).is_some_and(|broken| broken.rule == rule);
    if !still(&moves) {
        return moves;
    }
    let mut size = moves.len().div_ceil(2).max(1);
    loop {
        let mut dropped = false;
        let mut at = 0;
        while at < moves.len() {
            let end = (at + size).min(moves.len());
            let rest: Vec<_> = moves[..at].iter().chain(&moves[end..]).cloned().collect();
            if still(&rest) {
                moves = rest;
                dropped = true;
            } else {
                at = end;
            }
        }
        match (dropped, size) {
            (false, 1) => return moves,
            (false, _) => size = size.div_ceil(2),
            (true, _) => {}
        }
    }
}
