//! Backend in a directory: instances in memory, and a journal that makes each change durable.
//!
//! One thread owns the table and the journal. It applies all waiting requests, appends the changed
//! rows as one record, syncs it and then answers all of them: a group commit. A row in the journal
//! is complete, so the last one of each instance counts. The journal is compacted when most of its
//! rows are outdated.
//!
//! Ended instances stay in memory until they are purged ([`Backend::purge`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use async_trait::async_trait;
use bytes::Bytes;
use orlog_journal::{Journal, Options};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::table::{Row, Table};
use super::{
    Backend, BackendError, Claim, Fetched, Hub, InstanceId, NewInstance, Save, Signal,
    StoredInstance,
};

/// Identity of the journals of this backend.
const IDENTITY: [u8; 16] = *b"orlog-workflow-1";
/// Maximum number of requests in one group commit.
const GROUP: usize = 4096;
/// Appended bytes after which the journal is compacted, at least.
const COMPACT_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// Approximate size of a record of the compaction.
const COMPACT_RECORD_BYTES: usize = 1 << 20;

/// Backend in a directory, durable after a power failure. One process can open it at a time.
#[derive(Debug)]
pub struct EmbeddedBackend {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    hub: Hub,
}

/// Request: applies a change, and returns the answer to send after the change is durable.
type Request = Box<dyn FnOnce(&mut Changes) -> Answer + Send>;
type Answer = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Table and the changes that are not in the journal yet.
#[derive(Default)]
struct Changes {
    table: Table,
    hub: Hub,
    rows: BTreeSet<InstanceId>,
    removed: Vec<InstanceId>,
    graphs: Vec<(String, Bytes)>,
}

/// Record of the journal.
#[derive(Serialize, Deserialize)]
struct Record<R> {
    rows: Vec<R>,
    removed: Vec<String>,
    graphs: Vec<(String, Bytes)>,
}

impl EmbeddedBackend {
    /// Opens the backend in a directory, or creates it.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if another process uses the directory or the disk fails;
    /// [`BackendError::Corrupt`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, BackendError> {
        let unavailable = |error: orlog_journal::Error| BackendError::Unavailable {
            action: "open the directory",
            reason: error.to_string(),
        };
        let (journal, _) = Journal::open(dir, options()).map_err(unavailable)?;

        let hub = Hub::default();
        let mut changes = Changes {
            hub: hub.clone(),
            ..Changes::default()
        };

        let reader = journal.reader();
        reader
            // A compaction has dropped the records before the first one.
            .for_each(reader.first_sequence(), |_, record| {
                changes.replay(record).map_err(ReplayError::Record)
            })
            .map_err(|error| match error {
                ReplayError::Journal(error) => unavailable(error),
                ReplayError::Record(reason) => BackendError::Corrupt { reason },
            })?;

        let (requests, receiver) = mpsc::channel();
        let compact_at_bytes = compact_at(&changes.table);
        let writer = Writer {
            journal,
            changes,
            appended_bytes: 0,
            compact_at_bytes,
            failure: None,
        };

        let thread = std::thread::Builder::new()
            .name("orlog-workflow".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|error| BackendError::Unavailable {
                action: "start its thread",
                reason: error.to_string(),
            })?;

        Ok(Self {
            requests: Some(requests),
            thread: Some(thread),
            hub,
        })
    }

    /// Applies a change, and returns its result after it is durable.
    async fn request<T: Send + 'static>(
        &self,
        action: &'static str,
        apply: impl FnOnce(&mut Changes) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let (sender, receiver) = oneshot::channel();
        let request: Request = Box::new(move |changes| {
            let result = apply(changes);
            // The caller may have stopped to wait.
            Box::new(move |durable| drop(sender.send(durable.map(|()| result))))
        });

        let unavailable = |reason| BackendError::Unavailable { action, reason };
        let stopped = || unavailable("its thread has stopped".to_owned());

        self.requests
            .as_ref()
            .ok_or_else(stopped)?
            .send(request)
            .map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?.map_err(unavailable)
    }
}

impl Drop for EmbeddedBackend {
    fn drop(&mut self) {
        // The thread ends when its channel is closed.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported to the callers.
            thread.join().ok();
        }
    }
}

enum ReplayError {
    Journal(orlog_journal::Error),
    Record(String),
}

impl From<orlog_journal::Error> for ReplayError {
    fn from(error: orlog_journal::Error) -> Self {
        Self::Journal(error)
    }
}

impl Changes {
    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        let record: Record<Row> =
            rmp_serde::from_slice(record).map_err(|error| error.to_string())?;

        // An id that was removed can be that of a new instance of the same record; an instance that
        // was removed last has no row.
        record.removed.iter().for_each(|id| self.table.remove(id));
        record.rows.into_iter().for_each(|row| self.table.put(row));
        self.table.graphs.extend(record.graphs);
        Ok(())
    }

    /// Returns the record of the changes, if there are any.
    fn take_record(&mut self) -> Result<Option<Vec<u8>>, String> {
        if self.rows.is_empty() && self.removed.is_empty() && self.graphs.is_empty() {
            return Ok(None);
        }

        let ids = std::mem::take(&mut self.rows);
        let removed = std::mem::take(&mut self.removed);
        let record = Record {
            // An instance that was purged in the same group has no row.
            rows: ids
                .iter()
                .filter_map(|id| self.table.row(id))
                .collect::<Vec<_>>(),
            removed: removed.iter().map(ToString::to_string).collect(),
            graphs: std::mem::take(&mut self.graphs),
        };
        encode(&record).map(Some)
    }
}

fn encode(record: &Record<&Row>) -> Result<Vec<u8>, String> {
    rmp_serde::to_vec(record).map_err(|error| error.to_string())
}

fn options() -> Options {
    Options {
        segment_bytes: COMPACT_BYTES,
        ..Options::new(IDENTITY)
    }
}

/// Returns the number of appended bytes that causes a compaction: two thirds of the journal are
/// outdated then.
fn compact_at(table: &Table) -> u64 {
    COMPACT_BYTES.max(2 * table.bytes())
}

/// Thread that owns table and journal.
struct Writer {
    journal: Journal,
    changes: Changes,
    /// Bytes since the last compaction, and the number of bytes that causes the next one.
    appended_bytes: u64,
    compact_at_bytes: u64,
    /// First failure of the journal. The table may contain changes that are not durable, so each
    /// later request fails.
    failure: Option<String>,
}

impl Writer {
    fn run(mut self, requests: &mpsc::Receiver<Request>) {
        while let Ok(first) = requests.recv() {
            // All requests that wait share one record and one sync.
            let mut answers = vec![first(&mut self.changes)];
            while answers.len() < GROUP
                && let Ok(request) = requests.try_recv()
            {
                answers.push(request(&mut self.changes));
            }

            let durable = self.commit();

            for answer in answers {
                // Only now: a response states that the change survives a power failure.
                answer(durable.clone());
            }
        }
    }

    fn commit(&mut self) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }

        let result = self.write();
        // After a failed write, the end of the journal is unknown. Further records behind it could
        // be lost, so none is accepted.
        if let Err(reason) = &result {
            let reason = format!("{reason}; reopen the backend after the cause is removed");
            tracing::error!(reason, "the journal of the workflows failed");
            self.failure = Some(reason.clone());
            return Err(reason);
        }
        result
    }

    fn write(&mut self) -> Result<(), String> {
        let Some(record) = self.changes.take_record()? else {
            return Ok(());
        };

        self.append(&record)?;
        self.journal.sync().map_err(|error| error.to_string())?;

        if self.appended_bytes > self.compact_at_bytes {
            self.compact()?;
        }
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> Result<u64, String> {
        self.appended_bytes += record.len() as u64;
        self.journal
            .append(&[record])
            .map_err(|error| error.to_string())
    }

    /// Appends all rows again and drops the records before them.
    fn compact(&mut self) -> Result<(), String> {
        let first = self.journal.next_sequence();
        let graphs = self
            .changes
            .table
            .graphs
            .iter()
            .map(|(hash, graph)| (hash.clone(), graph.clone()))
            .collect();

        // The graphs come first: a row is read only after the graph that it refers to.
        let mut records = vec![encode(&Record {
            rows: Vec::new(),
            removed: Vec::new(),
            graphs,
        })?];

        // Several records, because a record has a maximum size.
        let mut rows = Vec::new();
        let mut bytes = 0;
        for row in self.changes.table.rows().collect::<Vec<_>>() {
            bytes += row.bytes();
            rows.push(row);
            if bytes >= COMPACT_RECORD_BYTES {
                records.push(encode(&Record {
                    rows: std::mem::take(&mut rows),
                    removed: Vec::new(),
                    graphs: Vec::new(),
                })?);
                bytes = 0;
            }
        }

        records.push(encode(&Record {
            rows,
            removed: Vec::new(),
            graphs: Vec::new(),
        })?);

        for record in records {
            self.append(&record)?;
        }

        // The old records are dropped only after the new ones are durable.
        self.journal.sync().map_err(|error| error.to_string())?;
        self.journal
            .truncate_before(first)
            .map_err(|error| error.to_string())?;

        self.appended_bytes = 0;
        self.compact_at_bytes = compact_at(&self.changes.table);
        Ok(())
    }
}

#[async_trait]
impl Backend for EmbeddedBackend {
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError> {
        self.request("store an instance", move |changes: &mut Changes| {
            let id = InstanceId::clone(&instance.id);
            let is_created = changes.table.create(instance, &changes.hub);
            if is_created {
                changes.rows.insert(id);
            }
            is_created
        })
        .await
    }

    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError> {
        let id = id.to_owned();
        // Through the thread too: a read must not return a change that is not durable.
        self.request("read an instance", move |changes| changes.table.load(&id))
            .await
    }

    async fn save(&self, save: Save) -> Result<(), BackendError> {
        self.request("store a snapshot", move |changes: &mut Changes| {
            let id = InstanceId::clone(&save.id);
            // A fenced snapshot changes no row, so nothing is journaled.
            changes.table.save(save, &changes.hub)?;
            changes.rows.insert(id);
            Ok(())
        })
        .await?
    }

    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError> {
        self.request("list instances", move |changes| {
            changes.table.fetch(limit, now_ms)
        })
        .await
    }

    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError> {
        let ids = ids.to_vec();
        let claim = claim.clone();
        self.request("claim instances", move |changes: &mut Changes| {
            let claimed = changes.table.claim(&ids, &claim);
            changes.rows.extend(
                claimed
                    .iter()
                    .map(|instance| InstanceId::clone(&instance.id)),
            );
            claimed
        })
        .await
    }

    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError> {
        let id = id.to_owned();
        let holder = holder.to_owned();
        self.request("claim an instance", move |changes: &mut Changes| {
            let claimed = changes.table.take_over(&id, &holder);
            changes.rows.extend(
                claimed
                    .iter()
                    .map(|instance| InstanceId::clone(&instance.id)),
            );
            claimed
        })
        .await
    }

    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError> {
        let claims = claims.to_vec();
        self.request("extend claims", move |changes: &mut Changes| {
            let lost = changes.table.extend(&claims, until_ms);
            // Lost claims too: a row that has not changed is written again without harm.
            changes.rows.extend(claims.into_iter().map(|(id, _)| id));
            lost
        })
        .await
    }

    async fn send_signal(
        &self,
        id: &str,
        name: &str,
        payload: Bytes,
    ) -> Result<bool, BackendError> {
        let id = InstanceId::from(id);
        let name = name.to_owned();
        self.request("store a signal", move |changes: &mut Changes| {
            let is_sent = changes.table.send_signal(&id, &name, payload, &changes.hub);
            if is_sent {
                changes.rows.insert(id);
            }
            is_sent
        })
        .await
    }

    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError> {
        let id = id.to_owned();
        self.request("read signals", move |changes| {
            changes.table.signals(&id, after)
        })
        .await
    }

    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError> {
        let after = after.map(str::to_owned);
        self.request("list instances", move |changes| {
            changes.table.unended(after.as_deref(), limit)
        })
        .await
    }

    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError> {
        let hash = hash.to_owned();
        self.request("store a graph", move |changes: &mut Changes| {
            // Each process stores a graph before its first instance, but the journal needs it once.
            if changes
                .table
                .graphs
                .insert(hash.clone(), graph.clone())
                .is_none()
            {
                changes.graphs.push((hash, graph));
            }
        })
        .await
    }

    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError> {
        let hash = hash.to_owned();
        self.request("read a graph", move |changes| {
            changes.table.graphs.get(&hash).cloned()
        })
        .await
    }

    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError> {
        self.request("purge instances", move |changes: &mut Changes| {
            let ended = changes.table.ended_before(ended_before_ms);
            for id in &ended {
                changes.table.remove(id);
            }
            let count = ended.len() as u64;

            changes.removed.extend(ended);
            count
        })
        .await
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

#[cfg(test)]
mod tests {
    use orlog_testkit::wait::within;

    use super::*;
    use crate::backend::After;

    fn instance(id: &str) -> NewInstance {
        NewInstance {
            id: id.into(),
            workflow: "order".into(),
            hash: "h1".into(),
            state: Bytes::from(vec![7; 1000]),
            wake_ms: 0,
            holder: Some("r1".into()),
        }
    }

    async fn save(backend: &EmbeddedBackend, id: &str, state: u8, then: After) {
        let state = Bytes::from(vec![state; 1000]);
        let save = Save {
            id: id.into(),
            epoch: 1,
            hash: "h1".into(),
            state,
            last_signal: 0,
            then,
        };
        backend.save(save).await.expect("the holder saves");
    }

    #[test]
    fn an_instance_that_replaces_a_purged_one_of_the_same_record_is_replayed() {
        let mut changes = Changes::default();
        let hub = Hub::default();
        assert!(changes.table.create(instance("a"), &hub));
        changes.rows.insert("a".into());
        changes.removed.push("a".into());
        let record = changes.take_record().expect("encodes").expect("changes");
        let mut replayed = Changes::default();
        replayed.replay(&record).expect("a record");
        assert!(replayed.table.row("a").is_some());
    }

    #[tokio::test]
    async fn a_compacted_journal_is_small_and_has_the_last_rows() {
        let dir = tempfile::tempdir().expect("a directory");
        let backend = EmbeddedBackend::open(dir.path()).expect("opens");
        let work = async {
            backend
                .put_graph("h1", Bytes::from_static(b"g1"))
                .await
                .expect("stores");
            for id in ["a", "b", "c"] {
                backend.create(instance(id)).await.expect("stores");
            }
            for state in 0..=250 {
                save(&backend, "a", state, After::Keep).await;
            }
            save(&backend, "b", 1, After::End { at_ms: 10 }).await;
            assert_eq!(backend.purge(20).await.expect("deletes"), 1);
            for state in 0..=250 {
                save(&backend, "a", state, After::Keep).await;
            }
        };
        within("the backend responds", work).await;
        drop(backend);
        let (journal, _) = Journal::open(dir.path(), options()).expect("opens");
        assert!(
            journal.first_sequence() > 1,
            "the first records are dropped"
        );
        drop(journal);
        let backend = EmbeddedBackend::open(dir.path()).expect("opens");
        let stored = backend.load("a").await.expect("reads").expect("exists");
        assert_eq!(stored.state, Bytes::from(vec![250; 1000]));
        assert_eq!(backend.load("b").await.expect("reads"), None);
        assert_eq!(
            backend
                .load("c")
                .await
                .expect("reads")
                .expect("exists")
                .epoch,
            1
        );
        assert_eq!(
            backend.graph("h1").await.expect("reads").as_deref(),
            Some(&b"g1"[..])
        );
    }
}
