//! What one evaluation may cost, counted in units: an element gone through is one, and so is every 64 bytes of text.
//!
//! CEL has no loops, yet `map` in `map` over what an event carries, or over a long literal, would take minutes and gigabytes.
//! The functions of CEL's library know nothing of Orlog, so the account stands beside the evaluation, in its thread: an
//! evaluation never leaves it. What costs more than the account holds ends with an error, always at the same place.

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;

use crate::limits::MAX_EVALUATION;

thread_local! {
    /// What is left; `None` once it did not suffice.
    static LEFT: Cell<Option<u32>> = const { Cell::new(Some(0)) };
    /// How many accounts are open; only the outermost counts.
    static OPEN: Cell<u32> = const { Cell::new(0) };
}

/// The account of one evaluation. The evaluations within it, those of a template's parts, draw on the same.
#[must_use]
pub(crate) struct Account(());

impl Account {
    /// Opens it, full, or goes on with the one that is open.
    pub(crate) fn open() -> Self {
        if OPEN.get() == 0 {
            LEFT.set(Some(MAX_EVALUATION));
        }
        OPEN.set(OPEN.get() + 1);
        Self(())
    }
}

/// More was asked for than there was.
pub(super) fn is_spent() -> bool {
    LEFT.get().is_none()
}

/// What the evaluation that ended last took.
pub(super) fn used() -> u32 {
    MAX_EVALUATION - LEFT.get().unwrap_or_default()
}

/// Does it in another thread, where the account goes on; [`with_room`] says why.
pub(super) fn carried<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let left = LEFT.get();
    let (value, left) = with_room(move || {
        LEFT.set(left);
        (work(), LEFT.get())
    });
    LEFT.set(left);
    value
}

impl Drop for Account {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
    }
}

/// Takes `units`; false, now and for ever, once there are not enough.
pub(super) fn spend(units: usize) -> bool {
    let rest = LEFT.get().and_then(|left| left.checked_sub(u32::try_from(units).ok()?));
    LEFT.set(rest);
    rest.is_some()
}

/// As [`spend`], as an error.
pub(super) fn pay(units: usize) -> Result<(), ExecutionError> {
    if spend(units) { Ok(()) } else { Err(spent()) }
}

/// The error after which the evaluation is over; it is replaced by a sentence.
pub(super) fn spent() -> ExecutionError {
    ExecutionError::InternalError("the evaluation costs too much".to_owned())
}

/// The units of a text.
pub(super) fn text(bytes: usize) -> usize {
    1 + bytes / 64
}

/// Takes what a copy of the value costs. JSON read in place is copied as a reference.
pub(super) fn spend_copy(value: &dyn Val) -> bool {
    if let Some(string) = value.downcast_ref::<CelString>() {
        return spend(text(string.inner().len()));
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return spend(text(bytes.inner().len()));
    }
    if let Some(list) = value.downcast_ref::<CelList>() {
        return spend(1) && list.inner().iter().all(|item| spend_copy(item.as_ref()));
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        return spend(1)
            && map.inner().iter().all(|(key, item)| spend_copy(key.inner()) && spend_copy(item.as_ref()));
    }
    let held = value.downcast_ref::<CelOptional>().and_then(CelOptional::option);
    spend(1) && held.is_none_or(spend_copy)
}

/// Room for the longest chain of operators that is allowed, in a build without optimization four times over.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// Does it on a thread with room, and waits for it. Only what is touched of the stack is memory.
pub(super) fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread
            .expect("a thread can be started")
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
