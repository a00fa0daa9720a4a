//! The raw tables, in the notation that operators know: `saga:{tenant}:{saga}:{correlation}` and so on.

use std::ops::ControlFlow;

use orlog_model::{
    DeadLetter, Deployment, Input, Instance, Original, ProgramRef, Record, StreamPosition, TaskEvent,
    TaskRow, TenantId, WorkItem,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::encoding::definition_source::SourceBytes;
use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::{Fields, hex};
use crate::encoding::value::decode;
use crate::error::Error;
use crate::feed::write;
use crate::read::attention::Attention;
use crate::read::reader::Reader;
use crate::table::{TABLES, Table};

/// A row for people.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is about, for example `saga:acme:order:o-1`.
    pub key: String,
    /// What is stored.
    pub value: Value,
}

impl Reader {
    /// The rows of a table in the order of their keys, of one tenant or of all. Tables that belong to no tenant answer only
    /// the latter. Takes the names of [`TABLES`] and those on disk.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], and those of [`Reader`].
    pub fn rows(&self, table: &str, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<Row>, Error> {
        let table = named(table)?;
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        self.shared.scan(table, &Range::all(), |key, value| {
            let (owner, row) = shown(table, key, value)?;
            if tenant.is_none() || tenant == owner.as_ref() {
                rows.push(row);
            }
            Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(rows)
    }
}

fn named(name: &str) -> Result<Table, Error> {
    let found =
        Table::ALL.into_iter().zip(TABLES).find(|(table, shown)| **shown == name || table.name() == name);
    found.map(|(table, _)| table).ok_or_else(|| Error::NoSuchTable { name: name.chars().take(64).collect() })
}

/// A row for people, and whose it is.
fn shown(table: Table, key: &[u8], bytes: &[u8]) -> Result<(Option<TenantId>, Row), Error> {
    let (owner, key, value) = match table {
        Table::Instance => {
            let (_, of) = keys::read_instance(&mut Fields::of(key))?;
            (Some(of.tenant.clone()), format!("saga:{of}"), instance(&decode(table, bytes)?))
        }
        Table::Attention => {
            let (_, of) = keys::read_instance(&mut Fields::of(key))?;
            (Some(of.tenant.clone()), format!("attention:{of}"), json::<Attention>(table, bytes)?)
        }
        Table::History => {
            let (of, version) = keys::read_numbered(key)?;
            (Some(of.tenant.clone()), format!("history:{of}:{version}"), json::<Record>(table, bytes)?)
        }
        Table::Outbox => outbox(key, &decode(table, bytes)?)?,
        Table::Timer => {
            let (of, timer) = keys::read_timer(key)?;
            (Some(of.tenant.clone()), format!("schedule:{of}:{}:{}", timer.due, timer.name), plain(&timer))
        }
        Table::Applied => {
            let (bucket, of, id) = keys::read_applied(key)?;
            (Some(of.tenant.clone()), format!("dedupe:{of}:{id}"), json!({ "bucket": bucket }))
        }
        Table::Checkpoint => {
            let of = keys::read_checkpoint(key)?;
            let value = json::<StreamPosition>(table, bytes)?;
            (None, format!("checkpoint:{}:{}", of.stream, of.consumer), value)
        }
        Table::DeadLetter => {
            let letter: DeadLetter = decode(table, bytes)?;
            let name = format!("deadletter:{}:{}", letter.tenant, letter.id);
            (Some(letter.tenant.clone()), name, dead_letter(&letter))
        }
        Table::LetterOutbox => {
            let letter: DeadLetter = decode(table, bytes)?;
            let name = format!("letter_outbox:{}:{}", letter.tenant, keys::read_letter_outbox(key)?);
            (Some(letter.tenant.clone()), name, dead_letter(&letter))
        }
        Table::Held => {
            let (of, number) = keys::read_numbered(key)?;
            (Some(of.tenant.clone()), format!("held:{of}:{number}"), json::<Input>(table, bytes)?)
        }
        Table::Definition => {
            let (program, SourceBytes(source)): (ProgramRef, SourceBytes) = decode(table, bytes)?;
            let mut value = json!({ "saga": program.saga, "version": program.version });
            match String::from_utf8(source) {
                Ok(text) => value["source"] = text.into(),
                Err(module) => value["source_bytes"] = module.as_bytes().len().into(),
            }
            (None, format!("definition:{}", hex(key)), value)
        }
        Table::Meta if key == keys::DEPLOYMENT => {
            (None, "meta:deployment".to_owned(), json::<Deployment>(table, bytes)?)
        }
        Table::Task => {
            let (tenant, id, _) = keys::read_task(key)?;
            (Some(tenant.clone()), format!("task:{tenant}:{id}"), json::<TaskRow>(table, bytes)?)
        }
        Table::TaskEvent => {
            let (tenant, id, number) = keys::read_task(key)?;
            let name = format!("task_event:{tenant}:{id}:{}", number.unwrap_or_default());
            (Some(tenant), name, json::<TaskEvent>(table, bytes)?)
        }
        Table::Feed => feed(key, bytes)?,
        Table::Meta => (None, format!("meta:{}", String::from_utf8_lossy(key)), Value::String(hex(bytes))),
    };
    Ok((owner, Row { key, value }))
}

fn feed(key: &[u8], bytes: &[u8]) -> Result<(Option<TenantId>, String, Value), Error> {
    let row = write::read(key, bytes)?;
    let name = format!("feed:{}:{}", row.mark.position, row.mark.part);
    Ok((None, name, json!({ "at": row.at, "touched": row.touched.len() })))
}

fn outbox(key: &[u8], item: &WorkItem) -> Result<(Option<TenantId>, String, Value), Error> {
    let place = keys::read_outbox(key)?;
    let tenant = item.instance.tenant.clone();
    let kind = plain(&place.lane.kind);
    let name = format!(
        "outbox:{tenant}:{}:{}:{}",
        kind.as_str().unwrap_or_default(),
        place.lane.name,
        place.sequence
    );
    Ok((Some(tenant), name, plain(item)))
}

/// A snapshot with a state that people can read, where it is JSON or MessagePack; its digits otherwise.
fn instance(instance: &Instance) -> Value {
    let mut value = plain(instance);
    let state = &instance.state;
    let readable = serde_json::from_slice(state).ok().or_else(|| {
        let mut rest = state.as_slice();
        rmp_serde::from_read::<_, Value>(&mut rest).ok().filter(|_| rest.is_empty())
    });
    value["state"] = readable.unwrap_or_else(|| json!({ "hex": hex(state) }));
    value["program"]["hash"] = Value::String(hex(&instance.program.hash));
    value
}

/// A message shows its body as JSON where it is, its digits otherwise.
fn dead_letter(letter: &DeadLetter) -> Value {
    let mut value = plain(letter);
    if let Original::Message { payload, .. } = &letter.original {
        let readable = serde_json::from_slice(payload).unwrap_or_else(|_| json!({ "hex": hex(payload) }));
        value["original"]["Message"]["payload"] = readable;
    }
    value
}

fn json<T: serde::de::DeserializeOwned + Serialize>(table: Table, bytes: &[u8]) -> Result<Value, Error> {
    decode::<T>(table, bytes).map(|value| plain(&value))
}

fn plain<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("the words of the model can be shown as JSON")
}
