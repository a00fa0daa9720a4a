//! A part of a stream.

use std::ops::Range;

use orlog_model::Slots;

/// A range of slots, and what lies in it.
///
/// A message lies in its tenant's slot. That of a tenant that is spread lies in the slot of the instance that its subject
/// names, `workflow.<saga>.<correlation>`; where it names none, in the tenant's home slot. One whose subject names no tenant
/// that can be, lies with the default tenant. So every message lies in exactly one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which tenants are spread.
    pub slots: Slots,
    /// The slots of this part.
    pub range: Range<u16>,
}
