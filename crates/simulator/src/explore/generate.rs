//! Which move comes next: mostly answers to what is under way, often enough something else.

use std::time::Duration;

use fastrand::Rng;
use orlog_model::{EventType, Status};
use orlog_program::doubt::{DONE, NOT_DONE};
use orlog_program::{Action, Compiled, Definition, Program};
use serde_json::Value;

use super::samples::Samples;
use crate::invariants::{Marks, is_asking, is_under_way, is_undo};
use crate::responses::{By, answering, asks_in_doubt};
use crate::runner::Player;
use crate::step::{EventMove, Move, Verb};

/// Everything a choice depends on.
pub(super) struct Chooser<'a> {
    pub(super) program: &'a dyn Program,
    pub(super) samples: &'a Samples,
    pub(super) player: &'a Player,
    /// Mostly everything goes well, so that lives come far.
    pub(super) calm: bool,
}

impl Chooser<'_> {
    /// The next move.
    pub(super) fn choose(&self, rng: &mut Rng) -> Move {
        let instance = self.player.focus().and_then(|key| self.player.lab.instance(key));
        let Some(instance) = instance else { return self.beginning(rng) };
        let marks = Marks::of(self.program, Some(instance));
        // A calm life has a tenth of the trouble.
        let weighted = if self.calm && rng.u8(0..10) > 0 { 0 } else { rng.u8(0..100) };
        let chosen = match (instance.paused, instance.status) {
            (true, _) if weighted < 60 => Some(Move::Operator(Verb::Resume)),
            (false, Status::Stuck) if weighted < 60 => Some(Self::verdict_of_a_person(rng)),
            _ => None,
        };
        chosen.unwrap_or_else(|| match weighted {
            0..=59 => self.answer(&marks, rng).unwrap_or_else(|| self.pass(rng)),
            60..=69 => self.late(&marks, rng).unwrap_or_else(|| self.pass(rng)),
            70..=81 => self.pass(rng),
            82..=87 => Move::Duplicate,
            88..=93 => self.any_event(rng),
            94..=95 => self.signal(rng),
            96..=97 => Move::Operator(Verb::Cancel("explored".to_owned())),
            98 => Move::Operator(Verb::Pause),
            _ => Self::verdict_of_a_person(rng),
        })
    }

    /// Sometimes an event comes before its instance.
    fn beginning(&self, rng: &mut Rng) -> Move {
        if rng.u8(0..10) == 0 {
            return self.any_event(rng);
        }
        let starts = self.program.manifest().triggers.iter().filter(|trigger| trigger.starts);
        let starts: Vec<_> = starts.map(|trigger| trigger.kind.clone()).collect();
        match rng.choice(starts) {
            Some(kind) => self.event(kind, rng),
            None => self.any_event(rng),
        }
    }

    fn verdict_of_a_person(rng: &mut Rng) -> Move {
        Move::Operator(match rng.u8(0..8) {
            0..=4 => Verb::Retry,
            5..=6 => Verb::Skip,
            _ => Verb::ForceComplete,
        })
    }

    fn event(&self, kind: EventType, rng: &mut Rng) -> Move {
        let mut event = EventMove::new(kind, self.samples.payload(rng));
        event.correlation = Some("o1".to_owned());
        if let Some(form) = self.definition().and_then(|definition| definition.events.get(&event.kind)) {
            let known = form.accepts.iter().chain(form.upcast.keys()).copied();
            let unknown = form.accepts.iter().max().copied().unwrap_or(1) + 1;
            event.version = rng.choice(known.chain([unknown]).collect::<Vec<_>>()).unwrap_or(1);
        }
        Move::Event(event)
    }

    /// One that it takes, at any time.
    fn any_event(&self, rng: &mut Rng) -> Move {
        let kinds = self.program.manifest().triggers.iter().map(|trigger| trigger.kind.clone());
        match rng.choice(kinds.collect::<Vec<_>>()) {
            Some(kind) => self.event(kind, rng),
            None => self.pass(rng),
        }
    }

    fn signal(&self, rng: &mut Rng) -> Move {
        let kinds = self.program.manifest().triggers.iter().map(|trigger| trigger.kind.clone());
        match rng.choice(kinds.collect::<Vec<_>>()) {
            Some(kind) => Move::Signal { kind, data: self.samples.payload(rng) },
            None => self.pass(rng),
        }
    }

    /// To the next timer, or some time.
    fn pass(&self, rng: &mut Rng) -> Move {
        let due = self.player.lab.next_due().map(|due| due.since(self.player.lab.now()));
        match due {
            Some(due) if rng.u8(0..10) < 6 => Move::Advance(due),
            Some(_) | None => Move::Advance(Duration::from_secs(rng.u64(0..7200))),
        }
    }

    /// To something that is under way, or being undone.
    fn answer(&self, marks: &Marks, rng: &mut Rng) -> Option<Move> {
        let open = marks.iter().filter(|(tag, _)| !marks.has_elements(tag));
        let open = open.filter_map(|(tag, mark)| match mark {
            mark if is_under_way(mark) || is_asking(mark) => Some((tag.to_owned(), is_asking(mark))),
            mark if is_undo(mark) => Some((format!("undo:{tag}"), false)),
            _ => None,
        });
        let (tag, asking) = rng.choice(open.collect::<Vec<_>>())?;
        Some(if asking { self.word_of_a_person(tag, rng) } else { self.some_answer(tag, rng) })
    }

    /// Whether something in doubt was done.
    pub(super) fn word_of_a_person(&self, tag: String, rng: &mut Rng) -> Move {
        let word = if rng.u8(0..3) > 0 { DONE } else { NOT_DONE };
        let outcome = Some(EventType::new(word).expect("a short word"));
        Move::Task { tag, outcome, by: None, data: self.samples.payload(rng) }
    }

    fn some_answer(&self, tag: String, rng: &mut Rng) -> Move {
        if self.is_doubtful(&tag) && rng.u8(0..4) == 0 {
            return Move::Doubt { tag };
        }
        let kinds = if self.calm { 14 } else { 20 };
        match rng.u8(0..kinds) {
            0..=12 => self.ok(tag, rng),
            13..=17 => self.fail(tag, rng),
            _ => Move::Timeout { tag },
        }
    }

    /// To something that is no longer waited for.
    fn late(&self, marks: &Marks, rng: &mut Rng) -> Option<Move> {
        let late = marks.iter().filter(|(_, mark)| matches!(*mark, "failed" | "given_up" | "pausing"));
        let tag = rng.choice(late.map(|(tag, _)| tag.to_owned()).collect::<Vec<_>>())?;
        let doubt = self.is_doubtful(&tag) && rng.bool();
        Some(if doubt { Move::Doubt { tag } } else { self.ok(tag, rng) })
    }

    /// Where the definition asks nobody, a doubt is a time that ran out.
    fn is_doubtful(&self, tag: &str) -> bool {
        self.definition().is_some_and(|definition| asks_in_doubt(definition, tag))
    }

    pub(super) fn ok(&self, tag: String, rng: &mut Rng) -> Move {
        let how = self.definition().and_then(|definition| answering(definition, &tag));
        let by = how.as_ref().map_or(By::Outcome, |how| how.by);
        let names = how.into_iter().flat_map(|how| how.ok).map(|(event, _)| event.clone());
        let event = rng.choice(names.collect::<Vec<_>>());
        let data = self.samples.payload(rng);
        match by {
            By::Person => Move::Task { tag, outcome: event, by: None, data },
            By::Event => Move::Ok { tag, event, data },
            // The handler names no event: then the conditions decide.
            By::Acceptance | By::Outcome | By::Timer | By::Nobody => Move::Ok { tag, event: None, data },
        }
    }

    fn fail(&self, tag: String, rng: &mut Rng) -> Move {
        let how = self.definition().and_then(|definition| answering(definition, &tag));
        let by = how.as_ref().map_or(By::Outcome, |how| how.by);
        let names = how.into_iter().flat_map(|how| how.fail).map(|(event, _)| event.clone());
        let event = rng.choice(names.collect::<Vec<_>>());
        let data = self.samples.payload(rng);
        match by {
            By::Person => Move::Task { tag, outcome: event, by: None, data },
            By::Event if event.is_some() && rng.bool() => {
                Move::Fail { tag, event, code: None, message: None, data }
            }
            By::Event | By::Acceptance | By::Outcome | By::Timer | By::Nobody => Move::Fail {
                tag,
                event: None,
                code: Some("refused".to_owned()),
                message: None,
                data: Value::Null,
            },
        }
    }

    fn definition(&self) -> Option<&Definition> {
        self.program.compiled().map(Compiled::definition)
    }
}

/// Whether a tag waits for time alone.
pub(super) fn waits_for_time(definition: Option<&Definition>, tag: &str) -> bool {
    let step = definition.and_then(|definition| crate::responses::step_of(definition, tag));
    step.is_some_and(|step| matches!(step.action, Action::Wait(_)))
}
