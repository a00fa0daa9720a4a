//! The one boundary: a program is a pure function from (state, stimulus) to a transition.
//!
//! A program never reads a clock, draws a number, does I/O or iterates a hash map: the same state and stimulus always
//! give the same bytes. Its state is a snapshot that the runner stores and hands back; nothing is replayed.

use crate::compile::Compiled;
use crate::contract::{Context, Fault, Manifest, Migration, Reaction, Stimulus};
use orlog_model::{CorrelationId, Event, ProgramRef};

/// Every way to write a saga is a front-end of this trait.
pub trait Program: Send + Sync + 'static {
    /// Name, version and content hash.
    fn reference(&self) -> &ProgramRef;

    /// Which events it takes and which of them begin an instance.
    fn manifest(&self) -> &Manifest;

    /// The correlation id of an event that the manifest names. An event that carries a correlation id itself
    /// (`Event::correlation`) and for whose type the program states no other place, uses that.
    ///
    /// # Errors
    /// [`Fault::Schema`] when the event lacks the identifier or it is no valid one.
    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault>;

    /// Decides. `state` is `None` for an instance that does not exist yet; only an event named in
    /// [`Manifest::triggers`] as starting one may then lead to a transition.
    ///
    /// # Errors
    /// A [`Fault`]: the stimulus cannot be applied now or ever; the instance stays as it is.
    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault>;

    /// Makes a state of another program of the same saga a state of this one, as the author of this one says.
    ///
    /// # Errors
    /// Why the instance must stay with its program, one sentence for each obstacle.
    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        let (_, _, _) = (from, state, context);
        Err(vec!["this program cannot take over instances of others".to_owned()])
    }

    /// The program as a definition, where it was made from one.
    fn compiled(&self) -> Option<&Compiled> {
        None
    }

    /// A stored state in words, for people and queries, never for decisions. `None` where the program has no better
    /// words than the bytes, or cannot read them.
    fn show(&self, state: &[u8]) -> Option<serde_json::Value> {
        let _ = state;
        None
    }
}
