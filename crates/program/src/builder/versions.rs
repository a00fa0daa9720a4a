//! Builder of the schema versions of an effect.

use super::action::StepAction;
use crate::steps::Action;
use crate::versions::VersionSpec;

impl StepAction {
    /// Sets the schema version of the data of an effect. Default: 1.
    #[must_use]
    pub fn version(self, version: u32) -> Self {
        self.set("version", |action, _| {
            let Action::Effect(effect) = action else {
                return false;
            };
            effect.version = Some(version);
            true
        })
    }

    /// Sets the accepted schema versions of the response of an effect. Default: all, without
    /// conversion.
    #[must_use]
    pub fn responses(self, responses: VersionSpec) -> Self {
        self.set("responses", |action, _| {
            let Action::Effect(effect) = action else {
                return false;
            };
            effect.responses = Some(responses);
            true
        })
    }
}
