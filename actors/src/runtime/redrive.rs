//! Redrive of dead letters: an input goes to its instance, a message to the bus.

use orlog_bus::Error as BusError;
use orlog_model::{Change, DeadLetter, DeadLetterOriginal, Input, Status};

use crate::runtime::control_result::{ControlError, ControlResult};
use crate::runtime::handle::Runtime;

impl Runtime {
    /// Redrives a dead letter: an input goes to its instance, a message to the bus. The commit that stores
    /// the result removes the dead letter; if it fails again, there is a new dead letter.
    ///
    /// # Errors
    /// As [`Runtime::control`]; [`ControlError::DeadLettered`] if it failed again.
    pub async fn redrive(&self, dead_letter: DeadLetter) -> Result<ControlResult, ControlError> {
        let drop_dead_letter =
            Change::DropDeadLetter { tenant: dead_letter.tenant.clone(), id: dead_letter.id };
        match (dead_letter.original, dead_letter.instance) {
            (DeadLetterOriginal::Input(input), Some(key)) => {
                self.deliver(&key, *input, Some(drop_dead_letter)).await
            }
            (DeadLetterOriginal::Input(input), None) => self.republish(*input, drop_dead_letter).await,
            (DeadLetterOriginal::Message { subject, headers, payload }, _) => {
                let message = orlog_bus::Message { subject, id: None, headers, payload: payload.into() };
                self.publish_and(message, drop_dead_letter).await
            }
        }
    }

    async fn republish(&self, input: Input, change: Change) -> Result<ControlResult, ControlError> {
        let Input::Event(event) = input else {
            return Err(ControlError::DeadLettered(
                "only events can be redriven without an instance".to_owned(),
            ));
        };
        let subject = orlog_bus::codec::subject_with_kind(&event, self.making.config.submitted_event_kind);
        let message = orlog_bus::Message { id: None, ..orlog_bus::codec::encode(&event, subject) };
        self.publish_and(message, change).await
    }

    /// Publishes the message and removes the dead letter from all shards, because that of a key-sharded
    /// tenant may be in any shard.
    async fn publish_and(
        &self,
        message: orlog_bus::Message,
        change: Change,
    ) -> Result<ControlResult, ControlError> {
        self.bus.publish(vec![message]).await.map_err(|error| match error {
            BusError::TooLarge { .. } | BusError::InvalidSubject { .. } => {
                ControlError::DeadLettered(error.to_string())
            }
            BusError::Full(_) | BusError::Unavailable(_) | BusError::InUse(_) => ControlError::Unavailable,
        })?;
        self.apply_to_all_shards(&change).await?;
        Ok(ControlResult {
            applied: true,
            reason: Some("published again".into()),
            version: 0,
            status: Status::Running,
            paused: false,
        })
    }
}
