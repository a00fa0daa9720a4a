//! What concerns an instance besides its snapshot: buffered inputs, dead letters, circuit breakers.

use std::collections::BTreeMap;

use orlog_effect::limits::breaker::BreakerState;
use orlog_model::{DeadLetter, Input, InstanceKey, OutboxKey, WorkItem};
use orlog_store::Reader;
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;

/// Maximum number of scanned dead letters of the tenant.
const DEAD_LETTER_SCAN: usize = 2_000;
/// Number of dead letters that are read at once.
const DEAD_LETTER_PAGE: usize = 256;
/// Maximum number of listed dead letters.
const MAX_DEAD_LETTERS: usize = 100;
/// Maximum number of early events that the problem of a missing instance names.
const MAX_NAMED_EVENTS: usize = 10;

/// Input that is stored and not applied yet.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BufferedInputView {
    /// `event`, `work_result`, `timer`, `control` or `workflow`.
    kind: &'static str,
    /// Event type, outcome or action.
    label: String,
    /// Id of the input.
    id: String,
    /// Time of the input.
    #[schema(format = "date-time")]
    at: String,
    /// `paused`: the instance is paused; `early`: it arrived before the instance started;
    /// `spilled`: the queue in memory was full.
    reason: &'static str,
}

/// Circuit breaker that delays work of the instance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BreakerView {
    upstream: String,
    /// `open` or `half_open`.
    state: &'static str,
    /// Labels of the work items that wait for it.
    work: Vec<String>,
}

impl BufferedInputView {
    pub(crate) fn of(input: &Input, is_spilled: bool) -> Self {
        let reason = match input {
            Input::Early(_) => "early",
            _ if is_spilled => "spilled",
            _ => "paused",
        };
        Self {
            kind: input.kind().as_str(),
            label: input.label().to_owned(),
            id: input.id().to_string(),
            at: input.at().to_string(),
            reason,
        }
    }
}

/// Returns the problem of an instance that does not exist; names the early events that wait for its
/// start.
pub(crate) fn missing_instance(reader: &Reader, key: &InstanceKey) -> Result<Problem, Problem> {
    // Events can precede their instance; without this hint, they seem to be lost.
    let early = reader.buffered_inputs(key, MAX_NAMED_EVENTS + 1)?;
    let mut labels: Vec<_> = early.iter().map(|(_, input)| input.label()).collect();
    if let Some(last) = labels.get_mut(MAX_NAMED_EVENTS) {
        *last = "and others";
    }

    let waiting = match labels.as_slice() {
        [] => String::new(),
        labels => format!("; early events wait for its start: {}", labels.join(", ")),
    };
    Ok(Problem::new(
        Code::InstanceNotFound,
        format!("no instance {key}{waiting}"),
    ))
}

/// Returns the circuit breakers that are not closed, of the upstreams of these work items.
pub(crate) fn breakers(scope: &ReadScope, work: &[(OutboxKey, WorkItem)]) -> Vec<BreakerView> {
    let mut open: BTreeMap<String, BreakerView> = BTreeMap::new();
    for (key, item) in work {
        // Facts and messages of sagas leave through the publisher, which has no circuit breaker.
        let Some(executor) = scope.executor_for(&key.destination) else {
            continue;
        };

        let status = executor.status();
        let Some(state @ (BreakerState::Open | BreakerState::HalfOpen)) = status.breaker else {
            continue;
        };

        let new = || BreakerView {
            upstream: status.upstream.clone(),
            state: state.as_str(),
            work: Vec::new(),
        };
        let labels = &mut open.entry(status.upstream.clone()).or_insert_with(new).work;
        let label = item.work.label();

        if !labels.iter().any(|known| *known == *label) {
            labels.push(label.into());
        }
    }

    open.into_values().collect()
}

/// Returns the dead letters of an instance, oldest first, and whether all dead letters of its
/// tenant were scanned.
pub(crate) fn dead_letters(
    reader: &Reader,
    key: &InstanceKey,
) -> Result<(Vec<DeadLetter>, bool), Problem> {
    let mut found = Vec::new();
    let mut scanned = 0;
    let mut after = None;
    // Dead letters are ordered by tenant and id, not by instance, so that the scan is limited.
    while scanned < DEAD_LETTER_SCAN {
        let page = reader.dead_letter_page(&key.tenant, after, DEAD_LETTER_PAGE)?;
        scanned += page.items.len();
        found.extend(
            page.items
                .into_iter()
                .filter(|letter| letter.instance.as_ref() == Some(key)),
        );
        if found.len() > MAX_DEAD_LETTERS {
            found.truncate(MAX_DEAD_LETTERS);
            return Ok((found, false));
        }

        after = page.next;
        if after.is_none() {
            return Ok((found, true));
        }
    }

    Ok((found, false))
}
