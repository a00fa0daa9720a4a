//! Instances that a condition holds of: looked through a chunk at a time, within bounds of rows, of time and of work.

use std::time::{Duration, Instant};

use orlog_model::{Instance, InstanceKey, Timestamp};
use orlog_program::{Filter, Unmet};
use orlog_store::{InstanceQuery, Reader};
use serde_json::{Map, Value, json};

use super::view::{FailureView, OpenTask, ParentView, ProgramView, WaitView, state};
use crate::api::errors::bad_parameter;
use crate::api::problem::Problem;
use crate::app::App;

/// Instances read at once; the tables are not held while they are looked at.
const CHUNK: usize = 256;
/// The units of work that the conditions of one request may take: about a second.
const UNITS: u64 = 20_000_000;
/// The names that are times.
const TIMES: [&str; 3] = ["created_at", "updated_at", "now"];

/// What is looked for.
pub(super) struct Search {
    /// What the store itself can tell, where the last page ended, and the bounds.
    pub(super) query: InstanceQuery,
    /// The shard in which the last page ended.
    pub(super) first: usize,
    pub(super) filter: Option<Filter>,
    /// Whether they are counted beyond the page.
    pub(super) count: bool,
    /// How long it may take.
    pub(super) patience: Duration,
}

/// What was found.
#[derive(Default)]
pub(super) struct Sifted {
    pub(super) items: Vec<(InstanceKey, Instance)>,
    pub(super) next: Option<String>,
    pub(super) scanned: usize,
    /// How many there are from the cursor on, and whether all were looked at.
    pub(super) count: (u64, bool),
    /// Of how many the condition was neither true nor false, and why of the first of them.
    pub(super) failed: (u64, Option<String>),
}

/// Compiles the condition of a request.
///
/// # Errors
/// When it is none; the text names the place.
pub(super) fn compiled(source: &str) -> Result<Filter, Problem> {
    let refused = |error: orlog_program::FilterError| bad_parameter("filter", error.to_string());
    Filter::compile(source, &example(), &TIMES).map_err(refused)
}

/// A row as conditions see it, without what differs from saga to saga.
fn example() -> Map<String, Value> {
    let time = "2026-01-01T00:00:00Z";
    let example = json!({
        "saga": "order", "correlation": "o-1", "reference": null, "status": "running", "paused": false, "version": 1,
        "program": { "version": 1, "hash": "00" }, "created_at": time, "updated_at": time, "now": time,
        "waits": null, "tasks": null, "last_error": null, "node": "node-1", "parent": null,
        "state": null, "vars": null,
    });
    example.as_object().cloned().unwrap_or_default()
}

/// Looks through one shard after the other. Blocks.
///
/// # Errors
/// When a store cannot be read, or the condition turns out to be none.
pub(super) fn search(app: &App, search: Search) -> Result<Sifted, Problem> {
    let Search { mut query, first, filter, count, patience } = search;
    let sieve = Sieve { app, filter: filter.as_ref(), now: app.clock.now() };
    let (limit, scan_limit, until) = (query.limit, query.scan_limit, Instant::now() + patience);
    let mut sifted = Sifted::default();
    let mut units = 0;
    let from_the_beginning = first == 0 && query.cursor.is_none();
    let shards = app.runtime.numbered_readers().skip_while(|(index, _)| usize::from(*index) < first);
    for (index, reader) in shards {
        if usize::from(index) != first {
            query.cursor = None;
        }
        loop {
            if sifted.scanned >= scan_limit || units > UNITS || Instant::now() > until {
                let here = format!("{index}.{}", query.cursor.as_deref().unwrap_or_default());
                sifted.next.get_or_insert(here);
                return Ok(sifted);
            }
            query.limit = CHUNK;
            query.scan_limit = CHUNK.min(scan_limit - sifted.scanned);
            let chunk = reader.instances(&query)?;
            sifted.scanned += chunk.scanned;
            for (key, instance) in chunk.items {
                let (holds, cost) = sieve.holds(&key, &instance)?;
                units += u64::from(cost);
                match holds {
                    Ok(true) => take(&mut sifted, (index, &reader), limit, (key, instance)),
                    Ok(false) => {}
                    Err(why) => {
                        sifted.failed.0 += 1;
                        sifted.failed.1.get_or_insert(why);
                    }
                }
                if sifted.next.is_some() && !count {
                    return Ok(sifted);
                }
            }
            match chunk.next {
                Some(next) => query.cursor = Some(next),
                None => break,
            }
        }
    }
    sifted.count.1 = from_the_beginning;
    Ok(sifted)
}

fn take(sifted: &mut Sifted, (shard, reader): (u16, &Reader), limit: usize, found: (InstanceKey, Instance)) {
    sifted.count.0 += 1;
    if sifted.items.len() < limit {
        if sifted.items.len() + 1 == limit {
            sifted.next = Some(format!("{shard}.{}", reader.cursor(&found.0)));
        }
        sifted.items.push(found);
    }
}

/// Asks the condition of one instance after the other.
struct Sieve<'a> {
    app: &'a App,
    filter: Option<&'a Filter>,
    now: Timestamp,
}

impl Sieve<'_> {
    fn holds(&self, key: &InstanceKey, instance: &Instance) -> Result<(Result<bool, String>, u32), Problem> {
        let Some(filter) = self.filter else { return Ok((Ok(true), 0)) };
        match filter.holds(&self.values(filter, key, instance)) {
            (Ok(holds), units) => Ok((Ok(holds), units)),
            (Err(Unmet::NoValue(why)), units) => Ok((Err(format!("{key}: {why}")), units)),
            (Err(Unmet::NotACondition(why)), _) => Err(bad_parameter("filter", why)),
        }
    }

    /// What the condition speaks of, and nothing else: a state that nobody asks about is not read.
    fn values(&self, filter: &Filter, key: &InstanceKey, instance: &Instance) -> Map<String, Value> {
        let mut values = Map::new();
        let mut set = |name: &str, value: &dyn Fn() -> Value| {
            if filter.uses(name) {
                values.insert(name.to_owned(), value());
            }
        };
        set("saga", &|| key.saga.as_str().into());
        set("correlation", &|| key.correlation.as_str().into());
        set("reference", &|| instance.reference.clone().into());
        set("status", &|| instance.status.as_str().into());
        set("paused", &|| instance.paused.into());
        set("version", &|| instance.version.into());
        set("program", &|| shown(&ProgramView::of(&instance.program)));
        set("created_at", &|| instance.created_at.to_string().into());
        set("updated_at", &|| instance.updated_at.to_string().into());
        set("now", &|| self.now.to_string().into());
        set("waits", &|| shown(&instance.waits.iter().map(WaitView::of).collect::<Vec<_>>()));
        set("tasks", &|| shown(&instance.tasks.iter().map(OpenTask::of).collect::<Vec<_>>()));
        set("last_error", &|| shown(&instance.last_error.as_ref().map(FailureView::of)));
        set("node", &|| instance.node.as_str().into());
        set("parent", &|| shown(&instance.parent.as_deref().map(ParentView::of)));
        if filter.uses("state") || filter.uses("vars") {
            // As it is shown: what nobody may read cannot be asked about either.
            let state = self.app.config.redact.shown(self.state(instance));
            values.insert("vars".to_owned(), state.get("vars").cloned().unwrap_or(Value::Null));
            values.insert("state".to_owned(), state);
        }
        values
    }

    fn state(&self, instance: &Instance) -> Value {
        let program = self.app.programs.pinned(&instance.program.hash);
        program.and_then(|program| program.show(&instance.state)).unwrap_or_else(|| state(&instance.state))
    }
}

fn shown<T: serde::Serialize>(view: &T) -> Value {
    serde_json::to_value(view).expect("views can be shown as JSON")
}
