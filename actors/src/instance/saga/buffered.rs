//! What an instance keeps until it begins or is resumed: read, applied oldest first, or dropped when its time is over.

use orlog_engine::{Decision, Kept, MAX_EARLY};
use orlog_model::{Commit, Input};
use ractor::ActorProcessingErr;

use super::State;
use crate::instance::completion::Done;
use crate::telemetry::about;

/// Kept inputs read at once after a resume.
const HELD_PAGE: usize = 64;

impl State {
    /// Reads what is kept for an instance that does not exist, numbers and all.
    pub(super) async fn load_early(&mut self) -> Result<(), ActorProcessingErr> {
        self.cell.durable().await;
        let rows = self.directory.context.reader.held(&self.cell.key, MAX_EARLY)?;
        let kept = |(number, input)| match input {
            Input::Early(early) => Some(Kept { number, id: early.input.id(), until: early.until }),
            _ => None,
        };
        self.early = rows.into_iter().filter_map(kept).collect();
        Ok(())
    }

    pub(super) fn expired(&mut self, numbers: &[u64]) {
        let context = &self.directory.context;
        context.metrics.early_expired.inc_by(numbers.len() as u64);
        let count = numbers.len();
        about!(
            INFO,
            self.cell.key,
            None,
            count,
            "dropped what came early: the instance did not begin in time"
        );
        self.early.retain(|kept| !numbers.contains(&kept.number));
    }

    /// Applies what was kept until the instance began or was resumed, oldest first.
    pub(super) async fn apply_held(&mut self) -> Result<(), ActorProcessingErr> {
        self.early.clear();
        loop {
            self.cell.durable().await;
            let page = self.directory.context.reader.held(&self.cell.key, HELD_PAGE)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            about!(DEBUG, self.cell.key, self.trace(), count = page.len(), last, "applying kept inputs");
            for (number, input) in page {
                self.apply_one_held(number, &input.unkept());
                // A program that broke down pauses its instance: the rest stays kept.
                if self.has_kept() {
                    return Ok(());
                }
            }
        }
    }

    fn apply_one_held(&mut self, number: u64, input: &Input) {
        let begun = self.begin();
        let mut commit = match self.decide(input, self.cell.deaths() + 1) {
            Decision::Commit(commit) | Decision::Ignore { clear: Some(commit), .. } => *commit,
            Decision::Ignore { clear: None, .. } | Decision::Refuse(_) => {
                Commit::empty(self.cell.key.clone(), self.directory.context.clock.now())
            }
        };
        commit.release.push(number);
        if commit.dead_letter.is_none() && !matches!(input, Input::Outcome(_) | Input::Timer(_)) {
            // Also where nothing came of it: it was taken.
            commit.applied = Some(input.id());
        }
        let decided = self.follow(&mut commit, input, begun);
        self.remember(&mut commit);
        self.cell.expect_commit(self.has_ended());
        self.submit(commit, decided, None, Done::Nothing);
    }
}
