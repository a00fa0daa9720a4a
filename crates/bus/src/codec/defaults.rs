//! The limits of messages, and what holds where an event does not say.

use orlog_model::{TenantId, Timestamp};

/// The largest message that is read or built, in bytes: subject, id, headers and body together.
pub const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// The longest `source`, `subject` and `causationid`, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;

/// What holds where an event does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The tenant that the subject or the `x-tenant-id` header vouches for: an event that names another one is refused.
    /// `None`: nobody vouches; the event names its tenant or belongs to the default one.
    pub tenant: Option<TenantId>,
    /// The time of an event that states none. For a delivery this is when it was published, so that decoding it again
    /// makes the same event.
    pub now: Timestamp,
}
