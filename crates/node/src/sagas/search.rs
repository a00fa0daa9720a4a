//! Search of instances, with or without a condition: scanned in chunks, within limits of rows, time
//! and evaluation cost.

use std::time::{Duration, Instant};

use orlog_model::{Instance, InstanceKey, Name, SagaName, StatusSnapshot, Timestamp};
use orlog_program::{ComparisonOperator, Filter, FilterEvalError};
use orlog_store::{FoundInstance, InstanceQuery, VariableCondition};
use serde_json::{Map, Value, json};

use super::instance_pages::{InvalidCursor, LocatedInstance};
use super::state::{displayed_state, hidden_values};
use super::view::{
    DefinitionRefView, LastErrorView, OpenTaskView, ParentView, WaitView, reference_view,
};
use crate::component_config::indexed_value;
use crate::reads::StoreScope;
use crate::redact::{HiddenValues, Redaction};

/// Instances per read; the tables are not locked during the evaluation.
const CHUNK: usize = 256;
/// Size of the states of the instances of a page in bytes at which it ends: they are in memory
/// until the page is encoded.
const MAX_STATE_BYTES: usize = 8 << 20;
/// Maximum evaluation cost of the conditions of one request: about one second.
const MAX_FILTER_COST: u64 = 20_000_000;
/// Prefix of the parts of the business reference in conditions and in the names of indexes.
const REFERENCE_PREFIX: &str = "reference.";
/// Variables with times.
const TIMES: [&str; 3] = ["created_at", "updated_at", "now"];

/// Reason why a search has no result.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The cursor is not one of this search.
    #[error(transparent)]
    InvalidCursor(#[from] InvalidCursor),
    /// The condition does not compile, or is not Boolean; contains the location.
    #[error("{0}")]
    InvalidFilter(String),
    /// A store cannot be read.
    #[error(transparent)]
    Store(#[from] orlog_store::Error),
}

/// Parameters of a search.
pub struct InstanceSearch {
    /// Conditions that the store evaluates, the position of the last page, and the limits.
    pub query: InstanceQuery,
    /// Shard in which the last page ended.
    pub start_shard: usize,
    /// The only shard to search. Its instances have an order that no change of an instance changes,
    /// so that pages neither miss nor repeat an instance. `None`: all shards of this process, in
    /// the order of the fastest index.
    pub only: Option<u16>,
    /// Condition that the search evaluates for each instance.
    pub filter: Option<Filter>,
    /// Whether matches after the page are counted.
    pub count: bool,
    /// Timeout of the search.
    pub timeout: Duration,
}

/// Result of a search.
#[derive(Default)]
pub struct SearchResult {
    /// Instances of the page.
    pub items: Vec<LocatedInstance>,
    /// Size of the states of these instances, in bytes.
    bytes: usize,
    /// Cursor after the page; `None` while it is not full.
    pub next: Option<String>,
    /// Number of scanned instances.
    pub scanned: usize,
    /// Number of matches from the cursor on.
    pub matches: u64,
    /// Whether all instances were scanned.
    pub is_complete: bool,
    /// Number of instances for which the condition failed.
    pub filter_errors: u64,
    /// Reason of the first one.
    pub first_filter_error: Option<String>,
}

/// Compiles the condition of a request.
///
/// # Errors
/// If the condition is invalid; the text names the location.
pub fn compile_filter(source: &str) -> Result<Filter, SearchError> {
    Filter::compile(source, &example(), &TIMES)
        .map_err(|error| SearchError::InvalidFilter(error.to_string()))
}

/// Returns the condition of a search for a business reference: `part=text` selects by a part,
/// another text by the name. `filter` applies in addition.
#[must_use]
pub fn reference_condition(reference: &str, filter: Option<&str>) -> String {
    let is_part = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    // The text becomes a literal of the condition, so that it cannot change its structure.
    let own = match reference.split_once('=').filter(|(name, _)| is_part(name)) {
        Some((name, text)) => format!("{REFERENCE_PREFIX}{name} == {}", json!(text)),
        None => format!("reference == {}", json!(reference)),
    };
    filter.map_or_else(|| own.clone(), |filter| format!("{own} && ({filter})"))
}

/// Returns an example row with the variables that all sagas have.
fn example() -> Map<String, Value> {
    let time = "2026-01-01T00:00:00Z";
    let example = json!({
        "saga": "order", "correlation": "o-1", "reference": null,
        "status": "running", "paused": false, "version": 1,
        "definition": { "version": 1, "hash": "00" },
        "created_at": time, "updated_at": time, "now": time,
        "attention": null, "waits": null, "tasks": null, "last_error": null,
        "node": "node-1", "parent": null,
        "state": null, "vars": null,
    });

    example.as_object().cloned().unwrap_or_default()
}

/// Scans the shards in sequence. Blocks.
///
/// # Errors
/// If a store cannot be read, or the condition is not Boolean.
pub fn search(scope: &StoreScope, search: InstanceSearch) -> Result<SearchResult, SearchError> {
    let InstanceSearch {
        mut query,
        start_shard,
        only,
        filter,
        count,
        timeout,
    } = search;

    // The index orders the instances of one status by key, but an instance can move between the
    // ranges of several statuses. An ordered search compares them here.
    let mut statuses = Vec::new();
    if only.is_some() && query.statuses.len() > 1 {
        statuses = std::mem::take(&mut query.statuses);
    }
    if let (Some(filter), None) = (&filter, only) {
        narrow(&mut query, filter, scope);
    }

    let evaluator = FilterEvaluator {
        scope,
        filter: filter.as_ref(),
        now: scope.now(),
    };
    let page_limit = query.limit;
    let scan_limit = query.scan_limit;
    let takes_each_row = filter.is_none() && statuses.is_empty() && !count;
    let deadline = Instant::now() + timeout;
    // A search from a cursor has not counted the matches before it, so that its count is never
    // exact.
    let starts_at_the_first = start_shard == 0 && query.cursor.is_none();
    let mut result = SearchResult::default();
    let mut cost = 0;
    let is_over =
        |cost| cost > MAX_FILTER_COST || Instant::now() > deadline || scope.is_cancelled();

    for (shard, reader) in scope.numbered_readers() {
        if usize::from(shard) < start_shard || only.is_some_and(|only| only != shard) {
            continue;
        }
        if usize::from(shard) != start_shard {
            query.cursor = None;
        }

        loop {
            if result.scanned >= scan_limit || is_over(cost) {
                let position = query.cursor.as_deref().unwrap_or_default();
                // A full page keeps its cursor: after it, the scan only counted.
                result.next.get_or_insert(format!("{shard}.{position}"));
                return Ok(result);
            }

            // A row beyond the page would be decoded for nothing.
            query.limit = if takes_each_row {
                CHUNK.min(page_limit - result.items.len())
            } else {
                CHUNK
            };
            query.scan_limit = CHUNK.min(scan_limit - result.scanned);
            let chunk = reader.instances(&query)?;
            result.scanned += chunk.scanned;

            for found in chunk.items {
                if !statuses.is_empty() && !statuses.contains(&found.instance.status) {
                    continue;
                }

                let evaluated = evaluator.evaluate(&found.key, &found.instance)?;
                cost += u64::from(evaluated.cost);
                let stopped_at = is_over(cost).then(|| format!("{shard}.{}", found.cursor()));
                match evaluated.holds {
                    Ok(true) => result.add(shard, page_limit, found),
                    Ok(false) => {}
                    Err(reason) => {
                        result.filter_errors += 1;
                        result.first_filter_error.get_or_insert(reason);
                    }
                }

                let is_stopped = stopped_at.is_some();
                result.next = result.next.or(stopped_at);
                if is_stopped || (result.next.is_some() && !count) {
                    return Ok(result);
                }
            }

            match chunk.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
    }

    result.is_complete = starts_at_the_first;
    Ok(result)
}

/// Adds the comparisons of a condition that an index or a range of keys answers. The condition is
/// still evaluated for each instance found.
fn narrow(query: &mut InstanceQuery, filter: &Filter, scope: &StoreScope) {
    let comparisons = filter.comparisons();
    let saga = comparisons
        .iter()
        .find(|c| c.path == "saga" && c.operator == ComparisonOperator::Equal);

    // The parameter of the request takes precedence; a condition on another saga then matches
    // nothing.
    if query.saga.is_none() {
        query.saga = saga.and_then(|c| SagaName::new(c.value.as_str()?).ok());
    }
    // Indexes of variables belong to one saga.
    let Some(saga) = &query.saga else { return };
    let active = scope.definitions().usable(&query.tenant);
    let definition = active
        .iter()
        .find(|definition| definition.program.definition_ref().saga == *saga);

    // The number of instances read would reveal values that are not displayed.
    let redact = scope.redact();
    let reference = definition
        .and_then(|definition| definition.program.as_compiled())
        .and_then(|compiled| compiled.definition().reference.as_ref());
    let is_readable = |name: &Name| match name.as_str().strip_prefix(REFERENCE_PREFIX) {
        Some(part) => !reference.is_some_and(|parts| reads_hidden(&parts[part], redact)),
        None => !redact.hides_variable(name.as_str()),
    };
    let indexed = definition
        .into_iter()
        .flat_map(|definition| &definition.program.manifest().indexed);

    let conditions = indexed.filter(|name| is_readable(name)).filter_map(|name| {
        let is_part = name.as_str().starts_with(REFERENCE_PREFIX);
        let path = if is_part {
            name.to_string()
        } else {
            format!("vars.{name}")
        };
        let mut condition = VariableCondition {
            name: name.clone(),
            lower: None,
            upper: None,
        };

        for comparison in comparisons
            .iter()
            .filter(|comparison| comparison.path == path)
        {
            // A value of another type is in no index: the variable is compared row by row only.
            let value = indexed_value(&comparison.value)?;
            if comparison.operator != ComparisonOperator::AtMost {
                condition.lower = Some(value.clone());
            }
            if comparison.operator != ComparisonOperator::AtLeast {
                condition.upper = Some(value);
            }
        }

        (condition.lower.is_some() || condition.upper.is_some()).then_some(condition)
    });

    // An equality finds the fewest instances.
    query.variable = conditions.min_by_key(|condition| condition.lower != condition.upper);
}

/// Returns whether a part of a business reference can contain a value that is not displayed: of a
/// hidden variable, or of an expression whose variables are not named.
fn reads_hidden(template: &Value, redact: &Redaction) -> bool {
    let text = template.to_string();
    let is_hidden = |rest: &str| {
        let name = rest.strip_prefix('.').and_then(|name| {
            name.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        });
        name.is_none_or(|name| name.is_empty() || redact.hides_variable(name))
    };

    // The text is searched, not parsed: an expression that is rejected here only loses its index.
    redact.is_active() && (text.contains("results") || text.split("vars").skip(1).any(is_hidden))
}

impl SearchResult {
    /// Counts a match, and adds it to the page unless the page is full.
    fn add(&mut self, shard: u16, page_limit: usize, found: FoundInstance) {
        self.matches += 1;
        if self.next.is_some() || self.items.len() >= page_limit {
            return;
        }

        self.bytes += found.instance.state.len();
        let located = LocatedInstance { shard, found };
        // Set with the last entry: without it, the search would scan on for a match that the page
        // cannot contain.
        if self.items.len() + 1 == page_limit || self.bytes >= MAX_STATE_BYTES {
            self.next = Some(located.cursor());
        }
        self.items.push(located);
    }
}

/// Result of the condition for one instance.
struct Evaluated {
    /// Whether the instance matches; an error is why the condition has no value for it.
    holds: Result<bool, String>,
    cost: u32,
}

/// Evaluator of the condition for each instance.
struct FilterEvaluator<'a> {
    scope: &'a StoreScope,
    filter: Option<&'a Filter>,
    now: Timestamp,
}

impl FilterEvaluator<'_> {
    fn evaluate(&self, key: &InstanceKey, instance: &Instance) -> Result<Evaluated, SearchError> {
        let Some(filter) = self.filter else {
            return Ok(Evaluated {
                holds: Ok(true),
                cost: 0,
            });
        };

        let (holds, cost) = filter.holds(&self.values(filter, key, instance));
        let holds = match holds {
            Ok(holds) => Ok(holds),
            // Instances of a saga can lack a field; one of them must not fail the search.
            Err(FilterEvalError::NoValue(reason)) => Err(format!("{key}: {reason}")),
            // The condition itself is wrong, and would fail for all other instances as well.
            Err(FilterEvalError::NotBoolean(reason)) => {
                return Err(SearchError::InvalidFilter(reason));
            }
        };
        Ok(Evaluated { holds, cost })
    }

    /// Returns only the variables that the condition uses; an unused state is not read.
    fn values(
        &self,
        filter: &Filter,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Map<String, Value> {
        let mut values = Map::new();
        let redact = self.scope.redact();
        // Redacted, so that a condition cannot read values that are not displayed.
        let hidden = ["reference", "last_error"]
            .iter()
            .any(|name| filter.uses(name));
        let hidden = if hidden {
            hidden_values(self.scope, instance)
        } else {
            HiddenValues::default()
        };

        let mut set = |name: &str, value: &dyn Fn() -> Value| {
            if filter.uses(name) {
                values.insert(name.to_owned(), value());
            }
        };
        set("saga", &|| key.saga.as_str().into());
        set("correlation", &|| key.correlation.as_str().into());
        set("reference", &|| to_json(&reference_view(instance, &hidden)));
        set("status", &|| instance.status.as_str().into());
        set("paused", &|| instance.paused.into());
        set("attention", &|| {
            StatusSnapshot::from_instance(instance).attention().into()
        });
        set("version", &|| instance.version.into());
        set("definition", &|| {
            to_json(&DefinitionRefView::of(&instance.definition))
        });
        set("created_at", &|| instance.created_at.to_string().into());
        set("updated_at", &|| instance.updated_at.to_string().into());
        set("now", &|| self.now.to_string().into());
        set("waits", &|| to_json(&WaitView::all(instance)));
        set("tasks", &|| {
            to_json(
                &instance
                    .tasks
                    .iter()
                    .map(|task| OpenTaskView::of(task, redact))
                    .collect::<Vec<_>>(),
            )
        });
        set("last_error", &|| {
            to_json(&LastErrorView::of(instance, &hidden))
        });
        set("node", &|| instance.node.as_str().into());
        set("parent", &|| {
            to_json(&instance.parent.as_deref().map(ParentView::of))
        });

        if filter.uses("state") || filter.uses("vars") {
            let state = redact.redact(displayed_state(self.scope, instance));
            values.insert(
                "vars".to_owned(),
                state.get("vars").cloned().unwrap_or(Value::Null),
            );
            values.insert("state".to_owned(), state);
        }

        values
    }
}

fn to_json<T: serde::Serialize>(view: &T) -> Value {
    serde_json::to_value(view).expect("a view serializes to JSON")
}
