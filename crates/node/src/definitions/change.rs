//! What all changes of the definitions share: their locks, their errors, and the definitions and
//! pinned instances of the stores.

use orlog_actors::{ControlError, Runtime};
use orlog_model::{DefinitionRef, Deployment, TenantId};
use orlog_store::{PinCounts, Reader};

use super::{DefinitionErrors, LoadedDefinition};

/// Locks of changes that concern the definitions.
#[derive(Default)]
pub struct DefinitionLocks {
    /// Serializes deployments, garbage collections, migrations, replays and redrives.
    pub(crate) deploying: tokio::sync::Mutex<()>,
    /// Number of takeovers since the start. Held while definitions are stored in the shards and
    /// activated, and while a shard adopts them. Unlike `deploying` it is not held during scans, so
    /// that a takeover can wait for it; if a shard does not commit, the takeover fails after a time
    /// and is repeated.
    pub(crate) activating: tokio::sync::Mutex<u64>,
}

/// Reason why definitions were not deployed; the active ones stay.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The definitions are invalid and must be corrected.
    #[error(transparent)]
    Rejected(#[from] DefinitionErrors),
    /// The context would have too many definitions, or too large ones.
    #[error("{0}")]
    Limit(String),
    /// No directory exists to reload; the files must be sent.
    #[error(
        "this node has no definitions directory and no upstreams directory; send definitions with \
         `orlog deploy DIR`"
    )]
    NoDir,
    /// A shard is restarting; retry.
    #[error(transparent)]
    Shard(#[from] ControlError),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] orlog_store::Error),
    /// The servers of the cluster do not respond, so the deployment has no number; retry.
    #[error("the deployment got no number in the cluster: {0}")]
    Number(#[from] orlog_bus::Error),
    /// The target definition was dropped meanwhile; deploy it again.
    #[error("{} version {} no longer exists", .0.saga, .0.version)]
    Superseded(DefinitionRef),
    /// The process is shutting down.
    #[error("the process is shutting down")]
    ShuttingDown,
}

/// Returns the definitions of the stores and of one additional store.
pub(crate) fn stored_definitions(
    runtime: &Runtime,
    more: Option<&Reader>,
) -> Result<Vec<(DefinitionRef, Vec<u8>)>, orlog_store::Error> {
    let mut stored = more
        .map(Reader::definitions)
        .transpose()?
        .unwrap_or_default();
    for reader in runtime.readers() {
        stored.extend(reader.definitions()?);
    }

    // The shards store the same definitions.
    stored.sort_by_key(|(reference, _)| reference.hash);
    stored.dedup_by_key(|(reference, _)| reference.hash);
    Ok(stored)
}

/// Returns the numbers of instances by pinned definition, of one tenant or of all. Blocks.
///
/// # Errors
/// If a store cannot be read.
pub fn pins(
    readers: impl Iterator<Item = Reader>,
    tenant: Option<&TenantId>,
) -> Result<PinCounts, orlog_store::Error> {
    let mut pins = PinCounts {
        complete: true,
        ..PinCounts::default()
    };
    for reader in readers {
        pins.add(&reader.pin_counts(tenant)?);
    }
    Ok(pins)
}

/// Limits of the definitions of one context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextLimits {
    /// Maximum number of definitions, including retired ones with instances.
    pub(crate) definitions: usize,
    /// Maximum size of the sources of the active definitions, in bytes.
    pub(crate) source_bytes: u64,
}

impl ContextLimits {
    /// Checks the limits of a context. Retired definitions count while instances are pinned to
    /// them.
    ///
    /// # Errors
    /// [`DeployError::Limit`], with the remedy.
    pub(super) fn check(
        self,
        context: &TenantId,
        deployment: &Deployment,
        active: &[LoadedDefinition],
        pins: &PinCounts,
    ) -> Result<(), DeployError> {
        let is_retired = |hash: &[u8; 16]| {
            deployment
                .active()
                .all(|active| active.program.hash != *hash)
        };
        let pinned = deployment
            .definitions
            .iter()
            .filter(|one| is_retired(&one.program.hash));
        // A retired definition without instances is due for garbage collection, so it does not
        // count.
        let pinned = pinned
            .filter(|one| pins.by_hash.contains_key(&one.program.hash))
            .count();

        let count = active.len() + pinned;
        let limit = self.definitions;
        if count > limit {
            return Err(DeployError::Limit(format!(
                "the context {context} would have {count} definitions, {pinned} of them retired \
                 with instances, and limits.max_context_definitions is {limit}; deploy fewer \
                 files, or migrate or end the instances of retired ones"
            )));
        }

        let bytes: usize = active
            .iter()
            .filter_map(|one| one.source.as_ref())
            .map(|source| source.len())
            .sum();
        let limit = self.source_bytes;
        if bytes as u64 > limit {
            return Err(DeployError::Limit(format!(
                "the definitions of the context {context} would have {bytes} bytes, and \
                 limits.max_context_source_size is {limit} bytes; deploy fewer or smaller files"
            )));
        }

        Ok(())
    }
}

/// Returns whether a record activates the same definitions from the same files as the previous
/// record.
pub(crate) fn is_noop(current: Option<&Deployment>, record: &Deployment) -> bool {
    current.is_some_and(|old| {
        old.definitions_digest == record.definitions_digest
            && old.active().eq(record.active())
            && old.schedules == record.schedules
    })
}
