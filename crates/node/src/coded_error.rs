//! Errors of the parts of a node as users receive them: with a code, and without secrets.
//!
//! The API makes problems of them, and the effects of built-in sagas record them in instances.

use orlog_actors::{ControlError, WorkObstacle};
use orlog_effect::ProviderError;
use orlog_engine::Rejection;

use crate::access::Outdated;
use crate::blocking::ShuttingDown;
use crate::error_code::Code;
use crate::peers::{NoIdentity, PeerError};
use crate::reads::PoolExhausted;
use crate::sagas::search::SearchError;

/// Error for users: what failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct CodedError {
    /// Code, which selects the remedy.
    pub code: Code,
    /// Details of this error. Names no file of the node.
    pub detail: String,
    /// Places of the errors in the request, if they are known.
    pub locations: Vec<ErrorLocation>,
}

/// One error and its place.
#[derive(Clone, Debug)]
pub struct ErrorLocation {
    /// JSON pointer into the body, or name of a parameter.
    pub pointer: String,
    /// Reason of the error.
    pub detail: String,
}

impl CodedError {
    /// Creates an error.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            locations: Vec::new(),
        }
    }

    /// Returns the error of something that exceeds a limit in bytes.
    #[must_use]
    pub fn too_large(found: &str, limit: u64) -> Self {
        Self::new(
            Code::TooLarge,
            format!("{found}; the limit is {limit} bytes"),
        )
    }

    /// Returns the error of a request about a shard that moves to another pod.
    #[must_use]
    pub fn moving() -> Self {
        Self::new(
            Code::Unavailable,
            "the shard is moving between pods; try again",
        )
    }

    /// Adds the places of the errors.
    #[must_use]
    pub fn at(mut self, locations: Vec<ErrorLocation>) -> Self {
        self.locations = locations;
        self
    }
}

impl From<orlog_store::Error> for CodedError {
    fn from(error: orlog_store::Error) -> Self {
        use orlog_store::Error;
        let code = match &error {
            Error::Full { .. } => Code::InsufficientStorage,
            Error::InvalidCursor { .. } => Code::BadParameter,
            Error::NoSuchTable { .. } => Code::TableNotFound,
            Error::FeedOffsetExpired { .. } => Code::CursorExpired,
            Error::FeedDisabled => Code::ExportDisabled,
            Error::Closed | Error::Cancelled | Error::Poisoned { .. } => Code::Unavailable,
            Error::Damaged { .. } => Code::DamagedTables,
            Error::DamagedJournal { .. } => Code::DamagedJournal,
            _ => Code::StoreError,
        };

        // The reason names files and rows of the node, which a user must not receive.
        if matches!(
            code,
            Code::StoreError | Code::DamagedTables | Code::DamagedJournal
        ) {
            tracing::error!(%error, "store read failed");
            return Self::new(code, "store read failed; see the server log");
        }

        Self::new(code, error.to_string())
    }
}

impl From<orlog_bus::Error> for CodedError {
    fn from(error: orlog_bus::Error) -> Self {
        use orlog_bus::Error;
        let code = match &error {
            Error::Full(_) => Code::InsufficientStorage,
            Error::TooLarge { .. } => Code::TooLarge,
            Error::InvalidSubject { .. } => Code::InvalidEvent,
            Error::InUse(_) | Error::Unavailable(_) => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ControlError> for CodedError {
    fn from(error: ControlError) -> Self {
        let code = match &error {
            ControlError::Rejected(Rejection::NotFound) => Code::InstanceNotFound,
            ControlError::Rejected(Rejection::VersionMismatch { .. }) => Code::VersionConflict,
            ControlError::Rejected(Rejection::WaitEnded { .. }) => Code::WaitEnded,
            ControlError::Rejected(Rejection::InvalidStatus { .. }) => Code::InvalidStatus,
            ControlError::Rejected(Rejection::Quarantined { .. }) => Code::InstanceQuarantined,
            ControlError::Rejected(Rejection::TaskNotFound { .. }) => Code::TaskNotFound,
            ControlError::Rejected(Rejection::TaskConflict { .. }) => Code::TaskConflict,
            ControlError::Rejected(Rejection::MigrationBlocked { .. }) => Code::MigrationBlocked,
            ControlError::Rejected(Rejection::Exists { .. }) => Code::InstanceExists,
            ControlError::Rejected(Rejection::KeyReused) => Code::KeyReused,
            ControlError::Rejected(Rejection::StartRejected { .. }) => Code::StartRejected,
            ControlError::DeadLettered(_) => Code::DeadLettered,
            ControlError::Unavailable => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SearchError> for CodedError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Store(error) => error.into(),
            error => Self::new(Code::BadParameter, error.to_string()),
        }
    }
}

impl From<PoolExhausted> for CodedError {
    fn from(error: PoolExhausted) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

impl From<WorkObstacle> for CodedError {
    fn from(obstacle: WorkObstacle) -> Self {
        let code = match obstacle {
            WorkObstacle::Draining => Code::Draining,
            WorkObstacle::StoreFull => Code::InsufficientStorage,
        };
        Self::new(code, obstacle.to_string())
    }
}

impl From<Outdated> for CodedError {
    fn from(error: Outdated) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

impl From<NoIdentity> for CodedError {
    fn from(error: NoIdentity) -> Self {
        PeerError::from(error).into()
    }
}

impl From<PeerError> for CodedError {
    fn from(error: PeerError) -> Self {
        let code = match &error {
            PeerError::NoIdentity(_) => Code::NoNodeIdentity,
            PeerError::Unknown(_) => Code::PeerNotFound,
            PeerError::Document { .. } => Code::InvalidNodeDocument,
            PeerError::NotSent { .. }
            | PeerError::NoResponse { .. }
            | PeerError::Rejected { .. }
            | PeerError::Invalid { .. } => Code::PeerRequestFailed,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ShuttingDown> for CodedError {
    fn from(error: ShuttingDown) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }
}

/// An effect whose error passes is attempted again.
impl From<CodedError> for ProviderError {
    fn from(error: CodedError) -> Self {
        let code = error.code.as_str();
        if error.code.is_transient() {
            Self::unavailable(code, error.detail)
        } else {
            Self::permanent(code, error.detail)
        }
    }
}
