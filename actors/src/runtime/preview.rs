//! Preview of an input: the decision about it, of which nothing is stored.

use orlog_engine::{Decision, DecisionContext, decide};
use orlog_model::{Input, Instance, InstanceKey};
use orlog_program::{ProgramError, budget};

use super::Runtime;

/// Reason why there is no decision about an input.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The instance cannot decide now.
    #[error("no definition of the instance is loaded")]
    NoDefinition,
    /// The decision would be a dead letter under this limit.
    #[error("the decision exceeds limits.max_transition_cost")]
    TooCostly,
    /// The data of an event select another instance.
    #[error("the data belong to the instance {found:?}, not to {expected:?}")]
    OtherInstance {
        /// Instance that the data select.
        found: String,
        /// Instance of the input.
        expected: String,
    },
    /// The data of an event select no instance.
    #[error(transparent)]
    Uncorrelated(#[from] ProgramError),
}

impl Runtime {
    /// Decides an input of an instance as its definition does, and changes nothing. The limits of
    /// the state and of attempts do not apply. Evaluates expressions, so that async code calls it
    /// on a blocking thread.
    ///
    /// # Errors
    /// See [`PreviewError`].
    pub fn preview(
        &self,
        key: &InstanceKey,
        instance: Option<&Instance>,
        input: &Input,
    ) -> Result<Decision, PreviewError> {
        let programs = &self.shared.programs;
        let program = match instance {
            Some(instance) => programs.by_hash(&instance.definition.hash),
            None => programs.active(&key.tenant, &key.saga),
        };
        let program = program.ok_or(PreviewError::NoDefinition)?;

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
                let found = program.correlate(event)?;
                if found != key.correlation {
                    return Err(PreviewError::OtherInstance {
                        found: found.to_string(),
                        expected: key.correlation.to_string(),
                    });
                }
            }
            Ok(decide(&context, input))
        });

        match decided {
            Ok(metered) => metered.value,
            Err(_) => Err(PreviewError::TooCostly),
        }
    }
}
