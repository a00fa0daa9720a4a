//! Recorded events against definitions, in virtual time: what would have become of every instance.
//!
//! Events come in the order of their times; timers fire in between, each when it is due. Effects, jobs and accepted commands
//! are answered by a policy, at once; a command whose answer is an event is answered by the record, or where the policy names
//! an event for it. Memory holds one snapshot for each instance; of those that have ended nothing else.

mod compare;
mod report;
mod responses;

use std::sync::Arc;
use std::time::Duration;

use orlog_engine::Decision;
use orlog_model::{Event, Input, InstanceKey, Timestamp, WorkItem};
use orlog_program::document::Document;
use serde_json::Value;

use crate::simulator::{Lab, Observer, Programs, Seen, Taken};

pub use compare::{Differences, Example, compare};
use report::Tally;
pub use report::{Durations, Report};
pub use responses::{Answers, Reply};

/// Answers in a row without an event or a timer between them; sagas that go round in circles stop there.
const MOST_ANSWERS: usize = 10_000;

/// How to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who answers for the world.
    pub answers: Answers,
    /// How long time goes on after the last event.
    pub then: Duration,
    /// What each instance asked for is remembered, for [`compare`].
    pub remembers_work: bool,
}

/// Reads a duration as definitions write it: `61d`, `1h30m`.
///
/// # Errors
/// It is none.
pub fn duration(text: &str) -> Result<Duration, String> {
    let document = Document::read(&Value::from(text).to_string(), "").map_err(|problem| problem.message)?;
    document.root().duration().map_err(|problem| problem.message)
}

/// Plays events, which are in the order of their times, and tells what became of them.
#[must_use]
pub fn simulate(programs: Arc<Programs>, events: &[Event], options: &Options) -> Report {
    let begins = events.first().map_or(Timestamp::default(), |event| event.time);
    let lab = Lab::new(programs, begins).forgetful();
    let mut run = Run { lab, answers: &options.answers, tally: Tally::new(options.remembers_work) };
    for event in events {
        run.wait_until(event.time);
        run.publish(event);
    }
    let end = run.lab.now().after(options.then);
    run.wait_until(end);
    run.tally.finish(&run.lab, events.len())
}

struct Run<'a> {
    lab: Lab,
    answers: &'a Answers,
    tally: Tally,
}

impl Observer for Tally {
    fn decided(&mut self, seen: &Seen<'_>) {
        match seen.decision {
            Decision::Commit(commit) => {
                if let Some(letter) = &commit.dead_letter {
                    self.set_aside(letter.reason.as_str());
                }
                if let (Input::Timer(timer), Some(_)) = (seen.input, &commit.instance) {
                    self.fired(timer.name.as_str());
                }
                self.asked(seen.subject.key, &commit.work);
                self.moved(seen.subject.instance, commit.instance.as_ref());
            }
            Decision::Ignore { why, .. } if matches!(seen.input, Input::Event(_)) => self.ignored(why),
            Decision::Ignore { .. } | Decision::Refuse(_) => {}
        }
    }
}

impl Run<'_> {
    /// Moves the time; whatever a timer leads to is answered before the next one fires.
    fn wait_until(&mut self, time: Timestamp) {
        while let Some(due) = self.lab.next_due().filter(|due| *due <= time) {
            self.lab.advance_to(due, &mut self.tally);
            self.answer();
        }
        self.lab.advance_to(time, &mut self.tally);
    }

    fn publish(&mut self, event: &Event) {
        let taken = self.lab.publish(event, &mut self.tally);
        if taken.is_empty() {
            self.tally.ignored("no definition takes such an event");
        }
        for one in &taken {
            match one {
                Err(_) => self.tally.set_aside("schema_mismatch"),
                Ok((_, Taken::Ignored(why))) if why == crate::simulator::DUPLICATE => self.tally.ignored(why),
                Ok(_) => {}
            }
        }
        self.answer();
    }

    fn answer(&mut self) {
        for _ in 0..MOST_ANSWERS {
            let Some((key, item)) = self.tally.next_open() else { return };
            if let Some(input) = self.reply(&key, &item) {
                self.lab.take(&key, &input, &mut self.tally);
            }
        }
    }

    fn reply(&self, key: &InstanceKey, item: &WorkItem) -> Option<Input> {
        let asked = self.lab.entry(key)?.asked_as(item.work.tag()?.as_str())?;
        let awaits_event = self
            .lab
            .programs()
            .of(&key.saga)
            .is_some_and(|program| responses::awaits_event(program.as_ref(), item));
        self.answers.answer(asked, awaits_event, self.lab.now())
    }
}

#[cfg(test)]
mod tests;
