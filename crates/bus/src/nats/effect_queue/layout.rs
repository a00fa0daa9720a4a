//! Operator change of the consumers of effects: replaces consumers that conflict with the tenants
//! of the effect nodes.
//!
//! A consumer is replaced only while no worker uses it: otherwise its jobs in flight would be
//! delivered a second time. Its successor starts after the ack floor, at or below which every job
//! is acknowledged. A command that an earlier filter passed is dispatched again by its saga node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Config, DeliverPolicy, FromConsumer as _, Info, pull};
use async_nats::jetstream::stream::Stream as StreamHandle;
use futures::TryStreamExt as _;
use orlog_model::{EffectName, TenantId};

use super::consumers::{
    PREFIX, TENANT, consumer_name, difference, filters_for, filters_of, is_complete, wanted,
};
use crate::Error;
use crate::effect_queue::JobSubscription;
use crate::nats::connection::{Connection, unavailable};
use crate::nats::filters::{covers, overlaps};
use crate::nats::{StreamDiff, WORKFLOW_COMMANDS};
use crate::subject::{decode_token, tenant_of};

/// Start of the filter of all tenants except the default one.
const ALL_TENANTS: &str = "tenant.*.";

/// Consumers that the effect nodes require.
#[derive(Clone, Debug)]
pub struct ConsumerLayout {
    /// Tenants of the effect nodes; `None`: all tenants.
    pub tenants: Option<Arc<BTreeSet<TenantId>>>,
    /// A job is redelivered to another worker if its worker sends nothing for this duration.
    pub ack_wait: Duration,
}

/// Existing consumers of one effect.
#[derive(Default)]
struct EffectConsumers {
    /// Consumer without a tenant in its name.
    shared: Option<Info>,
    /// Consumers of single tenants.
    of_tenants: Vec<Info>,
}

/// Compares the existing consumers of all effects with a layout, and changes them if `change` is
/// set.
///
/// # Errors
/// If the servers do not respond, or if this client may not read or change consumers.
pub async fn arrange_consumers(
    connection: &Connection,
    layout: &ConsumerLayout,
    change: bool,
) -> Result<Vec<StreamDiff>, Error> {
    let stream = connection
        .jetstream
        .get_stream_no_info(WORKFLOW_COMMANDS)
        .await
        .map_err(unavailable)?;

    let mut differences = Vec::new();
    for (effect, found) in find(&stream).await? {
        let arrangement = Arrangement {
            stream: &stream,
            layout,
            effect,
            change,
        };
        differences.extend(arrangement.settle(found).await?);
    }
    Ok(differences)
}

async fn find(stream: &StreamHandle<()>) -> Result<BTreeMap<EffectName, EffectConsumers>, Error> {
    let all: Vec<Info> = stream
        .consumers()
        .try_collect()
        .await
        .map_err(unavailable)?;

    let mut effects: BTreeMap<EffectName, EffectConsumers> = BTreeMap::new();
    for info in all {
        let Some(name) = info.name.strip_prefix(PREFIX) else {
            continue;
        };

        let token = name.split(TENANT).next().unwrap_or_default();
        let decoded = decode_token(token).ok();
        let Some(effect) = decoded.and_then(|name| EffectName::new(name.as_ref()).ok()) else {
            continue;
        };

        let has_tenant = name.contains(TENANT);
        let found = effects.entry(effect).or_default();
        if has_tenant {
            found.of_tenants.push(info);
        } else {
            found.shared = Some(info);
        }
    }
    Ok(effects)
}

/// Change of the consumers of one effect.
struct Arrangement<'a> {
    stream: &'a StreamHandle<()>,
    layout: &'a ConsumerLayout,
    effect: EffectName,
    change: bool,
}

impl Arrangement<'_> {
    async fn settle(&self, found: EffectConsumers) -> Result<Vec<StreamDiff>, Error> {
        let replaced = match &self.layout.tenants {
            None => self.gather(&found).await?,
            Some(served) => self.split(&found, served).await?,
        };
        // The settings of consumers to replace do not matter. A later call compares those of their
        // successors.
        if let Some(difference) = replaced {
            return Ok(vec![difference]);
        }

        let mut differences = Vec::new();
        for info in found.shared.iter().chain(&found.of_tenants) {
            differences.extend(self.update(info).await?);
        }
        Ok(differences)
    }

    /// Replaces the consumers of lists of tenants by one of all tenants.
    async fn gather(&self, found: &EffectConsumers) -> Result<Option<StreamDiff>, Error> {
        let wanted_filters = filters_for(&self.effect, None);
        let shared = found.shared.as_ref();
        let is_shared_complete =
            shared.is_some_and(|info| is_complete(&filters_of(&info.config), &wanted_filters));

        if found.of_tenants.is_empty() && is_shared_complete {
            return Ok(None);
        }

        let all: Vec<&Info> = shared.into_iter().chain(&found.of_tenants).collect();
        let difference = self.difference("the effect nodes execute it for all tenants", &all);
        if !self.may_replace(&difference) {
            return Ok(Some(difference));
        }

        match shared {
            Some(info) => {
                let config = Config {
                    filter_subject: String::new(),
                    filter_subjects: wanted_filters,
                    ..info.config.clone()
                };
                self.put(config).await?;
            }
            // The lowest floor of all consumers: no job is skipped. One that was executed has a
            // result and is only acknowledged again.
            None => self.create(None, ack_floor(&all)).await?,
        }
        for info in &found.of_tenants {
            self.delete(&info.name).await?;
        }
        Ok(Some(difference))
    }

    /// Replaces a consumer that delivers jobs of tenants of the nodes and of other tenants by one
    /// for each tenant.
    async fn split(
        &self,
        found: &EffectConsumers,
        served: &BTreeSet<TenantId>,
    ) -> Result<Option<StreamDiff>, Error> {
        let Some(shared) = &found.shared else {
            return Ok(None);
        };
        let filters = filters_of(&shared.config);
        let mut served_filters = Vec::new();
        for tenant in served {
            served_filters.extend(filters_for(&self.effect, Some(tenant)));
        }
        let is_served = filters
            .iter()
            .all(|filter| served_filters.iter().any(|own| covers(own, filter)));
        let is_used = filters
            .iter()
            .any(|filter| served_filters.iter().any(|own| overlaps(own, filter)));
        if is_served || !is_used {
            return Ok(None);
        }

        let difference = self.difference("the effect nodes execute it for a list", &[shared]);
        if !self.may_replace(&difference) {
            return Ok(Some(difference));
        }

        let floor = ack_floor(&[shared]);
        // The successors exist before the consumer is deleted: no command is left without one.
        for tenant in self.successors(&filters, served) {
            let name = consumer_name(&self.effect, Some(&tenant));
            if !found.of_tenants.iter().any(|info| info.name == name) {
                self.create(Some(tenant), floor).await?;
            }
        }
        self.delete(&shared.name).await?;
        Ok(Some(difference))
    }

    /// Returns the tenants whose jobs the filters deliver: those of the nodes, and those that the
    /// filters name.
    fn successors(&self, filters: &[String], served: &BTreeSet<TenantId>) -> BTreeSet<TenantId> {
        let is_delivered = |tenant: &TenantId| {
            let own = filters_for(&self.effect, Some(tenant));
            own.iter()
                .any(|own| filters.iter().any(|filter| covers(filter, own)))
        };

        let named = filters
            .iter()
            .filter(|filter| !filter.starts_with(ALL_TENANTS))
            .filter_map(|filter| tenant_of(filter).ok())
            .filter(is_delivered);
        let served = served.iter().filter(|tenant| is_delivered(tenant));
        named.chain(served.cloned()).collect()
    }

    /// Applies the settings of the layout that lose no job.
    async fn update(&self, info: &Info) -> Result<Option<StreamDiff>, Error> {
        let Some(found) = difference(&info.config, &self.subscription(None)) else {
            return Ok(None);
        };

        if self.change {
            let wanted = wanted(&self.subscription(None));
            let config = Config {
                ack_wait: wanted.ack_wait,
                max_deliver: wanted.max_deliver,
                max_ack_pending: wanted.max_ack_pending,
                ..info.config.clone()
            };
            self.put(config).await?;
        }
        Ok(Some(StreamDiff {
            stream: WORKFLOW_COMMANDS.to_owned(),
            field: format!("consumer {}: {found}", info.name),
            missing: false,
            rejected: None,
        }))
    }

    /// Describes the replacement of consumers. It is rejected while workers use one of them.
    fn difference(&self, expected: &str, found: &[&Info]) -> StreamDiff {
        let consumers: Vec<String> = found
            .iter()
            .map(|info| format!("{} {:?}", info.name, filters_of(&info.config)))
            .collect();

        let jobs: usize = found.iter().map(|info| info.num_ack_pending).sum();
        let requests: usize = found.iter().map(|info| info.num_waiting).sum();

        let rejected = (jobs > 0 || requests > 0).then(|| {
            format!(
                "workers use them ({jobs} jobs in flight, {requests} requests); stop all effect \
                 nodes, wait 5 seconds and repeat the command"
            )
        });

        StreamDiff {
            stream: WORKFLOW_COMMANDS.to_owned(),
            field: format!(
                "consumers of effect {} are {}, but {expected}",
                self.effect,
                consumers.join(", ")
            ),
            missing: false,
            rejected,
        }
    }

    fn may_replace(&self, difference: &StreamDiff) -> bool {
        self.change && difference.rejected.is_none()
    }

    fn subscription(&self, tenant: Option<TenantId>) -> JobSubscription {
        JobSubscription {
            effect: self.effect.clone(),
            tenant,
            served: Arc::default(),
            ack_wait: self.layout.ack_wait,
        }
    }

    /// Creates a consumer that starts after this position.
    async fn create(&self, tenant: Option<TenantId>, floor: u64) -> Result<(), Error> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: floor + 1,
            },
            ..wanted(&self.subscription(tenant))
        };
        let created = self.stream.create_consumer_strict(config).await;
        created.map(drop).map_err(unavailable)
    }

    async fn put(&self, config: Config) -> Result<(), Error> {
        let config = pull::Config::try_from_consumer_config(config)
            .map_err(|error| Error::Unavailable(error.to_string()))?;
        let updated = self.stream.update_consumer(config).await;
        updated.map(drop).map_err(unavailable)
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        let deleted = self.stream.delete_consumer(name).await;
        deleted.map(drop).map_err(unavailable)
    }
}

/// Returns the position at or below which all of these consumers have acknowledged their jobs.
fn ack_floor(consumers: &[&Info]) -> u64 {
    let floors = consumers.iter().map(|info| info.ack_floor.stream_sequence);
    floors.min().unwrap_or_default()
}
