//! Replay of instances: replaces an instance by the state that replayed inputs produce.

use orlog_model::{Change, ControlRequest, Input, InstanceKey, InstanceReplacement};

use crate::runtime::control_result::{ControlError, ControlResult};
use crate::runtime::handle::Runtime;

impl Runtime {
    /// Replaces an instance, which must have the expected version of the request (0: it does not exist) and
    /// must not be paused. Returns when the change is durable.
    ///
    /// # Errors
    /// If the instance has another version, or its shard is unavailable.
    pub async fn replace_instance(
        &self,
        replacement: InstanceReplacement,
        control: ControlRequest,
    ) -> Result<ControlResult, ControlError> {
        let key = replacement.key.clone();
        let change = Change::Replace(Box::new(replacement));
        self.deliver(&key, Input::Control(control), Some(change)).await
    }

    /// Delivers an input to one instance, as if it came from the bus.
    ///
    /// # Errors
    /// If the input was dead-lettered, or the shard is unavailable.
    pub async fn deliver_again(
        &self,
        key: &InstanceKey,
        input: Input,
    ) -> Result<ControlResult, ControlError> {
        self.deliver(key, input, None).await
    }
}
