//! Cost budget of one evaluation in units: an element read is one unit, and so is every 64 bytes of
//! text.
//!
//! CEL has no loops, but `map` in `map` over the data of an event, or over a long literal, could
//! take minutes and gigabytes. An evaluation that exceeds the budget fails, always at the same
//! position.
//!
//! The remaining units are a thread-local and not an argument: CEL calls a function with its CEL
//! arguments only, without the context of the evaluation, and clones and iterates values through
//! traits that have no context either. An evaluation never leaves its thread, except for
//! [`share_with_thread`], and runs in [`evaluate`], so nothing passes from one evaluation to the
//! next.
//!
//! An evaluation also spends the budget of its transition, if it has one (`budget.rs`).

use std::cell::Cell;

use cel::ExecutionError;
use cel::common::types::{CelBytes, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;

use crate::budget;
use crate::limits::MAX_EVALUATION_COST;

thread_local! {
    /// Remaining units; `None` once the budget was exceeded.
    static REMAINING_UNITS: Cell<Option<u32>> = const { Cell::new(Some(0)) };
    /// Units with which the evaluation started.
    static OPENED_UNITS: Cell<u32> = const { Cell::new(0) };
}

/// Evaluates one expression, or one template with all its expressions, with a full budget, or with
/// the rest of the budget of the transition if it is smaller. `step` is the place for errors.
pub(crate) fn evaluate<T>(step: Option<&str>, work: impl FnOnce() -> T) -> T {
    // A rest that exceeds `u32` is more than one evaluation may use.
    let of_transition = budget::remaining().and_then(|units| u32::try_from(units).ok());
    let opened = of_transition.map_or(MAX_EVALUATION_COST, |units| units.min(MAX_EVALUATION_COST));
    OPENED_UNITS.set(opened);
    REMAINING_UNITS.set(Some(opened));

    let value = work();
    budget::record(u64::from(spent_units()));
    budget::record_place(step, None);
    value
}

/// Records that the evaluation exceeded the rest of the budget of its transition.
pub(super) fn exceed_transition() {
    // The limit of the evaluation itself is an error of the expression only, as without a
    // transition.
    if OPENED_UNITS.get() < MAX_EVALUATION_COST {
        budget::exceed();
    }
}

/// Returns true if the budget was exceeded.
pub(super) fn is_exhausted() -> bool {
    REMAINING_UNITS.get().is_none()
}

/// Returns the units that the last evaluation used.
pub(super) fn spent_units() -> u32 {
    OPENED_UNITS.get() - REMAINING_UNITS.get().unwrap_or_default()
}

/// Runs work in another thread with the same budget; see [`with_stack`] for the reason.
pub(super) fn share_with_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // Thread-locals do not follow the work to another thread, so the units are copied there and
    // back.
    let remaining = REMAINING_UNITS.get();
    let (value, remaining) = with_stack(move || {
        REMAINING_UNITS.set(remaining);
        (work(), REMAINING_UNITS.get())
    });
    REMAINING_UNITS.set(remaining);
    value
}

/// Spends `units`; returns false, now and later, once the budget is exceeded.
pub(super) fn spend(units: usize) -> bool {
    // A number of units beyond `u32` counts as exceeded, like every later one.
    let rest = REMAINING_UNITS
        .get()
        .and_then(|remaining| remaining.checked_sub(u32::try_from(units).ok()?));
    REMAINING_UNITS.set(rest);
    rest.is_some()
}

/// Spends units as [`spend`], but returns an error.
pub(super) fn charge(units: usize) -> Result<(), ExecutionError> {
    if spend(units) {
        Ok(())
    } else {
        Err(exhausted_error())
    }
}

/// Returns the error of an exceeded budget; it is replaced by a message.
pub(super) fn exhausted_error() -> ExecutionError {
    ExecutionError::InternalError("the evaluation exceeds its cost budget".to_owned())
}

/// Returns the units of a text.
pub(super) fn text_cost(bytes: usize) -> usize {
    1 + bytes / 64
}

/// Spends the cost of a copy of the value.
pub(super) fn spend_copy(value: &dyn Val) -> bool {
    if let Some(string) = value.downcast_ref::<CelString>() {
        return spend(text_cost(string.inner().len()));
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        return spend(text_cost(bytes.inner().len()));
    }

    if let Some(list) = value.downcast_ref::<CelList>() {
        return spend(1) && list.inner().iter().all(|item| spend_copy(item.as_ref()));
    }
    if let Some(map) = value.downcast_ref::<CelMap>() {
        return spend(1)
            && map
                .inner()
                .iter()
                .all(|(key, item)| spend_copy(key.inner()) && spend_copy(item.as_ref()));
    }

    // JSON that is read in place is copied as a reference.
    let inner = value
        .downcast_ref::<CelOptional>()
        .and_then(CelOptional::option);
    spend(1) && inner.is_none_or(spend_copy)
}

/// Stack size: four times the need of the longest permitted operator chain in an unoptimized build.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// Runs work on a thread with a large stack and waits for it.
pub(super) fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        // Only touched pages of the stack use memory.
        let thread = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work);
        thread
            .expect("the system can start a thread")
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
