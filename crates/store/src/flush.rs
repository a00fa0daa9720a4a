//! Folding: the overlay becomes part of the tables on disk.
//!
//! One generation is put aside, written in key order in one durable transaction together with the position it reaches,
//! and forgotten; then the journal behind it is dropped. A crash in between repeats the whole or nothing: replay begins
//! behind the position that the tables state. Whoever needs room folds; a mutex lets one do it and the others wait.

use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::lock::lock;
use crate::shared::Shared;

impl Shared {
    /// Folds the generation that is put aside, if there is one.
    pub(crate) fn fold(&self) -> Result<(), Error> {
        let one_at_a_time = lock(&self.folding);
        let folded = self.fold_frozen();
        *lock(&self.fold_failure) = folded.as_ref().err().map(ToString::to_string);
        drop(one_at_a_time);
        self.noted(folded)
    }

    fn fold_frozen(&self) -> Result<(), Error> {
        let aside = |tables: &crate::merged::Tables| tables.frozen().cloned().zip(tables.disk().cloned());
        let Some((frozen, disk)) = self.read(|tables| Ok(aside(tables)))? else { return Ok(()) };
        let begun = Instant::now();
        disk.fold(&frozen)?;
        let position = frozen.heads().position;
        drop(frozen);
        let folded = self.change(|tables| Ok(tables.thaw()))?;
        self.folds.note(begun.elapsed());
        drop(folded);
        disk.truncate(position)
    }

    /// Folds everything there is.
    pub(crate) fn fold_all(&self) -> Result<(), Error> {
        for _ in 0..2 {
            self.fold()?;
            self.freeze()?;
        }
        Ok(())
    }

    /// Puts the active generation aside, unless one is.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.change(|tables| {
            tables.freeze();
            Ok(())
        })
    }

    /// Makes sure that the overlay has room for a group: when both generations are full, the commit waits for the fold.
    /// Says whether something new was put aside.
    pub(crate) fn make_room(&self) -> Result<bool, Error> {
        let mut aside = false;
        while self.read(|tables| Ok(self.is_full(tables)))? {
            self.fold()?;
            self.freeze()?;
            aside = true;
        }
        Ok(aside)
    }

    /// Puts the active generation aside if it is full and none is aside; says whether it did.
    pub(crate) fn freeze_if_full(&self) -> Result<bool, Error> {
        let due = self.read(|tables| Ok(self.is_full(tables) && tables.frozen().is_none()))?;
        if due {
            self.freeze()?;
        }
        Ok(due)
    }

    fn is_full(&self, tables: &crate::merged::Tables) -> bool {
        tables.disk().is_some() && tables.active().bytes() >= self.generation_bytes
    }

    /// Folds what was put aside, and what is old enough. The answer is when to look again, if nothing happens before.
    pub(crate) fn tend(&self) -> Result<Option<Instant>, Error> {
        let due =
            |tables: &crate::merged::Tables| tables.active().born().map(|born| born + self.generation_age);
        self.fold()?;
        if self.read(|tables| Ok(due(tables)))?.is_some_and(|due| due <= Instant::now()) {
            self.freeze()?;
            self.fold()?;
        }
        self.read(|tables| Ok(due(tables)))
    }
}

/// Tends the store until it is told to stop, which is when nobody can wake it any more.
pub(crate) fn run(shared: &Arc<Shared>, wake: &std::sync::mpsc::Receiver<()>) {
    use std::sync::mpsc::RecvTimeoutError;
    let mut at = None;
    loop {
        let pause =
            at.map_or(shared.generation_age, |at: Instant| at.saturating_duration_since(Instant::now()));
        if wake.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        at = shared.tend().unwrap_or_else(|error| {
            tracing::warn!(%error, "the tables could not be brought up to date; commits go on until the overlay is full");
            None
        });
    }
}
