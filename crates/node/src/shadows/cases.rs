//! Instances of a page: those of the sample that ended, or that have not ended, with their recorded
//! inputs.

use std::time::Duration;

use orlog_model::{CorrelationId, HistoryEntry, Input, Instance, InstanceKey, TenantId, Timestamp};
use orlog_sagas::shadow::{Position, ShadowSpec};
use orlog_store::{ChangeQuery, Error, Reader};

/// Maximum number of instances that one page reads.
const PAGE: usize = 100;
/// Maximum number of instances that have not ended and are compared.
const MAX_UNFINISHED: usize = 1_000;
/// Maximum number of transitions of a compared instance.
const MAX_TRANSITIONS: usize = 2_000;
/// Time after which every commit with an earlier time is visible.
const SETTLE: Duration = Duration::from_secs(1);

/// Instances of a page, in the order of their last changes.
pub(crate) struct Cases {
    /// Instances, in the order of their last changes.
    pub(crate) found: Vec<Case>,
    /// Position after the last instance.
    pub(crate) end: Option<Position>,
    /// Whether instances follow after `end`.
    pub(crate) has_more: bool,
}

/// Instance of the sample.
pub(crate) struct Case {
    /// Key of the instance.
    pub(crate) key: InstanceKey,
    /// Stored state, to which the live definition led.
    pub(crate) instance: Instance,
    /// Inputs and their times; otherwise the reason why the instance cannot be compared.
    pub(crate) inputs: Result<Vec<(Timestamp, Input)>, &'static str>,
    /// Position after the instance.
    pub(super) position: Position,
}

/// Reads the instances that ended after a position, and before `until`. `None` while the index is
/// built.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn ended(
    reader: &Reader,
    tenant: &TenantId,
    spec: &ShadowSpec,
    after: Option<&Position>,
    until: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Cases>, Error> {
    let start = first_position();
    let (at, id) = after.map_or((before(spec.from), &start), |after| {
        (after.at, &after.correlation)
    });
    let query = ChangeQuery {
        tenant,
        saga: &spec.saga,
        has_ended: true,
        after: (at, id),
        limit: PAGE,
    };
    let Some(mut page) = reader.changed_since(&query)? else {
        return Ok(None);
    };

    let has_more = page.len() == PAGE;

    // Commits become visible in another order than their times: the newest ones wait for the next
    // page.
    let settled = now.saturating_sub(SETTLE);
    let visible = page
        .iter()
        .take_while(|(_, instance)| instance.updated_at <= settled)
        .count();

    // The last pages wait until every instance that ended before `until` is visible.
    let has_more = has_more && visible == page.len() || until.is_some_and(|until| settled < until);

    page.truncate(visible);
    let position = |key: &InstanceKey, instance: &Instance| Position {
        at: instance.updated_at,
        correlation: key.correlation.clone(),
        read_at: now,
    };
    let end = page.last().map(|(key, instance)| position(key, instance));
    let mut found = Vec::new();

    for (key, instance) in page {
        if !is_sampled(spec, &key, &instance) {
            continue;
        }

        // One more than the maximum, so that a longer history is detected.
        let history = reader.history(&key, 0, MAX_TRANSITIONS + 1)?;
        if was_seen(&history, after) || until.is_some_and(|until| ended_at(&history) > Some(until))
        {
            continue;
        }

        let position = position(&key, &instance);
        found.extend(case(spec, key, instance, history, position));
    }

    Ok(Some(Cases {
        found,
        end,
        has_more,
    }))
}

/// Reads the instances that have not ended. `None` while the index is built.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn unfinished(
    reader: &Reader,
    tenant: &TenantId,
    spec: &ShadowSpec,
    now: Timestamp,
) -> Result<Option<Cases>, Error> {
    let start = first_position();
    // No instance of the sample changed before the shadow started to record.
    let after = (before(spec.from), &start);
    let query = ChangeQuery {
        tenant,
        saga: &spec.saga,
        has_ended: false,
        after,
        limit: MAX_UNFINISHED,
    };
    let Some(page) = reader.changed_since(&query)? else {
        return Ok(None);
    };

    let mut found = Vec::new();
    for (key, instance) in page
        .into_iter()
        .filter(|(key, instance)| is_sampled(spec, key, instance))
    {
        let history = reader.history(&key, 0, MAX_TRANSITIONS + 1)?;
        let position = Position {
            at: instance.updated_at,
            correlation: key.correlation.clone(),
            read_at: now,
        };
        found.extend(case(spec, key, instance, history, position));
    }

    Ok(Some(Cases {
        found,
        end: None,
        has_more: false,
    }))
}

fn before(time: Timestamp) -> Timestamp {
    time.saturating_sub(Duration::from_millis(1))
}

/// Returns a correlation id, for a position at a time at which no instance of the shadow changed.
fn first_position() -> CorrelationId {
    CorrelationId::new("~").expect("the id is valid")
}

fn is_sampled(spec: &ShadowSpec, key: &InstanceKey, instance: &Instance) -> bool {
    (spec.from..spec.until).contains(&instance.created_at) && spec.sample.includes(key)
}

/// Returns the instance with its inputs; `None` if it did not start with the live definition.
fn case(
    spec: &ShadowSpec,
    key: InstanceKey,
    instance: Instance,
    history: Vec<HistoryEntry>,
    position: Position,
) -> Option<Case> {
    // Inputs before a migration were applied by another definition.
    let is_migrated = instance.definition.hash != spec.live.hash;
    if is_migrated && history.first().is_none_or(|first| first.input.is_none()) {
        return None;
    }

    let inputs = if is_migrated {
        Err("it was migrated to another definition")
    } else if history.len() > MAX_TRANSITIONS {
        Err("it has more than 2000 transitions")
    } else {
        recorded(&instance, history)
    };
    Some(Case {
        key,
        instance,
        inputs,
        position,
    })
}

/// Returns the inputs of a complete record.
fn recorded(
    instance: &Instance,
    history: Vec<HistoryEntry>,
) -> Result<Vec<(Timestamp, Input)>, &'static str> {
    const INCOMPLETE: &str =
        "its record is incomplete: its shard moved, its node restarted, or an input is too large";

    let mut inputs = Vec::with_capacity(history.len());

    // The instance may have changed since it was read.
    let history = history
        .into_iter()
        .take_while(|entry| entry.version <= instance.version);
    for (entry, version) in history.zip(1..) {
        match entry.input {
            Some(input) if entry.version == version => inputs.push((entry.at, *input)),
            _ => return Err(INCOMPLETE),
        }
    }

    if inputs.len() as u64 == instance.version {
        Ok(inputs)
    } else {
        Err(INCOMPLETE)
    }
}

/// Returns the time of the first end of an instance.
fn ended_at(history: &[HistoryEntry]) -> Option<Timestamp> {
    history
        .iter()
        .find(|entry| entry.status.is_final())
        .map(|entry| entry.at)
}

/// Returns whether an earlier page contained the instance: it had ended, and had not changed when
/// that page was read.
fn was_seen(history: &[HistoryEntry], after: Option<&Position>) -> bool {
    let Some(after) = after else {
        return false;
    };
    let Some(end) = history.iter().position(|entry| entry.status.is_final()) else {
        return false;
    };

    let next = history.get(end + 1).map(|entry| entry.at);
    history[end].at <= after.at && next.is_some_and(|next| next > after.read_at)
}
