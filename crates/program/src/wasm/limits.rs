//! Limits of modules and of their output; [`crate::limits`] has those that users see.

use crate::limits::MAX_PAYLOAD_BYTES;

/// Maximum number of elements of a table of a module.
pub(super) const MAX_TABLE_ELEMENTS: usize = 10_000;
/// Maximum number of local variables of a function of a module: a call clears them all at the cost
/// of one.
pub(super) const MAX_LOCALS: u64 = 1_000;
/// Maximum call depth of a module.
pub(super) const MAX_CALL_DEPTH: usize = 1_000;
/// Maximum number of stack cells of a module, 8 bytes each.
pub(super) const MAX_STACK_VALUES: usize = 256 * 1024;
/// Maximum length of the manifest of a module, in bytes.
pub(super) const MAX_MANIFEST_BYTES: usize = 64 * 1024;
/// Maximum length of the output of a module, in bytes: its state and its work.
pub(super) const MAX_MODULE_OUTPUT_BYTES: usize = 4 * MAX_PAYLOAD_BYTES;
/// Maximum number of work items, of timers and of waits in one output; also the maximum number of
/// names of one kind in a manifest.
pub(super) const MAX_TRANSITION_ITEMS: usize = 1_000;
/// Maximum length of a human-readable text in an output, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4 * 1024;
