//! Group commits: creations, snapshots and heartbeats of one process, many in each statement.
//!
//! A statement without a transaction is a transaction of its own, so a commit takes one round trip.
//! The instances are divided among queues, each with one commit in flight: requests that arrive
//! meanwhile form the next one. An instance belongs to one queue, so the commits of a process never
//! wait for each other. Claims of other processes skip locked rows.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sqlx::{PgPool, Row as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::super::{After, BackendError, InstanceId, NEVER_MS, NewInstance, Save};
use super::rows::{big, unavailable};
use super::session::Session;
use super::statements;

/// Number of queues. More of them hide the latency of the disk, but form smaller groups.
const QUEUES: usize = 2;
/// Maximum number of requests in one commit.
const GROUP: usize = 1024;
/// Maximum number of requests that wait in a queue.
const CAPACITY: usize = 4096;

/// Request of a group commit.
pub(super) enum Request {
    Create(NewInstance, Answer<bool>),
    Save(Save, Answer<()>),
    Extend {
        id: InstanceId,
        epoch: u64,
        until_ms: u64,
        answer: Answer<bool>,
    },
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, BackendError>>;

/// Queues of requests.
#[derive(Debug)]
pub(super) struct Queues([mpsc::Sender<Request>; QUEUES]);

impl Queues {
    /// Starts the commits. They end when this value is dropped.
    pub(super) fn start(pool: &PgPool, tasks: &mut JoinSet<()>) -> Self {
        Self(std::array::from_fn(|_| {
            let (sender, receiver) = mpsc::channel(CAPACITY);
            tasks.spawn(commit_all(Session::new(pool.clone()), receiver));
            sender
        }))
    }

    /// Returns the queue for an instance.
    pub(super) fn of(&self, id: &str) -> &mpsc::Sender<Request> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any number selects a queue"
        )]
        let queue = hasher.finish() as usize % QUEUES;
        &self.0[queue]
    }
}

/// Requests of one commit.
#[derive(Default)]
struct Group {
    creates: Vec<(NewInstance, Answer<bool>)>,
    saves: Vec<(Save, Answer<()>)>,
    extends: Vec<(InstanceId, u64, u64, Answer<bool>)>,
}

/// Ids of the instances that a commit has changed.
#[derive(Default)]
struct Changed {
    created: HashSet<String>,
    /// With the epoch: a group can have requests of the holder and of a former holder of an
    /// instance.
    saved: HashMap<String, i64>,
    extended: HashMap<String, i64>,
}

async fn commit_all(mut session: Session, mut requests: mpsc::Receiver<Request>) {
    let mut batch = Vec::with_capacity(GROUP);
    while requests.recv_many(&mut batch, GROUP).await > 0 {
        let mut group = Group::default();
        for request in batch.drain(..) {
            match request {
                Request::Create(instance, answer) => group.creates.push((instance, answer)),
                Request::Save(save, answer) => group.saves.push((save, answer)),
                Request::Extend {
                    id,
                    epoch,
                    until_ms,
                    answer,
                } => {
                    group.extends.push((id, epoch, until_ms, answer));
                }
            }
        }

        // In one order in all processes: those that create the same instances wait for each other,
        // but not in a circle.
        group
            .creates
            .sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));

        let changed = group.commit(&mut session).await;
        group.answer(changed);
    }
}

impl Group {
    async fn commit(&self, session: &mut Session) -> Result<Changed, sqlx::Error> {
        let mut connection = session.take().await?;
        let mut changed = Changed::default();

        if !self.creates.is_empty() || !self.saves.is_empty() {
            self.write(&mut connection, &mut changed).await?;
        }
        // Separate: one statement cannot change a row twice.
        if !self.extends.is_empty() {
            self.extend(&mut connection, &mut changed).await?;
        }

        // After an error the connection returns to the pool, which tests it.
        session.keep(connection);
        Ok(changed)
    }

    /// Stores new instances and snapshots, and notifies other processes.
    async fn write(
        &self,
        connection: &mut sqlx::PgConnection,
        changed: &mut Changed,
    ) -> Result<(), sqlx::Error> {
        let new = || self.creates.iter().map(|(new, _)| new);
        let available = |new: &NewInstance| match new.holder {
            Some(_) => NEVER_MS,
            None => new.wake_ms,
        };

        let saves = || self.saves.iter().map(|(save, _)| save);
        let then = |save: &Save| match save.then {
            After::Keep => (0, 0),
            After::Release { wake_ms } => (1, big(wake_ms)),
            After::End { at_ms } => (2, big(at_ms)),
        };
        // Arrays instead of rows of values: the text of the statement is the same for each number
        // of requests, so it is prepared once.
        let rows = sqlx::query(statements::WRITE)
            .bind(new().map(|new| &*new.id).collect::<Vec<_>>())
            .bind(new().map(|new| &*new.workflow).collect::<Vec<_>>())
            .bind(new().map(|new| &*new.hash).collect::<Vec<_>>())
            .bind(new().map(|new| new.holder.as_deref()).collect::<Vec<_>>())
            .bind(new().map(|new| big(available(new))).collect::<Vec<_>>())
            .bind(new().map(|new| &*new.state).collect::<Vec<_>>())
            .bind(saves().map(|save| &*save.id).collect::<Vec<_>>())
            .bind(saves().map(|save| big(save.epoch)).collect::<Vec<_>>())
            .bind(saves().map(|save| &*save.hash).collect::<Vec<_>>())
            .bind(saves().map(|save| &*save.state).collect::<Vec<_>>())
            .bind(
                saves()
                    .map(|save| big(save.last_signal))
                    .collect::<Vec<_>>(),
            )
            .bind(saves().map(|save| then(save).0).collect::<Vec<i32>>())
            .bind(saves().map(|save| then(save).1).collect::<Vec<_>>())
            .bind(big(NEVER_MS))
            .fetch_all(connection)
            .await?;

        for row in rows {
            match row.try_get(0)? {
                statements::CREATED => drop(changed.created.insert(row.try_get(1)?)),
                statements::SAVED => drop(changed.saved.insert(row.try_get(1)?, row.try_get(2)?)),
                // A notification.
                _ => {}
            }
        }
        Ok(())
    }

    async fn extend(
        &self,
        connection: &mut sqlx::PgConnection,
        changed: &mut Changed,
    ) -> Result<(), sqlx::Error> {
        let rows = sqlx::query(statements::EXTEND)
            .bind(
                self.extends
                    .iter()
                    .map(|extend| &*extend.0)
                    .collect::<Vec<_>>(),
            )
            .bind(
                self.extends
                    .iter()
                    .map(|extend| big(extend.1))
                    .collect::<Vec<_>>(),
            )
            .bind(
                self.extends
                    .iter()
                    .map(|extend| big(extend.2))
                    .collect::<Vec<_>>(),
            )
            .fetch_all(connection)
            .await?;

        for row in rows {
            changed.extended.insert(row.try_get(0)?, row.try_get(1)?);
        }
        Ok(())
    }

    fn answer(self, changed: Result<Changed, sqlx::Error>) {
        // A caller may have stopped to wait.
        match changed {
            Ok(mut changed) => {
                for (new, answer) in self.creates {
                    // Of two requests for one id, the first is stored. `remove` leaves nothing for
                    // the second.
                    answer.send(Ok(changed.created.remove(&*new.id))).ok();
                }
                for (save, answer) in self.saves {
                    // A former holder has another epoch, and is fenced.
                    let is_saved = changed.saved.get(&*save.id) == Some(&big(save.epoch));
                    answer
                        .send(if is_saved {
                            Ok(())
                        } else {
                            Err(BackendError::Fenced { id: save.id })
                        })
                        .ok();
                }
                for (id, epoch, _, answer) in self.extends {
                    answer
                        .send(Ok(changed.extended.get(&*id) == Some(&big(epoch))))
                        .ok();
                }
            }
            Err(error) => {
                for (_, answer) in self.creates {
                    answer
                        .send(Err(unavailable("store an instance", &error)))
                        .ok();
                }
                for (_, answer) in self.saves {
                    answer
                        .send(Err(unavailable("store a snapshot", &error)))
                        .ok();
                }
                for (_, _, _, answer) in self.extends {
                    answer.send(Err(unavailable("extend a claim", &error))).ok();
                }
            }
        }
    }
}
