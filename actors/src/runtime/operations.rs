//! Operations on stored instances: migration plans, replay, redrive of dead letters, and purge.

use std::collections::BTreeMap;

use orlog_bus::Error as BusError;
use orlog_engine::{DecisionContext, MigrationPlan, plan_migration};
use orlog_model::{
    Change, ControlRequest, DeadLetter, DeadLetterOriginal, Input, Instance, InstanceKey,
    InstanceReplacement, JobClaimUpdate, JobLogAppend, SagaName, Status, TenantId, Timestamp,
};
use orlog_program::Program;
use orlog_store::{Error, InstanceQuery};
use uuid::Uuid;

use crate::instance::completion::{ControlError, ControlResult};
use crate::runtime::{Runtime, submit_change};

/// Maximum number of claims of jobs that one change stores.
const MAX_CLAIM_UPDATES: usize = 1000;

/// Migration plan of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMigration {
    /// Key of the instance.
    pub key: InstanceKey,
    /// State version of the instance. Pass it to [`Runtime::control`] with `ControlAction::Migrate`
    /// as `expected_version`, so that exactly the planned migration is applied.
    pub version: u64,
    /// The plan.
    pub plan: MigrationPlan,
}

/// What a redrive did with a dead letter.
#[derive(Clone, Debug)]
pub enum Redriven {
    /// Its input was delivered to its instance.
    Applied(ControlResult),
    /// Its message was published to the bus. The consequences follow later, and can be another dead
    /// letter.
    Published,
}

/// Migration of instances to another definition.
impl Runtime {
    /// Returns the migration plans to `to` of all active instances of a saga that use another
    /// definition. Changes nothing. Reads all instances of the saga.
    ///
    /// # Errors
    /// If a store cannot be read.
    pub fn plan_migration(
        &self,
        tenant: &TenantId,
        saga: &SagaName,
        to: &dyn Program,
    ) -> Result<Vec<PlannedMigration>, Error> {
        let mut planned = Vec::new();
        for shard in self.shards.all() {
            let mut query = InstanceQuery {
                tenant: tenant.clone(),
                saga: Some(saga.clone()),
                statuses: Status::ALL
                    .into_iter()
                    .filter(|status| !status.is_final())
                    .collect(),
                ..InstanceQuery::default()
            };

            loop {
                let page = shard.reader.instances(&query)?;
                for found in page.items {
                    if found.instance.definition.hash != to.definition_ref().hash {
                        planned.push(self.planned_for(found.key, &found.instance, to));
                    }
                }

                query.cursor = page.next;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(planned)
    }

    /// Returns the migration plan of one instance to `to`. Changes nothing. Returns `None` if
    /// another process owns its shard.
    #[must_use]
    pub fn plan_instance_migration(
        &self,
        key: InstanceKey,
        instance: &Instance,
        to: &dyn Program,
    ) -> Option<PlannedMigration> {
        self.shards
            .owner_of(&key)
            .map(|_| self.planned_for(key, instance, to))
    }

    fn planned_for(
        &self,
        key: InstanceKey,
        instance: &Instance,
        to: &dyn Program,
    ) -> PlannedMigration {
        let plan = match self.shared.programs.by_hash(&instance.definition.hash) {
            None => MigrationPlan::Blocked(vec![
                "the definition of the instance is not loaded".to_owned(),
            ]),
            Some(program) => {
                let subject = DecisionContext {
                    key: &key,
                    instance: Some(instance),
                    program: program.as_ref(),
                    now: self.shared.clock.now(),
                    node: &self.shared.node,
                    buffered: &[],
                    // A plan stores no history.
                    history_payload_bytes: 0,
                };
                plan_migration(&subject, to)
            }
        };

        PlannedMigration {
            version: instance.version,
            key,
            plan,
        }
    }
}

/// Replay and redrive.
impl Runtime {
    /// Returns the maximum size of each payload in the history, in bytes.
    #[must_use]
    pub fn history_payload_bytes(&self) -> usize {
        self.shared.limits.history_payload_bytes
    }

    /// Replaces an instance, which must have the expected version of the request (0: it does not
    /// exist) and must not be paused. Returns when the change is durable.
    ///
    /// # Errors
    /// If the instance has another version, or its shard is unavailable.
    pub async fn replace_instance(
        &self,
        replacement: InstanceReplacement,
        control: ControlRequest,
    ) -> Result<ControlResult, ControlError> {
        let key = replacement.key.clone();
        let change = Change::Replace(Box::new(replacement));
        self.deliver(&key, Input::Control(control), Some(change))
            .await
    }

    /// Delivers an input to one instance, as if it came from the bus.
    ///
    /// # Errors
    /// If the input was dead-lettered, or the shard is unavailable.
    pub async fn deliver_again(
        &self,
        key: &InstanceKey,
        input: Input,
    ) -> Result<ControlResult, ControlError> {
        self.deliver(key, input, None).await
    }

    /// Redrives a dead letter: an input goes to its instance, a message to the bus. The commit that
    /// stores the result removes the dead letter; if it fails again, there is a new dead letter.
    ///
    /// # Errors
    /// As [`Runtime::control`]; [`ControlError::DeadLettered`] if it failed again.
    pub async fn redrive(&self, dead_letter: DeadLetter) -> Result<Redriven, ControlError> {
        let drop_dead_letter = Change::DropDeadLetter {
            tenant: dead_letter.tenant.clone(),
            id: dead_letter.id,
        };

        match (dead_letter.original, dead_letter.instance) {
            (DeadLetterOriginal::Input(input), Some(key)) => {
                let result = self.deliver(&key, *input, Some(drop_dead_letter)).await?;
                Ok(Redriven::Applied(result))
            }
            (DeadLetterOriginal::Input(input), None) => {
                self.republish(*input, drop_dead_letter).await
            }
            (
                DeadLetterOriginal::Message {
                    subject,
                    headers,
                    payload,
                },
                _,
            ) => {
                let message = orlog_bus::Message {
                    subject,
                    id: None,
                    headers,
                    payload: payload.into(),
                };
                self.publish_and(message, drop_dead_letter).await
            }
        }
    }

    async fn republish(&self, input: Input, change: Change) -> Result<Redriven, ControlError> {
        let Input::Event(event) = input else {
            return Err(ControlError::DeadLettered(
                "only events can be redriven without an instance".to_owned(),
            ));
        };

        let subject = orlog_bus::codec::subject_with_kind(&event, self.submitted_event_kind);
        let message = orlog_bus::Message {
            id: None,
            ..orlog_bus::codec::encode(&event, subject)
        };
        // The event was accepted before it became a dead letter.
        let message = self.shared.bus.vouch(message, self.shared.clock.now());
        self.publish_and(message, change).await
    }

    /// Publishes the message and removes the dead letter from all shards, because that of a
    /// key-sharded tenant may be in any shard.
    async fn publish_and(
        &self,
        message: orlog_bus::Message,
        change: Change,
    ) -> Result<Redriven, ControlError> {
        self.shared
            .bus
            .publish(vec![message.into()])
            .await
            .map_err(|error| match error {
                // The bus will not accept it later either, so a retry by the caller is useless.
                BusError::TooLarge { .. } | BusError::InvalidSubject { .. } => {
                    ControlError::DeadLettered(error.to_string())
                }
                BusError::Full(_) | BusError::Unavailable(_) | BusError::InUse(_) => {
                    ControlError::Unavailable
                }
            })?;

        self.apply_to_all_shards(&change).await?;
        Ok(Redriven::Published)
    }
}

/// Purge of data after its retention, in small changes and never of a live instance.
impl Runtime {
    /// Purges an ended instance at this version, or a bounded part of its history; returns when the
    /// change is durable. Returns `false` without a change if the instance is live.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_instance(
        &self,
        key: InstanceKey,
        version: u64,
    ) -> Result<bool, ControlError> {
        self.commit_purge(&key.clone(), Change::PurgeInstance { key, version })
            .await
    }

    /// Purges tasks of a purged instance; otherwise as [`Runtime::purge_instance`].
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_tasks(
        &self,
        instance: InstanceKey,
        tasks: Vec<Uuid>,
    ) -> Result<bool, ControlError> {
        self.commit_purge(&instance.clone(), Change::PurgeTasks { instance, tasks })
            .await
    }

    /// Purges a dead letter of a shard.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn purge_dead_letter(
        &self,
        shard: u16,
        tenant: TenantId,
        id: Uuid,
    ) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit_change(&shard, Change::DropDeadLetter { tenant, id }).await
    }

    /// Appends lines to the job log of an instance; returns when they are durable. Appends to one
    /// instance must follow each other.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn append_job_log(&self, append: JobLogAppend) -> Result<(), ControlError> {
        let shard = self
            .shards
            .owner_of(&append.instance)
            .ok_or(ControlError::Unavailable)?;
        submit_change(&shard, Change::AppendJobLog(Box::new(append))).await
    }

    /// Stores or deletes claims of jobs, with few changes for each shard. Returns those of shards
    /// that are not available.
    pub async fn update_job_claims(&self, updates: Vec<JobClaimUpdate>) -> Vec<JobClaimUpdate> {
        let mut by_shard: BTreeMap<u16, Vec<JobClaimUpdate>> = BTreeMap::new();
        let mut failed = Vec::new();
        for update in updates {
            match self.shards.owner_of(&update.instance) {
                Some(shard) => by_shard.entry(shard.index).or_default().push(update),
                None => failed.push(update),
            }
        }

        for (shard, updates) in by_shard {
            for part in updates.chunks(MAX_CLAIM_UPDATES) {
                let is_stored = match self.shards.get(shard) {
                    Some(running) => {
                        let change = Change::UpdateJobClaims(part.to_vec());
                        submit_change(&running, change).await.is_ok()
                    }
                    None => false,
                };
                if !is_stored {
                    failed.extend_from_slice(part);
                }
            }
        }
        failed
    }

    /// Removes old commits from the change feed of a shard, as [`Change::TrimFeed`] does.
    ///
    /// # Errors
    /// If the shard is unavailable.
    pub async fn trim_feed(
        &self,
        shard: u16,
        before: Timestamp,
        max_commits: u64,
    ) -> Result<(), ControlError> {
        let shard = self.shards.get(shard).ok_or(ControlError::Unavailable)?;
        submit_change(
            &shard,
            Change::TrimFeed {
                before,
                retained_commits: max_commits,
            },
        )
        .await
    }

    async fn commit_purge(&self, key: &InstanceKey, change: Change) -> Result<bool, ControlError> {
        let shard = self.shards.owner_of(key).ok_or(ControlError::Unavailable)?;
        match shard.registry.purge(key, change)? {
            Some(response) => response
                .await
                .unwrap_or(Err(ControlError::Unavailable))
                .map(|_| true),
            None => Ok(false),
        }
    }
}
