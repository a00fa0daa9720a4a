//! Size of the state of an instance: a transition to a state that is too large is rejected, and large
//! states take a limited part of each group commit.

use orlog_engine::Decision;
use orlog_model::{DeadLetterReason, Input};

use super::State;
use crate::telemetry::log_instance;

/// Maximum size of the states of one instance that wait for their commits, in bytes. One state may be larger.
const MAX_PENDING_STATE_BYTES: usize = 1 << 20;
/// Size below which a state is not large.
const LARGE_STATE_BYTES: usize = 16 << 10;

impl State {
    /// Decides an input. It becomes a dead letter if the state would grow beyond the limit.
    pub(super) fn decide_within_size(&self, input: &Input, attempts: u32) -> Decision {
        let decision = self.decide(input, attempts);
        let Decision::Commit(commit) = &decision else { return decision };
        let Some(size) = commit.instance.as_ref().map(|instance| instance.state.len()) else {
            return decision;
        };
        let limit = self.instances.context.limits.max_state_size;
        if size <= limit / 2 {
            return decision;
        }
        let current = self.state_size();
        if size > limit && size > current {
            let message = format!(
                "the state would have {size} bytes, and limits.max_state_size is {limit}; raise the limit, \
                 then redrive this dead letter"
            );
            return self.dead_letter(input, DeadLetterReason::StateTooLarge, message, attempts);
        }
        self.instances.context.metrics.large_states.inc();
        if current <= limit / 2 {
            log_instance!(
                WARN,
                self.mailbox.key,
                self.trace(),
                size,
                limit,
                "the state is now larger than half of limits.max_state_size"
            );
        }
        decision
    }

    /// Waits until the pending commits of a large instance are durable, so that other instances find place
    /// in the next group.
    pub(super) async fn limit_pending_state(&self) {
        let size = self.state_size();
        if size > LARGE_STATE_BYTES && size * (self.mailbox.pending() + 1) > MAX_PENDING_STATE_BYTES {
            self.mailbox.wait_durable().await;
        }
    }

    fn state_size(&self) -> usize {
        self.instance.as_ref().map_or(0, |instance| instance.state.len())
    }
}
