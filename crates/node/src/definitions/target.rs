//! Target of a deployment: the definitions that it activates.

use orlog_model::DeployedSchedule;

use super::{LoadedDefinition, ValidatedDefinitions};

/// Target set of active definitions.
pub(super) enum TargetDefinitions {
    /// Validated new definitions.
    Validated(ValidatedDefinitions),
    /// The currently active definitions.
    Active(Vec<LoadedDefinition>),
}

impl TargetDefinitions {
    /// Returns the schedules; `None` if those of the deployment stay.
    pub(super) fn schedules(&self) -> Option<&[DeployedSchedule]> {
        match self {
            Self::Validated(checked) => Some(&checked.schedules),
            Self::Active(_) => None,
        }
    }

    /// Returns the definitions.
    pub(super) fn definitions(&self) -> &[LoadedDefinition] {
        match self {
            Self::Validated(ValidatedDefinitions { definitions, .. })
            | Self::Active(definitions) => definitions,
        }
    }

    /// Returns the definitions.
    pub(super) fn into_definitions(self) -> Vec<LoadedDefinition> {
        match self {
            Self::Validated(ValidatedDefinitions { definitions, .. })
            | Self::Active(definitions) => definitions,
        }
    }
}
