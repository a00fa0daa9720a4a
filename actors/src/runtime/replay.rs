//! Instances that took their inputs anew: what they would stand as comes in the place of what they stand as.

use orlog_model::{Change, Control, Input, InstanceKey, Replacement};

use crate::runtime::control::{ControlError, Controlled};
use crate::runtime::handle::Runtime;

impl Runtime {
    /// Replaces an instance, which must stand at the version that the instruction expects (0: it does not exist) and must not
    /// be paused. Returns when that is durable.
    ///
    /// # Errors
    /// When it has moved since, or its shard is not available.
    pub async fn replace(
        &self,
        replacement: Replacement,
        control: Control,
    ) -> Result<Controlled, ControlError> {
        let key = replacement.key.clone();
        let change = Change::Replace(Box::new(replacement));
        self.deliver(&key, Input::Control(control), Some(change)).await
    }

    /// Brings an input to one instance, as if it came from the bus.
    ///
    /// # Errors
    /// When it was set aside, or the shard is not available.
    pub async fn bring(&self, key: &InstanceKey, input: Input) -> Result<Controlled, ControlError> {
        self.deliver(key, input, None).await
    }
}
