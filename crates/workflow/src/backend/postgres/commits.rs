//! Group commits: creations, snapshots and heartbeats of one process, many in each transaction.
//!
//! A process has one transaction in flight, so its transactions cannot deadlock with each other; requests that arrive meanwhile
//! form the next one. Claims of other processes skip locked rows.

use std::collections::HashSet;

use sqlx::{PgPool, Row as _};
use tokio::sync::{mpsc, oneshot};

use super::super::{After, BackendError, InstanceId, NEVER_MS, NewInstance, Save};
use super::statements;

/// Maximum number of requests in one transaction.
const GROUP: usize = 1024;

/// Request of a group commit.
pub(super) enum Request {
    Create(NewInstance, Answer<bool>),
    Save(Save, Answer<()>),
    Extend { id: InstanceId, epoch: u64, until_ms: u64, answer: Answer<bool> },
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, BackendError>>;

/// Requests of one transaction.
#[derive(Default)]
struct Group {
    creates: Vec<(NewInstance, Answer<bool>)>,
    saves: Vec<(Save, Answer<()>)>,
    extends: Vec<(InstanceId, u64, u64, Answer<bool>)>,
}

/// Ids that a transaction has changed.
struct Changed {
    created: HashSet<String>,
    saved: HashSet<String>,
    extended: HashSet<String>,
}

/// Commits requests until the backend is dropped.
pub(super) async fn commit_all(pool: PgPool, mut requests: mpsc::Receiver<Request>) {
    let mut batch = Vec::with_capacity(GROUP);
    while requests.recv_many(&mut batch, GROUP).await > 0 {
        let mut group = Group::default();
        for request in batch.drain(..) {
            match request {
                Request::Create(instance, answer) => group.creates.push((instance, answer)),
                Request::Save(save, answer) => group.saves.push((save, answer)),
                Request::Extend { id, epoch, until_ms, answer } => {
                    group.extends.push((id, epoch, until_ms, answer));
                }
            }
        }
        let changed = group.commit(&pool).await;
        group.answer(changed.map_err(|error| error.to_string()));
    }
}

impl Group {
    async fn commit(&self, pool: &PgPool) -> Result<Changed, sqlx::Error> {
        let mut transaction = pool.begin().await?;
        let created = self.create(&mut transaction).await?;
        let saved = self.save(&mut transaction).await?;
        let extended = self.extend(&mut transaction).await?;
        let notified = self.notified(&created);
        if !notified.is_empty() {
            sqlx::query(statements::NOTIFY).bind(notified).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(Changed { created, saved, extended })
    }

    async fn create(&self, connection: &mut sqlx::PgConnection) -> Result<HashSet<String>, sqlx::Error> {
        if self.creates.is_empty() {
            return Ok(HashSet::new());
        }
        let all = || self.creates.iter().map(|(instance, _)| instance);
        let available = |new: &NewInstance| if new.holder.is_some() { NEVER_MS } else { new.wake_ms };
        let rows = sqlx::query(statements::CREATE)
            .bind(all().map(|new| new.id.to_string()).collect::<Vec<_>>())
            .bind(all().map(|new| new.workflow.to_string()).collect::<Vec<_>>())
            .bind(all().map(|new| new.hash.to_string()).collect::<Vec<_>>())
            .bind(all().map(|new| i64::from(new.holder.is_some())).collect::<Vec<_>>())
            .bind(all().map(|new| new.holder.as_ref().map(ToString::to_string)).collect::<Vec<_>>())
            .bind(all().map(|new| big(available(new))).collect::<Vec<_>>())
            .bind(all().map(|new| new.state.to_vec()).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        ids(&rows)
    }

    async fn save(&self, connection: &mut sqlx::PgConnection) -> Result<HashSet<String>, sqlx::Error> {
        if self.saves.is_empty() {
            return Ok(HashSet::new());
        }
        let all = || self.saves.iter().map(|(save, _)| save);
        let then = |save: &Save| match save.then {
            After::Keep => (0, 0),
            After::Release { wake_ms } => (1, big(wake_ms)),
            After::End { at_ms } => (2, big(at_ms)),
        };
        let rows = sqlx::query(statements::SAVE)
            .bind(all().map(|save| save.id.to_string()).collect::<Vec<_>>())
            .bind(all().map(|save| big(save.epoch)).collect::<Vec<_>>())
            .bind(all().map(|save| save.hash.to_string()).collect::<Vec<_>>())
            .bind(all().map(|save| save.state.to_vec()).collect::<Vec<_>>())
            .bind(all().map(|save| big(save.last_signal)).collect::<Vec<_>>())
            .bind(all().map(|save| then(save).0).collect::<Vec<i32>>())
            .bind(all().map(|save| then(save).1).collect::<Vec<_>>())
            .bind(big(NEVER_MS))
            .fetch_all(&mut *connection)
            .await?;
        let saved = ids(&rows)?;
        let consumed: Vec<_> =
            all().filter(|save| save.last_signal > 0 && saved.contains(&*save.id)).collect();
        if !consumed.is_empty() {
            sqlx::query(statements::CONSUME)
                .bind(consumed.iter().map(|save| save.id.to_string()).collect::<Vec<_>>())
                .bind(consumed.iter().map(|save| big(save.last_signal)).collect::<Vec<_>>())
                .execute(connection)
                .await?;
        }
        Ok(saved)
    }

    async fn extend(&self, connection: &mut sqlx::PgConnection) -> Result<HashSet<String>, sqlx::Error> {
        if self.extends.is_empty() {
            return Ok(HashSet::new());
        }
        let rows = sqlx::query(statements::EXTEND)
            .bind(self.extends.iter().map(|extend| extend.0.to_string()).collect::<Vec<_>>())
            .bind(self.extends.iter().map(|extend| big(extend.1)).collect::<Vec<_>>())
            .bind(self.extends.iter().map(|extend| big(extend.2)).collect::<Vec<_>>())
            .fetch_all(connection)
            .await?;
        ids(&rows)
    }

    /// Returns the payloads of notifications: ids, and the empty text if an instance became available.
    fn notified(&self, created: &HashSet<String>) -> Vec<String> {
        let mut notified: Vec<String> = Vec::new();
        let is_released = |then| matches!(then, After::Release { .. });
        let has_new = self.creates.iter().any(|(new, _)| new.holder.is_none() && created.contains(&*new.id));
        if has_new || self.saves.iter().any(|(save, _)| is_released(save.then)) {
            notified.push(String::new());
        }
        let ids = self
            .saves
            .iter()
            .filter(|(save, _)| save.then != After::Keep)
            .map(|(save, _)| save.id.to_string());
        notified.extend(ids);
        notified
    }

    fn answer(self, changed: Result<Changed, String>) {
        let unavailable =
            |action, reason: &String| BackendError::Unavailable { action, reason: reason.clone() };
        // A caller may have stopped to wait.
        match changed {
            Ok(mut changed) => {
                for (new, answer) in self.creates {
                    answer.send(Ok(changed.created.remove(&*new.id))).ok();
                }
                for (save, answer) in self.saves {
                    let is_saved = changed.saved.remove(&*save.id);
                    answer
                        .send(if is_saved { Ok(()) } else { Err(BackendError::Fenced { id: save.id }) })
                        .ok();
                }
                for (id, _, _, answer) in self.extends {
                    answer.send(Ok(changed.extended.contains(&*id))).ok();
                }
            }
            Err(reason) => {
                for (_, answer) in self.creates {
                    answer.send(Err(unavailable("store an instance", &reason))).ok();
                }
                for (_, answer) in self.saves {
                    answer.send(Err(unavailable("store a snapshot", &reason))).ok();
                }
                for (_, _, _, answer) in self.extends {
                    answer.send(Err(unavailable("extend a claim", &reason))).ok();
                }
            }
        }
    }
}

fn ids(rows: &[sqlx::postgres::PgRow]) -> Result<HashSet<String>, sqlx::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Converts an unsigned number; one that exceeds 2⁶³ becomes the maximum.
pub(super) fn big(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
