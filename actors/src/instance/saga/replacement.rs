//! Replacement of the state of an instance by a replay.

use std::sync::Arc;

use orlog_engine::Rejection;
use orlog_model::{Input, Instance};

use super::State;
use crate::runtime::control_result::ControlError;
use crate::shard::submission::Submission;

impl State {
    /// Replaces the state of the instance, unless the instance has changed since the replacement was
    /// created. Ends a quarantine: the replacement is complete, and nothing can have changed.
    pub(super) async fn replace(&mut self, input: &Input, to: Instance) {
        // The store replaces only the state that it has.
        self.mailbox.wait_durable().await;
        let expected = match input {
            Input::Control(control) => control.expected_version.unwrap_or_default(),
            _ => 0,
        };
        let actual = self.instance.as_ref().map_or(0, |instance| instance.version);
        let fits = self.quarantine.is_some() || actual == expected && !self.is_paused();
        if fits {
            self.reset(Some(to));
        }
        let Some(envelope) = self.mailbox.finish(usize::from(fits), self.has_ended()) else { return };
        let rejection = ControlError::from(Rejection::VersionMismatch { expected, actual });
        let done = envelope
            .completion
            .with_reply(|| if fits { Ok(self.control_result(true, None)) } else { Err(rejection) });
        match envelope.extra_change.filter(|_| fits) {
            Some(change) => {
                let mailbox = Some(Arc::clone(&self.mailbox));
                self.send(Submission { change, extra: None, done, mailbox, decided: None });
            }
            None => done.complete(),
        }
    }

    /// Continues with this state instead of the stored one; the caller submits the change of the store.
    pub(super) fn reset(&mut self, instance: Option<Instance>) {
        if self.quarantine.take().is_some() {
            self.instances.end_quarantine(&self.mailbox.key);
        }
        (self.instance, self.loaded, self.unbuffers) = (instance, true, false);
        self.early.clear();
        self.recent.clear();
    }
}
