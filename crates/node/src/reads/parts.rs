//! Parts of the node that reads use.

use std::sync::Arc;

use orlog_actors::{LocalShards, ProgramRegistry};
use orlog_model::Clock;

use crate::config::Config;
use crate::definitions::DefinitionSet;

/// Parts that the readers of the stores need to interpret what they read.
pub(crate) struct ReadParts {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shards: LocalShards,
    pub(crate) programs: Arc<ProgramRegistry>,
    pub(crate) definitions: Arc<DefinitionSet>,
}
