//! Migrating: instances go on with another definition of their saga, as its author says, a page at a time.
//!
//! Each instance is moved by an instruction of its own, decided and recorded like any other, so nothing else waits meanwhile
//! and a run that breaks off is simply made again: what has moved already is left alone.

use std::sync::Arc;

use futures::StreamExt as _;
use orlog_actors::ControlError;
use orlog_engine::{Plan, Refusal};
use orlog_model::{Action, Control, EventId, Instance, InstanceKey};
use orlog_program::Program;

use super::App;
use super::deploy::DeployError;

/// Instructions under way at once: enough to fill a group of commits.
const AT_ONCE: usize = 64;

/// Where instances go.
#[derive(Clone)]
pub struct Move {
    /// The definition to go on with.
    pub to: Arc<dyn Program>,
    /// Who says so, for the record.
    pub by: String,
    /// Only find out what would become of each.
    pub dry_run: bool,
}

/// What became of an instance, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which one.
    pub key: InstanceKey,
    /// Whether it can go on, and how; why it must stay.
    pub plan: Plan,
    /// It goes by the new definition now.
    pub done: bool,
}

impl App {
    /// Moves instances that have not ended to another definition of their saga, or says what would become of each. Goes on to
    /// the end of the page even when whoever asked goes away.
    ///
    /// # Errors
    /// When a shard is not available; what has moved until then has moved, and the same call again goes on.
    pub async fn migrate(
        self: &Arc<Self>,
        instances: Vec<(InstanceKey, Instance)>,
        to: Move,
    ) -> Result<Vec<Moved>, DeployError> {
        let app = Arc::clone(self);
        let whole = tokio::spawn(async move {
            // No collection in between, which could drop the definition that they go to.
            let _alone = app.deploying.lock().await;
            if app.programs.pinned(&to.to.reference().hash).is_none() {
                return Err(DeployError::Dropped(to.to.reference().clone()));
            }
            let planned = Arc::clone(&app).planned(instances, &to).await?;
            if to.dry_run {
                return Ok(planned);
            }
            let moved = planned.into_iter().map(|planned| app.carry_over(planned, &to));
            let moved: Vec<_> = futures::stream::iter(moved).buffered(AT_ONCE).collect().await;
            moved.into_iter().collect::<Result<Vec<_>, _>>()
        });
        whole.await.unwrap_or(Err(DeployError::Ending))
    }

    async fn planned(
        self: Arc<Self>,
        instances: Vec<(InstanceKey, Instance)>,
        to: &Move,
    ) -> Result<Vec<Moved>, DeployError> {
        let to = Arc::clone(&to.to);
        let plan = move || {
            let planned = instances.into_iter().filter_map(|(key, instance)| {
                let planned = self.runtime.plan_one(key, &instance, to.as_ref())?;
                Some(Moved { key: planned.key, plan: planned.plan, done: false })
            });
            planned.collect()
        };
        tokio::task::spawn_blocking(plan).await.map_err(|_| DeployError::Ending)
    }

    /// Tells one instance to move. It may have gone on since it was looked at: what it says itself counts.
    async fn carry_over(&self, planned: Moved, to: &Move) -> Result<Moved, DeployError> {
        if matches!(planned.plan, Plan::Blocked(_)) {
            return Ok(planned);
        }
        let id = format!("migrate:{}", uuid::Uuid::now_v7());
        let control = Control {
            id: EventId::new(id).expect("an id of this form is short ASCII"),
            action: Action::Migrate { to: to.to.reference().hash },
            expected_version: None,
            at: self.clock.now(),
            by: Some(to.by.clone()),
            reason: None,
            trace: None,
        };
        match self.runtime.control(&planned.key, control).await {
            Ok(_) => Ok(Moved { done: true, ..planned }),
            Err(ControlError::Refused(Refusal::Blocked { reasons })) => {
                Ok(Moved { plan: Plan::Blocked(reasons), ..planned })
            }
            Err(error @ (ControlError::Refused(_) | ControlError::SetAside(_))) => {
                Ok(Moved { plan: Plan::Blocked(vec![error.to_string()]), ..planned })
            }
            Err(error @ ControlError::Unavailable) => Err(error.into()),
        }
    }
}
