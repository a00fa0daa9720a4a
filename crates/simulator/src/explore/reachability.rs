//! Whether an end can be reached: everything in flight is answered, a person decides what is stuck, and no more.

use fastrand::Rng;
use orlog_model::{Instance, Status, WaitKind};
use orlog_program::{Compiled, Program};

use super::generate::{Chooser, waits_for_time};
use super::samples::Samples;
use crate::invariants::{Broken, Marks, Rule, is_asking, is_under_way};
use crate::runner::Player;
use crate::step::{Move, Verb};

/// Answers for each step; a step for each element has as many elements as there are tags.
const MOVES_A_TAG: usize = 12;
/// Answers without any effect after which another kind is tried.
const PATIENCE: usize = 12;

/// Plays a copy to its end.
pub(super) fn reaches_end(program: &dyn Program, player: &Player, samples: &Samples) -> Result<(), Broken> {
    let mut player = player.clone();
    let mut rng = Rng::with_seed(1);
    let (mut idle, mut left) = (0, 60);
    let mut extended = false;
    while left > 0 {
        let Some(instance) = focus(&player) else { return Ok(()) };
        if instance.status.is_final() {
            return Ok(());
        }
        let marks = Marks::of(program, Some(instance));
        if !extended {
            left += marks.iter().count() * MOVES_A_TAG;
            extended = true;
        }
        let version = instance.version;
        let one = next(program, &player, samples, &marks, idle, &mut rng);
        // A move that cannot be made is as good as one that changes nothing.
        drop(player.play(&one, None, &mut ()));
        idle = if focus(&player).is_some_and(|now| now.version > version) { 0 } else { idle + 1 };
        left -= 1;
        if idle > PATIENCE * 3 {
            break;
        }
    }
    verdict(&player)
}

fn focus(player: &Player) -> Option<&Instance> {
    player.focus().and_then(|key| player.lab.instance(key))
}

/// Answers first; where they change nothing, time; then cancelling; then a person.
fn next(
    program: &dyn Program,
    player: &Player,
    samples: &Samples,
    marks: &Marks,
    idle: usize,
    rng: &mut Rng,
) -> Move {
    let Some(instance) = focus(player) else { return Move::Operator(Verb::Resume) };
    if instance.paused {
        return Move::Operator(Verb::Resume);
    }
    if instance.status == Status::Stuck {
        return Move::Operator(match idle {
            0 if rng.bool() => Verb::Retry,
            0..=2 => Verb::Skip,
            _ => Verb::ForceComplete,
        });
    }
    let to_next = player.lab.next_due().map(|due| Move::Advance(due.since(player.lab.now())));
    let definition = program.compiled().map(Compiled::definition);
    let open: Vec<_> = marks.iter().filter(|(tag, _)| !marks.has_elements(tag)).collect();
    let undo = open.iter().find(|(_, mark)| *mark == "undoing").map(|(tag, _)| format!("undo:{tag}"));
    let running = open.iter().filter(|(tag, mark)| *mark == "running" && !waits_for_time(definition, tag));
    let running: Vec<_> = running.map(|(tag, _)| (*tag).to_owned()).collect();
    let waits = open.iter().any(|(tag, mark)| {
        matches!(*mark, "pausing" | "undo_pausing") || (is_under_way(mark) && waits_for_time(definition, tag))
    });
    let chooser = Chooser { program, samples, player, calm: true };
    let asked: Vec<_> =
        open.iter().filter(|(_, mark)| is_asking(mark)).map(|(tag, _)| (*tag).to_owned()).collect();
    if let Some(tag) = rng.choice(asked).filter(|_| undo.is_none()) {
        return chooser.word_of_a_person(tag, rng);
    }
    let answer = undo.or_else(|| rng.choice(running));
    match (answer, to_next) {
        (_, Some(advance)) if waits && rng.bool() => advance,
        (Some(tag), _) if idle < PATIENCE => chooser.ok(tag, rng),
        (_, Some(advance)) if idle < PATIENCE * 2 => advance,
        (Some(tag), None) if idle < PATIENCE * 2 => Move::Fail {
            tag,
            event: None,
            code: Some("refused".to_owned()),
            message: None,
            data: serde_json::Value::Null,
        },
        _ => Move::Operator(Verb::Cancel("no way on".to_owned())),
    }
}

/// It is no dead end where only an event with a condition is missing that no sample meets: such a step is told as not covered.
fn verdict(player: &Player) -> Result<(), Broken> {
    let Some(instance) = focus(player).filter(|instance| !instance.status.is_final()) else { return Ok(()) };
    let waits_for_event = instance.waits.iter().any(|wait| wait.kind == WaitKind::Event);
    if waits_for_event && instance.status == Status::Running {
        return Ok(());
    }
    let waits: Vec<_> = instance.waits.iter().map(|wait| wait.name.as_str()).collect();
    let waits = if waits.is_empty() { "nothing".to_owned() } else { waits.join(", ") };
    let message =
        format!("it is {}, waits for {waits}, and nothing that can happen leads to an end", instance.status);
    Err(Broken { rule: Rule::EndReachable, message })
}
