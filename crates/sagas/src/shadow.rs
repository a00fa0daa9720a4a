//! Shadows: a candidate definition, compared with the recorded instances of the live definition.
//!
//! A shadow is an instance of a built-in saga, so its counts and differences are durable, and the
//! owner of its shard continues it after a restart or a takeover. The program only decides what is
//! next: it requests each page as an effect ([`PAGE_EFFECT`]), which compares the instances of one
//! shard that ended since the previous page. The correlation id of a shadow is the name of its
//! saga, so a saga has at most one; a new shadow is a new run of the ended one.

mod page;
mod program;
mod spec;
mod state;

pub use page::{KindOutcome, PageOutcome, PageRequest, PageTask, Position};
pub use program::{ShadowSaga, program};
pub use spec::{
    CandidateSource, DEFAULT_DURATION, DefinitionId, MAX_DURATION, MAX_INSTANCES, MAX_SOURCE_BYTES,
    ShadowSpec,
};
pub use state::{DifferenceKind, ShadowState, ShadowStatus};

use orlog_model::InstanceKey;

use crate::page::{PageNames, PageSaga};
use orlog_program::NativeProgram;

/// Name of the saga of shadows.
pub const SAGA: &str = "orlog.shadow";
/// Name of the saga that requests a page in another shard.
pub const PAGE_SAGA: &str = "orlog.shadow.page";
/// Effect that compares one page of instances in the shard of the requesting instance.
pub const PAGE_EFFECT: &str = "orlog.shadow.page";
/// Start event of a shadow; its data is a [`ShadowSpec`].
pub const START: &str = "orlog.shadow.start";
/// Signal that stops a shadow.
pub const STOP: &str = "orlog.shadow.stop";
/// Signal that ends a shadow after the deployment of its candidate.
pub const PROMOTED: &str = "orlog.shadow.promoted";

/// Names of the pages of shadows.
const PAGES: PageNames = PageNames {
    saga: PAGE_SAGA,
    effect: PAGE_EFFECT,
    start: "orlog.shadow.page.start",
    end: "orlog.shadow.page.ended",
};

/// Returns the program of pages in another shard.
#[must_use]
pub fn page_program() -> NativeProgram<PageSaga> {
    PAGES.program()
}

/// Returns the shadow of an instance that requests a page: the instance itself, or its parent.
#[must_use]
pub fn shadow_of<'a>(
    own: &'a InstanceKey,
    parent: Option<&'a InstanceKey>,
) -> Option<&'a InstanceKey> {
    PAGES.owner(SAGA, own, parent)
}

#[cfg(test)]
mod tests;
