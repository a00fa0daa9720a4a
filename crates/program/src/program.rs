//! Contract of programs: a program is a pure function from (state, input) to a transition.
//!
//! A program never reads a clock, generates random numbers, does I/O or iterates a hash map. The
//! same state and input always produce the same bytes. The state is a snapshot that the runner
//! stores and passes back; nothing is replayed.

use crate::compile::CompiledDefinition;
use crate::contract::{Context, Manifest, Migration, ProgramError, ProgramInput, ProgramOutput};
use crate::definition::Definition;
use orlog_model::{CorrelationId, DefinitionRef, Event, EventType};

/// Contract that every front-end for sagas implements.
pub trait Program: Send + Sync + 'static {
    /// Returns the saga name, the version and the content hash.
    fn definition_ref(&self) -> &DefinitionRef;

    /// Returns the event subscriptions and the start events.
    fn manifest(&self) -> &Manifest;

    /// Returns the named start event if the manifest has it; without a name, the first start event.
    fn start_event(&self, named: Option<&EventType>) -> Option<&EventType> {
        let mut starts = self
            .manifest()
            .subscriptions
            .iter()
            .filter(|event| event.starts);

        starts
            .find(|event| named.is_none_or(|named| *named == event.kind))
            .map(|event| &event.kind)
    }

    /// Returns the correlation id of an event that the manifest lists. If the program declares no
    /// other location for the event type, the correlation id in the envelope (`Event::correlation`)
    /// applies.
    ///
    /// # Errors
    /// [`ProgramError::SchemaMismatch`] if the event lacks the correlation id or the id is invalid.
    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError>;

    /// Returns whether the correlation id of this event type is that in the envelope. Then a
    /// publisher can choose it.
    fn correlates_by_envelope(&self, kind: &EventType) -> bool {
        let _ = kind;
        true
    }

    /// Applies one input. `state` is `None` if the instance does not exist yet; then only a start
    /// event in [`Manifest::subscriptions`] may lead to a transition.
    ///
    /// # Errors
    /// A [`ProgramError`] if the input cannot be applied now or ever; the instance does not change.
    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError>;

    /// Converts the state of another program of the same saga into a state of this program, by the
    /// migration rules of this program.
    ///
    /// # Errors
    /// The reasons why the instance cannot migrate, one sentence for each obstacle.
    fn migrate(
        &self,
        from: &dyn Program,
        state: &[u8],
        context: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        let _ = (from, state, context);
        Err(vec![
            "this program does not support migration of instances from other versions".to_owned(),
        ])
    }

    /// Returns the compiled definition if the program has one.
    fn as_compiled(&self) -> Option<&CompiledDefinition> {
        None
    }

    /// Returns the steps of the program for graphs, never for decisions. Default: the compiled
    /// definition.
    fn drawing(&self) -> Option<&Definition> {
        self.as_compiled().map(CompiledDefinition::definition)
    }

    /// Returns a description of the program that nodes store, so that they can explain how a later
    /// one differs under the same version. `None` if the program has a source, or nothing to
    /// compare.
    fn record(&self) -> Option<Vec<u8>> {
        None
    }

    /// Returns how this program differs from a record of [`Program::record`]; `None` if it is no
    /// record, or is equal.
    fn difference(&self, record: &[u8]) -> Option<String> {
        let _ = record;
        None
    }

    /// Returns a readable view of a stored state for display and queries, never for decisions.
    /// `None` if the program has no better view than the bytes, or cannot decode them.
    fn view_state(&self, state: &[u8]) -> Option<serde_json::Value> {
        let _ = state;
        None
    }
}
