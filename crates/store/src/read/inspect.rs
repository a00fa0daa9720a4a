//! Raw tables in the notation for operators: `saga:{tenant}:{saga}:{correlation}` and so on.
//!
//! Size: one arm for each table.

use std::ops::ControlFlow;

use orlog_model::{
    DeadLetter, DeadLetterOriginal, DefinitionRef, Deployment, HistoryEntry, Input, InputOrigin,
    Instance, JobClaim, JobLogChunk, RecordedPayload, StreamPosition, TaskEvent, TaskRow, TenantId,
    WorkItem,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::counts::{CountKey, of_tenant, read_count};
use crate::encoding::index_keys;
use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::{DefinitionSourceBytes, decode};
use crate::error::Error;
use crate::feed::write;
use crate::read::attention::Attention;
use crate::read::reader::{MAX_PAGE_BYTES, Reader};
use crate::table::{TABLES, Table};
use crate::translate::JobLogRange;

/// Row in readable form.
#[derive(Debug, Clone, PartialEq)]
pub struct InspectRow {
    /// Readable key, for example `saga:acme:order:o-1`.
    pub key: String,
    /// Key in the table.
    pub position: Vec<u8>,
    /// Stored value.
    pub value: Value,
}

/// Query of the rows of a table.
#[derive(Debug, Clone, Default)]
pub struct InspectQuery<'a> {
    /// Table.
    pub table: &'a str,
    /// Tenant; `None`: all tenants.
    pub tenant: Option<&'a TenantId>,
    /// `next` of the previous page.
    pub after: Option<Vec<u8>>,
    /// Maximum number of rows, at least 1.
    pub limit: usize,
    /// Maximum number of scanned rows, at least 1.
    pub scan_limit: usize,
}

/// Rows of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InspectPage {
    /// Rows in key order.
    pub rows: Vec<InspectRow>,
    /// Key of the last scanned row, if rows may follow.
    pub next: Option<Vec<u8>>,
    /// Number of scanned rows.
    pub scanned: usize,
    /// Whether the scan ended at its limit of scanned rows.
    pub is_cut: bool,
}

impl Reader {
    /// Returns the first `limit` rows of a table, as [`Reader::inspect_page`] without a limit of
    /// the scan.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], and the errors of [`Reader`].
    pub fn inspect_rows(
        &self,
        table: &str,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<InspectRow>, Error> {
        let mut query = InspectQuery {
            table,
            tenant,
            after: None,
            limit,
            scan_limit: usize::MAX,
        };
        let mut rows = Vec::new();

        while query.limit > 0 {
            let page = self.inspect_page(&query)?;
            query.limit -= page.rows.len();
            query.after = page.next;
            rows.extend(page.rows);
            if query.after.is_none() {
                break;
            }
        }
        Ok(rows)
    }

    /// Returns rows of a table in key order, of one tenant or of all. Tables that belong to no
    /// tenant require all tenants. Reads no row of another tenant, except in tables whose keys do
    /// not start with the tenant: `schedule`, `dedupe`, `dead_letter_outbox` and `index`. Accepts
    /// the names of [`TABLES`] and the names on disk. A page of large rows can be shorter than its
    /// limit.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], and the errors of [`Reader`].
    pub fn inspect_page(&self, query: &InspectQuery<'_>) -> Result<InspectPage, Error> {
        let table = named(query.table)?;
        let mut page = InspectPage::default();
        let mut bytes = 0;

        for range in self.ranges(table, query.tenant) {
            let range = match &query.after {
                Some(after) => range.after(after),
                None => range,
            };

            self.scan(table, &range, |key, value| {
                page.scanned += 1;
                let (owner, row) = display(table, key, value)?;
                // Tables that are scanned as a whole also contain rows of other tenants.
                if query.tenant.is_none() || query.tenant == owner.as_ref() {
                    bytes += value.len();
                    page.rows.push(row);
                }

                page.is_cut = page.scanned >= query.scan_limit;
                if page.is_cut || page.rows.len() >= query.limit || bytes >= MAX_PAGE_BYTES {
                    page.next = Some(key.to_vec());
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;

            if page.next.is_some() {
                break;
            }
        }
        Ok(page)
    }

    /// Returns the ranges that contain the rows of a tenant.
    fn ranges(&self, table: Table, tenant: Option<&TenantId>) -> Vec<KeyRange> {
        let Some(tenant) = tenant else {
            return vec![KeyRange::all()];
        };

        match table {
            Table::Instance
            | Table::Attention
            | Table::History
            | Table::BufferedInput
            | Table::JobLog
            | Table::JobClaim => self.keys().instances(tenant, None, ""),
            Table::Task | Table::TaskEvent => self
                .keys()
                .slots_of(tenant)
                .map(|slot| keys::tasks(slot, tenant))
                .collect(),
            Table::DeadLetter => vec![keys::dead_letters(tenant)],
            Table::Outbox => keys::tenant_destinations(tenant).collect(),
            Table::Timer
            | Table::Dedupe
            | Table::DeadLetterOutbox
            | Table::Checkpoint
            | Table::Definition
            | Table::Meta
            | Table::Feed
            | Table::Index => vec![KeyRange::all()],
            Table::Count => vec![of_tenant(tenant)],
        }
    }
}

fn named(name: &str) -> Result<Table, Error> {
    let found = Table::ALL
        .into_iter()
        .zip(TABLES)
        .find(|(table, display)| **display == name || table.name() == name);
    found
        .map(|(table, _)| table)
        .ok_or_else(|| Error::NoSuchTable {
            name: name.chars().take(64).collect(),
        })
}

/// Returns a row of a job log: the range of its lines, or lines.
fn job_log(key: &[u8], bytes: &[u8]) -> Result<(Option<TenantId>, String, Value), Error> {
    let (of, number) = keys::read_numbered(key)?;
    let value = match number {
        0 => json::<JobLogRange>(Table::JobLog, bytes)?,
        _ => json::<JobLogChunk>(Table::JobLog, bytes)?,
    };

    Ok((
        Some(of.tenant.clone()),
        format!("job_log:{of}:{number}"),
        value,
    ))
}

/// Returns a row in readable form, with its tenant.
fn display(
    table: Table,
    key: &[u8],
    bytes: &[u8],
) -> Result<(Option<TenantId>, InspectRow), Error> {
    let position = key.to_vec();
    let (owner, key, value) = match table {
        Table::Instance => {
            let (_, of) = keys::read_instance(&mut KeyReader::of(key))?;
            (
                Some(of.tenant.clone()),
                format!("saga:{of}"),
                instance(&decode(table, bytes)?),
            )
        }
        Table::Attention => {
            let (_, of) = keys::read_instance(&mut KeyReader::of(key))?;
            (
                Some(of.tenant.clone()),
                format!("attention:{of}"),
                json::<Attention>(table, bytes)?,
            )
        }
        Table::History => {
            let (of, version) = keys::read_numbered(key)?;
            (
                Some(of.tenant.clone()),
                format!("history:{of}:{version}"),
                history(&decode(table, bytes)?),
            )
        }
        Table::JobLog => job_log(key, bytes)?,
        Table::JobClaim => {
            let (of, job) = keys::read_job_claim(key)?;
            (
                Some(of.tenant.clone()),
                format!("job_claim:{of}:{job}"),
                json::<JobClaim>(table, bytes)?,
            )
        }
        Table::Outbox => outbox(key, &decode(table, bytes)?)?,
        Table::Timer => {
            let (of, timer) = keys::read_timer(key)?;
            (
                Some(of.tenant.clone()),
                format!("schedule:{of}:{}:{}", timer.due, timer.name),
                to_value(&timer),
            )
        }
        Table::Dedupe => {
            let (bucket, of, id) = keys::read_dedupe(key)?;
            (
                Some(of.tenant.clone()),
                format!("dedupe:{of}:{id}"),
                json!({ "bucket": bucket }),
            )
        }
        Table::Checkpoint => {
            let of = keys::read_checkpoint(key)?;
            let value = json::<StreamPosition>(table, bytes)?;
            (
                None,
                format!("checkpoint:{}:{}", of.stream, of.consumer),
                value,
            )
        }
        Table::DeadLetter => {
            let record: DeadLetter = decode(table, bytes)?;
            let name = format!("deadletter:{}:{}", record.tenant, record.id);
            (Some(record.tenant.clone()), name, dead_letter(&record))
        }
        Table::DeadLetterOutbox => {
            let record: DeadLetter = decode(table, bytes)?;
            let id = keys::read_dead_letter_outbox(key)?;
            let name = format!("dead_letter_outbox:{}:{id}", record.tenant);
            (Some(record.tenant.clone()), name, dead_letter(&record))
        }
        Table::BufferedInput => {
            let (of, number) = keys::read_numbered(key)?;
            (
                Some(of.tenant.clone()),
                format!("buffered_input:{of}:{number}"),
                json::<Input>(table, bytes)?,
            )
        }
        Table::Definition => (
            None,
            format!("definition:{}", hex::encode(key)),
            definition(bytes)?,
        ),
        // Before the other rows of `meta`, which have no tenant.
        Table::Meta if key == keys::DEPLOYMENT || keys::is_context_deployment(key) => {
            deployment(bytes)?
        }
        Table::Task => {
            let (tenant, id, _) = keys::read_task(key)?;
            (
                Some(tenant.clone()),
                format!("task:{tenant}:{id}"),
                json::<TaskRow>(table, bytes)?,
            )
        }
        Table::TaskEvent => {
            let (tenant, id, number) = keys::read_task(key)?;
            let name = format!("task_event:{tenant}:{id}:{}", number.unwrap_or_default());
            (Some(tenant), name, json::<TaskEvent>(table, bytes)?)
        }
        Table::Feed => feed(key, bytes)?,
        Table::Index => {
            let of = index_keys::read(key)?;
            (
                Some(of.tenant.clone()),
                format!("index:{of}:{}", hex::encode(key)),
                Value::Null,
            )
        }
        Table::Count => count(key, bytes)?,
        Table::Meta => (
            None,
            format!("meta:{}", String::from_utf8_lossy(key)),
            hex::encode(bytes).into(),
        ),
    };

    let row = InspectRow {
        key,
        position,
        value,
    };
    Ok((owner, row))
}

fn count(key: &[u8], bytes: &[u8]) -> Result<(Option<TenantId>, String, Value), Error> {
    let (
        tenant,
        CountKey {
            saga,
            version,
            hash,
            status,
            paused,
        },
    ) = read_count(key)?;

    let name = format!("count:{tenant}:{saga}:{version}:{status}");
    let count: u64 = decode(Table::Count, bytes)?;

    Ok((
        Some(tenant),
        name,
        json!({ "count": count, "paused": paused, "hash": hex::encode(hash) }),
    ))
}

/// Returns the owner, the name and the value of a deployment.
fn deployment(bytes: &[u8]) -> Result<(Option<TenantId>, String, Value), Error> {
    let Deployment { context, .. } = decode(Table::Meta, bytes)?;
    let name = context.as_ref().map_or_else(
        || "meta:deployment".to_owned(),
        |of| format!("meta:deployment:{of}"),
    );
    Ok((context, name, json::<Deployment>(Table::Meta, bytes)?))
}

fn definition(bytes: &[u8]) -> Result<Value, Error> {
    let (definition, DefinitionSourceBytes(source)): (DefinitionRef, _) =
        decode(Table::Definition, bytes)?;
    let mut value = json!({ "saga": definition.saga, "version": definition.version });

    // A module is not text, so only its size is shown.
    match String::from_utf8(source) {
        Ok(text) => value["source"] = text.into(),
        Err(module) => value["source_bytes"] = module.as_bytes().len().into(),
    }

    Ok(value)
}

fn feed(key: &[u8], bytes: &[u8]) -> Result<(Option<TenantId>, String, Value), Error> {
    let row = write::read(key, bytes)?;
    let name = format!("feed:{}:{}", row.offset.position, row.offset.part);
    Ok((
        None,
        name,
        json!({ "at": row.at, "touched": row.touched.len() }),
    ))
}

fn outbox(key: &[u8], item: &WorkItem) -> Result<(Option<TenantId>, String, Value), Error> {
    let outbox_key = keys::read_outbox(key)?;
    let tenant = item.instance.tenant.clone();
    let kind = to_value(&outbox_key.destination.kind);
    let name = format!(
        "outbox:{tenant}:{}:{}:{}",
        kind.as_str().unwrap_or_default(),
        outbox_key.destination.name,
        outbox_key.sequence
    );
    Ok((Some(tenant), name, to_value(item)))
}

/// Returns a history entry with its payloads and the responses of its attempts as JSON, so that a
/// redaction by field names applies. Of a payload that was cut, only the size is returned; a
/// response that is not JSON is in hexadecimal.
fn history(entry: &HistoryEntry) -> Value {
    let mut value = to_value(entry);
    value["payloads"] = entry
        .payloads
        .iter()
        .enumerate()
        .map(|(index, payload)| payload_value(index, payload))
        .collect();

    // Entries of earlier releases have neither.
    let absent = [
        ("payloads", entry.payloads.is_empty()),
        ("origin", entry.origin == InputOrigin::default()),
    ];
    for (name, _) in absent.into_iter().filter(|(_, is_absent)| *is_absent) {
        value.as_object_mut().and_then(|fields| fields.remove(name));
    }

    if let Some(records) = value
        .pointer_mut("/failure/attempts/records")
        .and_then(Value::as_array_mut)
    {
        for response in records
            .iter_mut()
            .filter_map(|record| record.get_mut("response"))
        {
            if let Some(text) = response.as_str() {
                *response = serde_json::from_str(text)
                    .unwrap_or_else(|_| json!({ "hex": hex::encode(text) }));
            }
        }
    }

    value
}

/// Returns the payload of a history entry with this index.
fn payload_value(index: usize, payload: Option<RecordedPayload<'_>>) -> Value {
    let Some(payload) = payload else {
        return Value::Null;
    };

    // The second payload has the changed variables.
    match serde_json::from_str(&payload.text) {
        Ok(Value::Object(changes)) if index == 1 && !payload.is_cut() => changes
            .into_iter()
            .map(|(name, change)| {
                let variable = name.split('[').next().unwrap_or_default();
                json!({ "vars": { variable: change } })
            })
            .collect(),
        Ok(whole) if !payload.is_cut() => whole,
        Ok(_) | Err(_) => json!({ "size": payload.size }),
    }
}

/// Returns a snapshot with a readable state if it is JSON or MessagePack; otherwise in hexadecimal.
fn instance(instance: &Instance) -> Value {
    let mut value = to_value(instance);
    let state = &instance.state;
    let readable = serde_json::from_slice(state).ok().or_else(|| {
        // The whole state must be MessagePack. The first bytes of another format can be valid by
        // chance.
        let mut rest = state.as_slice();
        rmp_serde::from_read::<_, Value>(&mut rest)
            .ok()
            .filter(|_| rest.is_empty())
    });

    value["state"] = readable.unwrap_or_else(|| json!({ "hex": hex::encode(state) }));
    value["definition"]["hash"] = Value::String(hex::encode(instance.definition.hash));
    value
}

/// Returns a dead letter; the body of a message is JSON if possible, otherwise hexadecimal.
fn dead_letter(record: &DeadLetter) -> Value {
    let mut value = to_value(record);
    if let DeadLetterOriginal::Message { payload, .. } = &record.original {
        let readable = serde_json::from_slice(payload)
            .unwrap_or_else(|_| json!({ "hex": hex::encode(payload) }));
        value["original"]["Message"]["payload"] = readable;
    }
    value
}

fn json<T: serde::de::DeserializeOwned + Serialize>(
    table: Table,
    bytes: &[u8],
) -> Result<Value, Error> {
    decode::<T>(table, bytes).map(|value| to_value(&value))
}

fn to_value<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("the types of the model can be serialized as JSON")
}
