//! Preview of an input: the decision about it, of which nothing is stored.

use orlog_engine::{Decision, DecisionContext, decide};
use orlog_model::{Input, Instance, InstanceKey};
use orlog_program::budget;

use super::Runtime;

impl Runtime {
    /// Decides an input of an instance as its definition does, and changes nothing. The limits of
    /// the state and of attempts do not apply. Evaluates expressions, so that async code calls it
    /// on a blocking thread.
    ///
    /// # Errors
    /// A sentence for users, if no definition of the instance is loaded, the decision costs too
    /// much, or the data of an event belong to another instance.
    pub fn preview(
        &self,
        key: &InstanceKey,
        instance: Option<&Instance>,
        input: &Input,
    ) -> Result<Decision, String> {
        let programs = &self.shared.programs;
        let program = match instance {
            Some(instance) => programs.by_hash(&instance.definition.hash),
            None => programs.active(&key.tenant, &key.saga),
        };
        let program = program.ok_or("no definition of the instance is loaded")?;

        let context = DecisionContext {
            key,
            instance,
            program: program.as_ref(),
            now: self.shared.clock.now(),
            node: &self.shared.node,
            buffered: &[],
            // A preview stores no history.
            history_payload_bytes: 0,
        };
        let limit = self.shared.live_limits.max_transition_cost();
        let decided = budget::within(limit, || {
            if let Input::Event(event) = input {
                let found = program
                    .correlate(event)
                    .map_err(|error| error.to_string())?;
                if found != key.correlation {
                    return Err(format!(
                        "the data belong to the instance {found:?}, not to {:?}",
                        key.correlation
                    ));
                }
            }
            Ok(decide(&context, input))
        });

        decided.map_or_else(
            |_| Err("the decision exceeds limits.max_transition_cost".to_owned()),
            |metered| metered.value,
        )
    }
}
