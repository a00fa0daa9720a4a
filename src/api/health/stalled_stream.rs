//! Streams whose reader does not advance, as a reason for a degraded bus.

use crate::api::context::ApiState;

/// Returns why a stream is not read further, with its name and position.
pub(super) fn reason(api: &ApiState) -> Option<String> {
    api.app.transport.read_failure()
}
