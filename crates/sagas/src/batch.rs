//! Batches: one instruction for all instances that match a filter, page by page.
//!
//! A batch is an instance of a built-in saga, so it has the guarantees of instances: its progress
//! is durable, and the owner of its shard continues it after a restart or a takeover. The program
//! only decides what is next: it requests each page as an effect ([`PAGE_EFFECT`]), whose result is
//! the next input. Effects of one batch follow each other.
//!
//! A page concerns the instances of one shard. For a shard that does not contain the batch, a child
//! saga in that shard requests the page.

mod page;
mod program;
mod spec;
mod state;

pub use page::{InstanceReason, PageOutcome, PageRequest, PageTask};
pub use program::{BatchSaga, program};
pub use spec::{BatchAction, BatchSpec, MAX_CANARY, MAX_ID_BYTES, MAX_RATE, Selection, check_id};
pub use state::{BatchState, BatchStatus};

use orlog_model::InstanceKey;

use crate::page::{PageNames, PageSaga};
use orlog_program::NativeProgram;

/// Name of the saga of batches.
pub const SAGA: &str = "orlog.batch";
/// Name of the saga that requests a page in another shard.
pub const PAGE_SAGA: &str = "orlog.batch.page";
/// Effect that reads or instructs one page of instances in the shard of the requesting instance.
pub const PAGE_EFFECT: &str = "orlog.batch.page";
/// Signal that creates a batch; its data is a [`BatchSpec`].
pub const CREATE: &str = "orlog.batch.create";
/// Signal that pauses a batch.
pub const PAUSE: &str = "orlog.batch.pause";
/// Signal that resumes a batch, or approves its canary.
pub const RESUME: &str = "orlog.batch.resume";
/// Signal that stops a batch.
pub const STOP: &str = "orlog.batch.stop";

/// Names of the pages of batches.
const PAGES: PageNames = PageNames {
    saga: PAGE_SAGA,
    effect: PAGE_EFFECT,
    start: "orlog.batch.page.start",
    end: "orlog.batch.page.ended",
};

/// Returns the program of pages in another shard.
#[must_use]
pub fn page_program() -> NativeProgram<PageSaga> {
    PAGES.program()
}

/// Returns the batch of an instance that requests a page: the instance itself, or its parent.
#[must_use]
pub fn batch_of<'a>(
    own: &'a InstanceKey,
    parent: Option<&'a InstanceKey>,
) -> Option<&'a InstanceKey> {
    PAGES.owner(SAGA, own, parent)
}

#[cfg(test)]
mod tests;
