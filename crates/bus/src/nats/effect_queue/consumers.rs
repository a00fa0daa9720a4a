//! Durable consumers of jobs: their names, and which one delivers the jobs of a subscription.
//!
//! | tenants of the node | consumer | jobs |
//! |---|---|---|
//! | all | `effect-<effect>` | of all tenants |
//! | a list | `effect-<effect>@<tenant>`, one for each tenant | of the tenant |
//!
//! Nodes with different lists therefore never share a consumer with different filters, and a tenant
//! that a list gains has a consumer that starts at its first command. Earlier versions created
//! `effect-<effect>` with the filters of their list: a node that serves all tenants of such a
//! consumer uses it for them.
//!
//! Consumers of one stream are independent, so that two consumers with a common tenant would
//! deliver its jobs twice. No node changes an existing consumer: a node whose jobs another consumer
//! delivers to others has a conflict.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Config, Consumer, Info, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::stream::Stream as StreamHandle;
use futures::TryStreamExt as _;
use orlog_model::{EffectName, TenantId, Timestamp};

use crate::Error;
use crate::effect_queue::{JobBacklog, JobSubscription};
use crate::nats::connection::{chain, unavailable};
use crate::nats::filters::{covers, overlaps};
use crate::nats::message::timestamp;
use crate::subject::{self, SubjectKind, encode_token};

/// Maximum number of unacknowledged jobs of all workers together.
const MAX_ACK_PENDING: i64 = 65_536;
/// Prefix of the names.
pub(super) const PREFIX: &str = "effect-";
/// Separator of the tenant; no token contains it.
pub(super) const TENANT: char = '@';

/// Returns the name of the durable consumer of an effect: of one tenant, or of all tenants.
#[must_use]
pub fn consumer_name(effect: &EffectName, tenant: Option<&TenantId>) -> String {
    let effect = encode_token(effect.as_str());
    match tenant {
        Some(tenant) => format!("{PREFIX}{effect}{TENANT}{}", encode_token(tenant.as_str())),
        None => format!("{PREFIX}{effect}"),
    }
}

/// Opened consumer of a subscription.
pub(super) struct OpenConsumer {
    pub(super) consumer: Consumer<pull::Config>,
    pub(super) name: String,
    /// The server redelivers a job after this time without a sign of progress.
    pub(super) ack_wait: Duration,
    /// The server rejects requests for more jobs.
    pub(super) max_batch: Option<usize>,
    /// The server rejects requests that wait longer.
    pub(super) max_expires: Option<Duration>,
    /// Settings that differ from those of this node; `None`: none.
    pub(super) difference: Option<String>,
}

/// Result of opening a consumer.
pub(super) enum Opened {
    Consumer(Box<OpenConsumer>),
    /// Another consumer delivers jobs of the subscription to others.
    Conflict(String),
}

/// Consumer that delivers the jobs of a subscription.
#[derive(Debug, PartialEq, Eq)]
enum Selection {
    /// The existing consumer `effect-<effect>`.
    Shared,
    /// The consumer of the subscription, which may not exist yet.
    Own,
    Conflict(String),
}

/// Opens the consumer of a subscription, and creates it if it does not exist. Never changes an
/// existing one.
pub(super) async fn open(
    stream: &StreamHandle<()>,
    subscription: &JobSubscription,
) -> Result<Opened, Error> {
    let JobSubscription { effect, tenant, .. } = subscription;
    let shared = info(stream, &consumer_name(effect, None)).await?;
    let filters = shared.as_ref().map(|info| filters_of(&info.config));

    match select(subscription, filters.as_deref()) {
        Selection::Conflict(reason) => return Ok(Opened::Conflict(reason)),
        Selection::Shared => {}
        Selection::Own => {
            let name = consumer_name(effect, tenant.as_ref());
            if info(stream, &name).await?.is_none() {
                if tenant.is_none()
                    && let Some(reason) = other_consumers(stream, effect).await
                {
                    return Ok(Opened::Conflict(reason));
                }
                // If another node creates it meanwhile, the next attempt finds it.
                let created = stream.create_consumer_strict(wanted(subscription)).await;
                created.map_err(unavailable)?;
            }
            return opened(stream, subscription, name).await;
        }
    }
    opened(stream, subscription, consumer_name(effect, None)).await
}

/// Selects the consumer of a subscription. `shared`: filters of the consumer `effect-<effect>`, if
/// it exists.
fn select(subscription: &JobSubscription, shared: Option<&[String]>) -> Selection {
    let wanted = wanted_filters(subscription);

    let Some(shared) = shared else {
        return Selection::Own;
    };
    let JobSubscription {
        effect,
        tenant,
        served,
        ..
    } = subscription;

    let name = consumer_name(effect, None);
    if tenant.is_none() {
        return if is_complete(shared, &wanted) {
            Selection::Shared
        } else {
            Selection::Conflict(format!(
                "the consumer {name} delivers only {shared:?}, but this node executes the effect \
                 for all tenants"
            ))
        };
    }

    let is_overlapping = shared
        .iter()
        .any(|filter| wanted.iter().any(|wanted| overlaps(filter, wanted)));
    if !is_overlapping {
        return Selection::Own;
    }

    let served: Vec<String> = served
        .iter()
        .flat_map(|tenant| filters_for(effect, Some(tenant)))
        .collect();

    let is_served = shared
        .iter()
        .all(|filter| served.iter().any(|served| covers(served, filter)));
    if is_served {
        Selection::Shared
    } else {
        Selection::Conflict(format!(
            "the consumer {name} delivers {shared:?}, also to nodes that execute the effect for \
             other tenants than this one"
        ))
    }
}

/// Returns whether these filters match everything that is wanted.
pub(super) fn is_complete(filters: &[String], wanted: &[String]) -> bool {
    wanted
        .iter()
        .all(|wanted| filters.iter().any(|filter| covers(filter, wanted)))
}

/// Returns the conflict of a subscription to all tenants with the consumers of single tenants.
/// Without the permission to list consumers, the nodes of these tenants find the conflict.
async fn other_consumers(stream: &StreamHandle<()>, effect: &EffectName) -> Option<String> {
    let prefix = format!("{}{TENANT}", consumer_name(effect, None));
    let names: Vec<String> = match stream.consumer_names().try_collect().await {
        Ok(names) => names,
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(%effect, error, "consumers of single tenants cannot be listed");
            return None;
        }
    };

    let others: BTreeSet<_> = names
        .into_iter()
        .filter(|name| name.starts_with(&prefix))
        .collect();

    (!others.is_empty()).then(|| {
        format!(
            "this node executes the effect for all tenants, but consumers of single tenants exist: \
             {others:?}"
        )
    })
}

async fn opened(
    stream: &StreamHandle<()>,
    subscription: &JobSubscription,
    name: String,
) -> Result<Opened, Error> {
    let consumer: Consumer<pull::Config> = stream
        .get_consumer(&name)
        .await
        .map_err(|error| Error::Unavailable(format!("consumer {name}: {error}")))?;

    let found = consumer.cached_info().config.clone();
    Ok(Opened::Consumer(Box::new(OpenConsumer {
        consumer,
        name,
        ack_wait: found.ack_wait,
        max_batch: usize::try_from(found.max_batch).ok().filter(|max| *max > 0),
        max_expires: Some(found.max_expires).filter(|max| !max.is_zero()),
        difference: difference(&found, subscription),
    })))
}

/// Returns the settings that differ from those of the subscription. None of them loses a job.
pub(super) fn difference(found: &Config, subscription: &JobSubscription) -> Option<String> {
    let wanted = wanted(subscription);
    let settings = [
        (
            "ack_wait",
            format!("{:?}", found.ack_wait),
            format!("{:?}", wanted.ack_wait),
        ),
        (
            "max_deliver",
            found.max_deliver.to_string(),
            wanted.max_deliver.to_string(),
        ),
        (
            "max_ack_pending",
            found.max_ack_pending.to_string(),
            wanted.max_ack_pending.to_string(),
        ),
    ];

    let differ: Vec<String> = settings
        .into_iter()
        .filter(|(_, found, wanted)| found != wanted)
        .map(|(setting, found, wanted)| format!("{setting} is {found}, expected {wanted}"))
        .collect();
    (!differ.is_empty()).then(|| differ.join(", "))
}

pub(super) fn wanted(subscription: &JobSubscription) -> pull::Config {
    let JobSubscription {
        effect,
        tenant,
        ack_wait,
        ..
    } = subscription;
    pull::Config {
        durable_name: Some(consumer_name(effect, tenant.as_ref())),
        description: Some(format!("jobs of {effect}")),
        filter_subjects: wanted_filters(subscription),
        ack_policy: AckPolicy::Explicit,
        ack_wait: *ack_wait,
        max_deliver: -1,
        max_ack_pending: MAX_ACK_PENDING,
        ..Default::default()
    }
}

fn wanted_filters(subscription: &JobSubscription) -> Vec<String> {
    filters_for(&subscription.effect, subscription.tenant.as_ref())
}

pub(super) fn filters_for(effect: &EffectName, tenant: Option<&TenantId>) -> Vec<String> {
    subject::filters(tenant, SubjectKind::Effect, Some(effect.as_str()))
}

/// Returns the filters of a consumer.
pub(super) fn filters_of(config: &Config) -> Vec<String> {
    let single = Some(config.filter_subject.clone()).filter(|filter| !filter.is_empty());

    let filters: Vec<String> = single
        .into_iter()
        .chain(config.filter_subjects.iter().cloned())
        .collect();

    if filters.is_empty() {
        vec![">".to_owned()]
    } else {
        filters
    }
}

/// Returns the state of a consumer; `None` if it does not exist.
pub(super) async fn info(stream: &StreamHandle<()>, name: &str) -> Result<Option<Info>, Error> {
    match stream.consumer_info(name).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(error)),
    }
}

/// Returns whether a consumer will deliver or has delivered a stored command that is not
/// acknowledged yet. A command above the ack floor may have been passed by the filter of that time:
/// then nothing is pending.
pub(super) fn is_pending(info: &Info, sequence: u64) -> bool {
    let waits = info.num_pending > 0 || info.num_ack_pending > 0;
    info.ack_floor.stream_sequence < sequence && waits
}

/// Returns the backlog of a consumer.
pub(super) async fn backlog(stream: &StreamHandle<()>, name: &str) -> Result<JobBacklog, Error> {
    let Some(info) = info(stream, name).await? else {
        return Err(Error::Unavailable(format!("there is no consumer {name}")));
    };

    let waiting = info.num_pending;
    let in_flight = u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX);
    // An idle consumer, the usual case, costs no further request.
    let oldest = if waiting == 0 && in_flight == 0 {
        None
    } else {
        oldest(stream, &info).await
    };

    Ok(JobBacklog {
        waiting,
        in_flight,
        oldest,
    })
}

/// Returns the time of the first command above the ack floor of a consumer: no command at or below
/// it waits.
async fn oldest(stream: &StreamHandle<()>, info: &Info) -> Option<Timestamp> {
    let next = info.ack_floor.stream_sequence + 1;
    let mut oldest: Option<Timestamp> = None;
    for filter in filters_of(&info.config) {
        let first = stream.get_first_raw_message_by_subject(&filter, next).await;
        // The age is optional: the account may lack the permission to read messages.
        let Ok(message) = first else { continue };
        let time = timestamp(message.time);
        oldest = Some(oldest.map_or(time, |oldest| oldest.min(time)));
    }
    oldest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    /// Returns the subscription of a node for one of its tenants; without tenants, of a node for
    /// all of them.
    fn subscription(served: &[&str]) -> JobSubscription {
        let tenants: BTreeSet<TenantId> = served.iter().map(|name| tenant(name)).collect();
        JobSubscription {
            effect: EffectName::new("a.b").unwrap(),
            tenant: served.first().map(|name| tenant(name)),
            served: Arc::new(tenants),
            ack_wait: Duration::from_secs(30),
        }
    }

    #[track_caller]
    fn check(served: &[&str], shared: &[&str], expected: &str) {
        let shared: Vec<String> = shared.iter().map(|filter| (*filter).to_owned()).collect();
        let found = (!shared.is_empty()).then_some(shared.as_slice());
        let selected = match select(&subscription(served), found) {
            Selection::Shared => "shared",
            Selection::Own => "own",
            Selection::Conflict(_) => "conflict",
        };
        assert_eq!(selected, expected, "{served:?} with {shared:?}");
    }

    const ALL: [&str; 2] = ["tenant.*.effect.a%2Eb.*", "effect.a%2Eb.*"];
    const ACME: &str = "tenant.acme.effect.a%2Eb.*";
    const BETA: &str = "tenant.beta.effect.a%2Eb.*";

    #[test]
    fn no_two_consumers_deliver_the_jobs_of_one_tenant() {
        check(&[], &[], "own");
        check(&[], &ALL, "shared");
        check(&[], &[ACME], "conflict");
        check(&["acme"], &[], "own");
        check(&["acme"], &ALL, "conflict");
        check(&["acme"], &[BETA], "own");
        check(&["acme"], &[ACME], "shared");
        check(&["acme"], &[ACME, BETA], "conflict");
        check(&["acme", "beta"], &[ACME, BETA], "shared");
        check(&["acme", "beta", "gamma"], &[ACME, BETA], "shared");
        check(&["gamma", "acme", "beta"], &[ACME, BETA], "own");
        check(&[""], &ALL, "conflict");
        check(&[""], &[ACME], "own");
        check(&["", "acme"], &["effect.a%2Eb.*", ACME], "shared");
        check(&["acme"], &[">"], "conflict");
    }

    #[test]
    fn consumers_of_different_filters_have_different_names() {
        let effect = EffectName::new("a.b").unwrap();
        assert_eq!(consumer_name(&effect, None), "effect-a%2Eb");
        assert_eq!(
            consumer_name(&effect, Some(&tenant("acme"))),
            "effect-a%2Eb@acme"
        );
        assert_eq!(
            consumer_name(&effect, Some(&tenant(""))),
            "effect-a%2Eb@%",
            "the default tenant"
        );
    }
}
