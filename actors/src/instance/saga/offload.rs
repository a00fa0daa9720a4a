//! Decision of an input within the cost budget of a transition: a light one on the thread of the
//! actor, a heavy one on the pool.
//!
//! Whether a decision is heavy is known when it exceeds the light budget. It is a pure function, so
//! the actor drops the result and runs it again from the start. One that exceeds the whole budget
//! makes its input a dead letter.

use std::sync::Arc;

use orlog_engine::{BufferedInputRef, Decision};
use orlog_model::{Input, Instance, Timestamp};
use orlog_program::budget::{self, Exceeded, Metered};

use crate::instance::mailbox::Mailbox;
use crate::instance::saga::state::{SagaDependencies, State};

/// Maximum cost of a decision on the thread of its actor, in units: some milliseconds.
pub(crate) const LIGHT_COST: u64 = 10_000;

/// Decision that leaves the thread of its actor, with all that it reads.
struct OffloadedDecision {
    mailbox: Arc<Mailbox>,
    shared: Arc<SagaDependencies>,
    instance: Option<Arc<Instance>>,
    early: Vec<BufferedInputRef>,
    now: Timestamp,
    input: Arc<Input>,
    attempts: u32,
}

impl OffloadedDecision {
    fn decide(&self) -> Result<Metered<Decision>, Exceeded> {
        let instance = self.instance.as_deref();
        let subject = self
            .shared
            .subject(&self.mailbox.key, instance, &self.early, self.now);
        budget::within(self.shared.live_limits.max_transition_cost(), || {
            subject.decide(&self.input, self.attempts)
        })
    }
}

impl State {
    /// Decides an input.
    pub(super) async fn decide(&self, input: &Arc<Input>, attempts: u32) -> Decision {
        let now = self.shared.clock.now();
        let limit = self.shared.live_limits.max_transition_cost();
        let heavy_sagas = self.shared.decisions.heavy_sagas();

        // A saga that was heavy before starts on the pool, so that its work is not done twice.
        if !heavy_sagas.is_heavy(self.saga_position) {
            let subject = self.subject_at(now);
            let light = budget::within(LIGHT_COST.min(limit), || subject.decide(input, attempts));
            match light {
                Ok(decided) => return decided.value,
                Err(exceeded) if limit <= LIGHT_COST => {
                    return subject.decide_too_costly(input, &exceeded, attempts);
                }
                Err(_) => heavy_sagas.record_heavy(self.saga_position),
            }
        }

        // Boxed, so that light decisions, which are almost all, have a small future.
        Box::pin(self.decide_on_pool(input, attempts, now)).await
    }

    async fn decide_on_pool(&self, input: &Arc<Input>, attempts: u32, now: Timestamp) -> Decision {
        let decision = OffloadedDecision {
            mailbox: Arc::clone(&self.mailbox),
            shared: Arc::clone(&self.shared),
            instance: self.instance.clone(),
            early: self.early.clone(),
            now,
            input: Arc::clone(input),
            attempts,
        };

        let tenant = &self.mailbox.key.tenant;
        let decided = self
            .shared
            .decisions
            .run(tenant, move || decision.decide())
            .await;

        match decided {
            Ok(decided) => {
                if decided.units <= LIGHT_COST {
                    let heavy_sagas = self.shared.decisions.heavy_sagas();
                    heavy_sagas.record_light(self.saga_position);
                }
                decided.value
            }
            Err(exceeded) => {
                let subject = self.subject_at(now);
                subject.decide_too_costly(input, &exceeded, attempts)
            }
        }
    }
}
