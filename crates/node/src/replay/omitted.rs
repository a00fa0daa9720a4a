//! Instances that a replay omits, because the bus has no input of them since the start of the
//! range. Each is reported with the reason: a rebuild that leaves instances out must not look
//! complete.

use std::collections::BTreeSet;

use orlog_actors::Runtime;
use orlog_model::{HistoryEntry, Instance, InstanceKey};
use orlog_store::{InstanceQuery, Reader};

use super::request::{MAX_INPUTS, ReplayError, ReplayRequest, ReplayResult, ReplayedInstance};

/// Instances per read.
const PAGE: usize = 1000;

/// Returns the instances that changed since the start of the range although the bus has no input of
/// them, and the instances that the request names. `known`: the instances with inputs.
pub(super) fn find(
    runtime: &Runtime,
    order: &ReplayRequest,
    known: &BTreeSet<InstanceKey>,
) -> Result<Vec<ReplayedInstance>, ReplayError> {
    if !order.only.is_empty() {
        return named(runtime, order, known);
    }

    let mut omitted = Vec::new();
    for reader in runtime.readers() {
        let mut query = InstanceQuery {
            tenant: order.tenant.clone(),
            saga: Some(order.saga.clone()),
            updated_from: Some(order.from),
            limit: PAGE,
            ..InstanceQuery::default()
        };
        loop {
            let page = reader.instances(&query)?;
            for found in page.items {
                if !known.contains(&found.key) {
                    omitted.push(skipped(&reader, order, found.key, &found.instance)?);
                }
            }

            // The same limit as for inputs: the report is one response.
            if omitted.len() > MAX_INPUTS {
                return Err(ReplayError::TooMany);
            }

            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
    }

    Ok(omitted)
}

/// Returns the named instances without inputs.
fn named(
    runtime: &Runtime,
    order: &ReplayRequest,
    known: &BTreeSet<InstanceKey>,
) -> Result<Vec<ReplayedInstance>, ReplayError> {
    let mut omitted = Vec::new();
    for correlation in &order.only {
        let key = InstanceKey {
            tenant: order.tenant.clone(),
            saga: order.saga.clone(),
            correlation: correlation.clone(),
        };

        // The shard of another instance runs in another process.
        let Some(reader) = runtime.reader(&key).filter(|_| !known.contains(&key)) else {
            continue;
        };

        match reader.instance(&key) {
            Ok(Some(instance)) => omitted.push(skipped(&reader, order, key, &instance)?),
            Ok(None) => {
                let reason = "it does not exist, and the bus has no input of it since then";
                omitted.push(of(key, None, reason.to_owned()));
            }
            Err(error) if error.is_damage() => {
                let reason = "its data cannot be read, and the bus has no input of it since then";
                omitted.push(of(key, None, reason.to_owned()));
            }
            Err(error) => return Err(error.into()),
        }
    }

    Ok(omitted)
}

fn skipped(
    reader: &Reader,
    order: &ReplayRequest,
    key: InstanceKey,
    instance: &Instance,
) -> Result<ReplayedInstance, ReplayError> {
    let reason = if instance.created_at < order.from {
        format!(
            "it started earlier, at {}, and the bus has no input of it since then",
            instance.created_at
        )
    } else {
        // One input is sufficient as an example of what the bus lacks.
        match reader.history(&key, 0, 1)?.first() {
            Some(HistoryEntry {
                input_label: label,
                at,
                ..
            }) => format!("{label} at {at} was not on the bus; a replay cannot rebuild it"),
            None => "it has no history, and the bus has no input of it".to_owned(),
        }
    };
    Ok(of(key, Some(instance), reason))
}

fn of(key: InstanceKey, instance: Option<&Instance>, reason: String) -> ReplayedInstance {
    let status = instance.map(|instance| instance.status);
    ReplayedInstance {
        key,
        before: status,
        after: status,
        result: ReplayResult::Skipped(reason),
        work: 0,
        inputs: 0,
    }
}
