//! Access to the registry: what this node knows of contexts, actors and peers, and their changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orlog_bus::embedded::JournalRegistry;
use orlog_bus::registry::{Registry, RegistryView};
use orlog_model::{ContextAddress, TenantId, Timestamp};
use orlog_store::DurablePosition;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::actor::Actor;
use super::context::Context;
use super::directory::{Directory, KeyOwner, RecordKind, Stored};
use super::member::Member;
use crate::auth::{ActorRights, Caller, Right, Roles, Signer, SignerKey, SignerKeys, TenantScope};

/// Time for which a node that cannot follow the registry decides by its last state.
const MAX_OUTDATED: Duration = Duration::from_secs(10);
/// Time to read the last changes of the registry before a message is rejected.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of attempts to change a record that other requests change at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Contexts and actors of a node.
pub struct AccessRegistry {
    registry: Arc<dyn Registry>,
    /// The registry of this node alone; `None` on NATS.
    local: Option<Arc<JournalRegistry>>,
    view: watch::Receiver<Arc<RegistryView>>,
    /// The last parsed view.
    parsed: RwLock<(Arc<RegistryView>, Arc<Directory>)>,
}

/// Error: this node could not follow the registry for too long, so that it does not know the
/// members of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node cannot reach the registry of contexts and actors; try again, or use another node"
)]
pub struct Outdated;

/// Error of a change.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The record has another revision.
    #[error("the record has another revision")]
    Conflict,
    /// Other requests changed the record with this key at each attempt.
    #[error("other requests change the record {0:?} constantly")]
    Contended(String),
    /// The registry is not available.
    #[error(transparent)]
    Registry(#[from] orlog_bus::Error),
}

/// Keys of the actors and peers of the registry, which have no rights but those that the contexts
/// grant.
impl SignerKeys for AccessRegistry {
    fn find(&self, key_id: &str) -> Option<SignerKey> {
        let directory = self.directory();
        let (owner, key) = directory.find_key(key_id)?;

        Some(SignerKey {
            signer: match owner {
                KeyOwner::Actor(id) => Signer::Actor(id.clone(), ActorRights::new([], [], [])),
                KeyOwner::Peer(name) => Signer::Peer(name.clone()),
            },
            public_key: *key.public_key.as_bytes(),
            not_before: Some(key.valid_from),
            not_after: key.valid_until,
            revoked_at: key.revoked_at,
        })
    }
}

impl AccessRegistry {
    /// Creates the access to a registry; `local` is the same one if it belongs to this node alone.
    pub fn new(registry: Arc<dyn Registry>, local: Option<Arc<JournalRegistry>>) -> Self {
        let view = registry.view();
        let current = Arc::clone(&view.borrow());
        let directory = Arc::new(Directory::of(&current, &Directory::default()));

        Self {
            registry,
            local,
            view,
            parsed: RwLock::new((current, directory)),
        }
    }

    /// Returns all contexts and actors, as this node knows them.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        let view = Arc::clone(&self.view.borrow());
        {
            // Each request reads the directory, and the registry changes rarely: readers do not
            // wait for each other.
            let parsed = self.parsed.read();
            if Arc::ptr_eq(&parsed.0, &view) {
                return Arc::clone(&parsed.1);
            }
        }

        let mut parsed = self.parsed.write();

        // Another request may have parsed the same view while this one waited for the lock.
        if !Arc::ptr_eq(&parsed.0, &view) {
            let directory = Arc::new(Directory::of(&view, &parsed.1));
            *parsed = (view, directory);
        }

        Arc::clone(&parsed.1)
    }

    /// Returns a receiver that changes with every change of a context or an actor.
    pub fn changes(&self) -> watch::Receiver<Arc<RegistryView>> {
        self.view.clone()
    }

    /// Returns the durable position of the registry; `None` if nothing was written.
    pub(crate) fn durable_position(&self) -> Option<DurablePosition> {
        self.registry.durable_position()
    }

    /// Returns the registry in the data directory; `None` on NATS.
    pub(crate) fn local(&self) -> Option<&JournalRegistry> {
        self.local.as_deref()
    }

    /// Gives a caller its roles in the context of a tenant. Without a record, nothing changes. A
    /// caller who is in no list loses its access to the tenant, except an administrator of the
    /// node.
    ///
    /// # Errors
    /// If the caller is a member, but the lists are outdated.
    pub fn enter(&self, caller: &mut Caller, tenant: &TenantId) -> Result<(), Outdated> {
        if caller.tenants == TenantScope::All && caller.roles.allow(Right::Admin) {
            return Ok(());
        }

        let directory = self.directory();
        let Some(stored) = directory.contexts.get(tenant) else {
            return Ok(());
        };

        // A record that cannot be read grants nothing.
        let granted = stored
            .value
            .as_ref()
            .map(|context| context.roles_of(caller))
            .unwrap_or_default();

        // The response to other callers must not depend on the existence of the context.
        if granted != Roles::default() {
            self.check_outdated()?;
        }

        caller.enter(tenant, granted);
        Ok(())
    }

    /// Returns whether the context of a tenant required signed events at a time. Of a record that a
    /// later release wrote, only this requirement is read, as it is now.
    #[must_use]
    pub fn requires_signed_events(&self, tenant: &TenantId, at: Timestamp) -> bool {
        let directory = self.directory();
        let Some(stored) = directory.contexts.get(tenant) else {
            return false;
        };
        match &stored.value {
            Some(context) => context.created_at <= at && context.at(at).require_signed_events,
            None => self.is_required_by(&Context::key(tenant)),
        }
    }

    fn is_required_by(&self, key: &str) -> bool {
        let view = self.view.borrow();
        let record = view
            .records
            .get(key)
            .and_then(|record| serde_json::from_str(&record.value).ok());
        record.is_some_and(|record: serde_json::Value| record["require_signed_events"] == true)
    }

    /// Gives a caller the roles that it had in the context of a tenant at a time, as
    /// [`Self::enter`] does now.
    pub fn enter_at(&self, caller: &mut Caller, tenant: &TenantId, at: Timestamp) {
        if caller.tenants == TenantScope::All && caller.roles.allow(Right::Admin) {
            return;
        }

        let directory = self.directory();
        let Some(stored) = directory.contexts.get(tenant) else {
            return;
        };

        let granted = stored
            .value
            .as_ref()
            .map(|context| context.at(at).roles_of(caller));
        caller.enter(tenant, granted.unwrap_or_default());
    }

    /// Waits until this node knows all changes that are durable now.
    ///
    /// # Errors
    /// If the registry is not available.
    pub async fn refresh(&self) -> Result<(), orlog_bus::Error> {
        self.registry.refresh().await
    }

    /// Returns the tenants whose contexts do not grant a right to a caller with access to all
    /// tenants.
    #[must_use]
    pub fn closed_to(&self, caller: &Caller, needed: Right) -> BTreeSet<TenantId> {
        // An outdated list counts as closed: a caller must not see a tenant because the node is
        // behind.
        let is_closed = |tenant: &TenantId| {
            let mut member = caller.clone();
            let entered = self.enter(&mut member, tenant);
            entered.is_err() || !member.tenants.contains(tenant) || !member.roles.allow(needed)
        };
        let directory = self.directory();

        directory
            .contexts
            .keys()
            .filter(|tenant| is_closed(tenant))
            .cloned()
            .collect()
    }

    /// Returns whether the lists of the context of a tenant accept messages of another context: a
    /// job needs a place in the executors, other messages one in any list. A tenant without a
    /// record accepts them if `without_record`. A rejection applies to all changes that were
    /// durable at the time of the call.
    ///
    /// # Errors
    /// If the sender is a member, but the lists are outdated, or if it is none and this node cannot
    /// read the last changes. The latter does not depend on the existence of the context.
    pub async fn accepts_messages(
        &self,
        tenant: &TenantId,
        sender: &ContextAddress,
        is_job: bool,
        without_record: bool,
    ) -> Result<bool, Outdated> {
        if self
            .lists_sender(tenant, sender, is_job)?
            .unwrap_or(without_record)
        {
            return Ok(true);
        }

        // The sender may have been added a moment ago at another pod; only a rejection by the
        // current lists is final.
        let refreshed = tokio::time::timeout(REFRESH_TIMEOUT, self.refresh()).await;
        if !matches!(refreshed, Ok(Ok(()))) {
            return Err(Outdated);
        }

        Ok(self
            .lists_sender(tenant, sender, is_job)?
            .unwrap_or(without_record))
    }

    /// Returns whether the known lists of a tenant accept messages of another context. `None`: the
    /// tenant has no record.
    ///
    /// # Errors
    /// If the sender is a member, but the lists are outdated.
    fn lists_sender(
        &self,
        tenant: &TenantId,
        sender: &ContextAddress,
        is_job: bool,
    ) -> Result<Option<bool>, Outdated> {
        let directory = self.directory();
        let Some(stored) = directory.contexts.get(tenant) else {
            return Ok(None);
        };

        let member = Member::Context(sender.clone());
        let is_member = stored.value.as_ref().is_some_and(|context| {
            context.executors.contains(&member)
                || !is_job
                    && context
                        .lists()
                        .iter()
                        .any(|(_, _, list)| list.contains(&member))
        });
        // Only an acceptance can be outdated: `accepts_messages` refreshes the lists before it
        // rejects.
        if is_member {
            self.check_outdated()?;
        }

        Ok(Some(is_member))
    }

    /// Returns the mail addresses of the actors in the lists of the context of a tenant.
    #[must_use]
    pub fn mail_addresses(&self, tenant: &TenantId) -> BTreeSet<String> {
        let directory = self.directory();
        let context = directory
            .contexts
            .get(tenant)
            .and_then(|stored| stored.value.as_ref());
        let members = context
            .into_iter()
            .flat_map(Context::lists)
            .flat_map(|(_, _, list)| list);
        let actors = members.filter_map(|member| match member {
            Member::Actor(id) => directory.actors.get(id)?.value.as_ref(),
            // These members have no record with addresses.
            Member::Context(_) | Member::Group(_) | Member::User(_) => None,
        });

        actors
            .flat_map(Actor::mail_addresses)
            .map(ToOwned::to_owned)
            .collect()
    }

    /// Returns an error if this node could not follow the registry for too long.
    fn check_outdated(&self) -> Result<(), Outdated> {
        // A member may have been removed meanwhile. A short interruption of the servers must not
        // deny all members.
        let outdated_since = self.view.borrow().outdated_since;
        if outdated_since.is_some_and(|since| since.elapsed() > MAX_OUTDATED) {
            Err(Outdated)
        } else {
            Ok(())
        }
    }

    /// Writes a record, or removes it, if it has the revision `seen` (0: there is no record).
    ///
    /// # Errors
    /// [`WriteError::Conflict`] if it has another one; [`WriteError::Registry`].
    pub async fn put<T: RecordKind>(
        &self,
        id: &T::Id,
        record: Option<T>,
        seen: u64,
    ) -> Result<Arc<Stored<T>>, WriteError> {
        let text = record
            .as_ref()
            .map(|record| serde_json::to_string(record).expect("a record is plain data"));

        // Compare-and-set: two administrators must not overwrite the changes of each other.
        let written = self.registry.put(&T::key(id), text, seen).await?;
        let stored = Stored {
            revision: written.ok_or(WriteError::Conflict)?,
            value: record,
        };
        Ok(Arc::new(stored))
    }

    /// Replaces a record by what `change` returns for the current one, again if another request
    /// changes it at the same time. With `None`, the record stays. Returns the record.
    ///
    /// # Errors
    /// The error of `change`; [`WriteError::Contended`], [`WriteError::Registry`].
    pub async fn update<T, E>(
        &self,
        id: &T::Id,
        mut change: impl FnMut(Option<&Stored<T>>) -> Result<Option<T>, E>,
    ) -> Result<Option<Arc<Stored<T>>>, E>
    where
        T: RecordKind,
        E: From<WriteError>,
    {
        for _ in 0..MAX_ATTEMPTS {
            let current = T::find(&self.directory(), id).cloned();
            let Some(next) = change(current.as_deref())? else {
                return Ok(current);
            };

            let seen = current.map_or(0, |stored| stored.revision);
            match self.put(id, Some(next), seen).await {
                // This node may not know the change of the other request yet.
                Err(WriteError::Conflict) => self.refresh().await.map_err(WriteError::from)?,
                written => return Ok(Some(written?)),
            }
        }
        Err(WriteError::Contended(T::key(id)).into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use async_trait::async_trait;
    use orlog_bus::Error;
    use orlog_bus::registry::Record;
    use orlog_model::ActorId;

    use super::*;

    /// What a refresh of the registry does.
    enum Refresh {
        /// This node reads the last changes.
        Reads(Arc<RegistryView>),
        Fails,
        Hangs,
    }

    /// Registry of which this node has read nothing yet.
    struct Behind {
        view: watch::Sender<Arc<RegistryView>>,
        refresh: Refresh,
    }

    #[async_trait]
    impl Registry for Behind {
        fn view(&self) -> watch::Receiver<Arc<RegistryView>> {
            self.view.subscribe()
        }

        fn durable_position(&self) -> Option<DurablePosition> {
            None
        }

        async fn refresh(&self) -> Result<(), Error> {
            match &self.refresh {
                Refresh::Reads(view) => {
                    self.view.send_replace(Arc::clone(view));
                    Ok(())
                }
                Refresh::Fails => Err(Error::Unavailable("a test".to_owned())),
                Refresh::Hangs => std::future::pending().await,
            }
        }

        async fn put(&self, key: &str, _: Option<String>, seen: u64) -> Result<Option<u64>, Error> {
            let Refresh::Reads(last) = &self.refresh else {
                return Ok(None);
            };
            Ok((seen == last.revision_of(key)).then_some(last.revision + 1))
        }
    }

    /// Updates an actor that another node has created meanwhile; returns the number of attempts.
    async fn update_attempts(refresh: Refresh) -> (usize, Result<u64, WriteError>) {
        let view = watch::Sender::default();
        let registry = AccessRegistry::new(Arc::new(Behind { view, refresh }), None);
        let mut attempts = 0;
        let updated = registry
            .update(&ActorId::new("robo").unwrap(), |_| {
                attempts += 1;
                Ok::<_, WriteError>(Some(Actor::new(Timestamp::from_millis(1))))
            })
            .await;
        let revision = updated.map(|stored| stored.expect("it was written").revision);
        (attempts, revision)
    }

    #[tokio::test]
    async fn update_reads_the_change_of_another_node_before_it_tries_again() {
        let actor = serde_json::to_string(&Actor::new(Timestamp::from_millis(0))).unwrap();
        let mut created = RegistryView::default();
        created.records.insert(
            "actor.robo".to_owned(),
            Record {
                revision: 7,
                value: actor.into(),
            },
        );
        created.revision = 7;

        let (attempts, updated) = update_attempts(Refresh::Reads(Arc::new(created))).await;
        assert_eq!(updated.expect("the second attempt has the revision"), 8);
        assert_eq!(attempts, 2);

        let (attempts, updated) = update_attempts(Refresh::Fails).await;
        assert!(matches!(updated, Err(WriteError::Registry(_))));
        assert_eq!(attempts, 1);
    }

    /// Asks a node that is behind whether a tenant accepts a job of the context `a@one`.
    async fn accepts(
        tenant: &str,
        executor: &str,
        refresh: fn(Arc<RegistryView>) -> Refresh,
    ) -> Result<bool, Outdated> {
        let mut context = Context::new(Timestamp::from_millis(1));
        context.executors.insert(executor.parse().unwrap());
        let value = serde_json::to_string(&context).unwrap().into();
        let key = Context::key(&TenantId::new("acme").unwrap());
        let records = BTreeMap::from([(key, Record { revision: 1, value })]);
        let stored = RegistryView {
            records,
            revision: 1,
            is_current: true,
            outdated_since: None,
        };
        let view = watch::Sender::new(Arc::new(RegistryView {
            is_current: true,
            ..RegistryView::default()
        }));
        let registry: Arc<dyn Registry> = Arc::new(Behind {
            view,
            refresh: refresh(Arc::new(stored)),
        });
        let access = AccessRegistry::new(registry, None);
        let (tenant, sender) = (TenantId::new(tenant).unwrap(), "a@one".parse().unwrap());
        access.accepts_messages(&tenant, &sender, true, false).await
    }

    /// Requirements: F6.
    #[tokio::test(start_paused = true)]
    async fn message_is_rejected_by_the_last_lists_or_not_at_all() {
        let (listed, other) = ("context:a@one", "context:other@one");
        assert_eq!(
            accepts("acme", listed, Refresh::Reads).await,
            Ok(true),
            "the context was just changed"
        );
        assert_eq!(accepts("acme", other, Refresh::Reads).await, Ok(false));
        assert_eq!(accepts("none", listed, Refresh::Reads).await, Ok(false));
        let faults: [fn(Arc<RegistryView>) -> Refresh; 2] =
            [|_| Refresh::Fails, |_| Refresh::Hangs];
        for refresh in faults {
            for tenant in ["acme", "none"] {
                assert_eq!(
                    accepts(tenant, listed, refresh).await,
                    Err(Outdated),
                    "the sender tries again"
                );
            }
        }
    }
}
