//! Dead letters on their way back: an input to its instance, a message to the bus.

use orlog_model::{Change, DeadLetter, Input, Original, Status};

use crate::runtime::control::{ControlError, Controlled};
use crate::runtime::handle::Runtime;

impl Runtime {
    /// Sends a dead letter again: an input to its instance, a message to the bus. The letter goes in the commit that
    /// stores what became of it; where it fails again, there is a new letter.
    ///
    /// # Errors
    /// As [`Runtime::control`]; [`ControlError::SetAside`] when it failed again.
    pub async fn redrive(&self, letter: DeadLetter) -> Result<Controlled, ControlError> {
        let drop_letter = Change::DropDeadLetter { tenant: letter.tenant.clone(), id: letter.id };
        match (letter.original, letter.instance) {
            (Original::Input(input), Some(key)) => self.deliver(&key, *input, Some(drop_letter)).await,
            (Original::Input(input), None) => self.republish(*input, drop_letter).await,
            (Original::Message { subject, headers, payload }, _) => {
                let message = orlog_bus::Message { subject, id: None, headers, payload: payload.into() };
                self.publish_and(message, drop_letter).await
            }
        }
    }

    async fn republish(&self, input: Input, change: Change) -> Result<Controlled, ControlError> {
        let Input::Event(event) = input else {
            return Err(ControlError::SetAside(
                "only events can be sent again without an instance".to_owned(),
            ));
        };
        let subject = orlog_bus::codec::subject_under(&event, self.making.config.submitted_as);
        let message = orlog_bus::Message { id: None, ..orlog_bus::codec::encode(&event, subject) };
        self.publish_and(message, change).await
    }

    /// The letter of a tenant that is spread may lie in any shard, so it is dropped in all of them.
    async fn publish_and(
        &self,
        message: orlog_bus::Message,
        change: Change,
    ) -> Result<Controlled, ControlError> {
        self.bus.publish(vec![message]).await.map_err(|_| ControlError::Unavailable)?;
        self.change_everywhere(&change).await?;
        Ok(Controlled {
            applied: true,
            why: Some("published again".into()),
            version: 0,
            status: Status::Running,
            paused: false,
        })
    }
}
