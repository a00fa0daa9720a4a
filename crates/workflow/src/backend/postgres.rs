//! Backend in PostgreSQL: one set of tables, group commits, LISTEN and NOTIFY instead of polling.

mod commits;
mod reads;
mod rows;
mod session;
mod statements;

use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::warn;

use self::commits::{Queues, Request};
use self::reads::{Read, read_all};
use self::rows::{big, get, stored, unavailable};
use super::{
    Backend, BackendError, Claim, Fetched, Hub, InstanceId, NEVER_MS, NewInstance, Save, Signal,
    StoredInstance,
};

/// Channel of notifications.
const CHANNEL: &str = "orlog_workflow";
/// Maximum number of reads that wait for a statement.
const QUEUE: usize = 4096;
/// Delay before the listener connects again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Maximum time until a notification arrives.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Backend in PostgreSQL. Processes that connect to the same database and schema share its
/// instances.
#[derive(Debug)]
pub struct PostgresBackend {
    pool: PgPool,
    commits: Queues,
    reads: mpsc::Sender<Read>,
    hub: Hub,
    /// Group commits, group reads and the listener.
    _tasks: JoinSet<()>,
}

impl PostgresBackend {
    /// Connects to `postgres://user:password@host/database`, and creates missing tables.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the server does not respond, the user may not create
    /// tables, or the URL leads to a pooler in transaction mode, which loses notifications.
    pub async fn connect(url: &str) -> Result<Self, BackendError> {
        let connect = |error: sqlx::Error| unavailable("connect to PostgreSQL", &error);
        // PgBouncer rejects the parameter extra_float_digits, which no statement here needs.
        let options = PgConnectOptions::from_str(url)
            .map_err(connect)?
            .extra_float_digits(None);

        let pool = PgPoolOptions::new()
            // Group commits and group reads keep few connections busy, whatever the load.
            .max_connections(8)
            .connect_with(options)
            .await
            .map_err(connect)?;

        let mut listener = listener(&pool).await.map_err(connect)?;
        check_notifications(&pool, &mut listener).await?;
        create_tables(&pool)
            .await
            .map_err(|error| unavailable("create its tables", &error))?;

        let hub = Hub::default();
        let mut tasks = JoinSet::new();
        let commits = Queues::start(&pool, &mut tasks);
        let (reads, receiver) = mpsc::channel(QUEUE);
        tasks.spawn(read_all(pool.clone(), receiver));
        tasks.spawn(listen(pool.clone(), listener, hub.clone()));

        Ok(Self {
            pool,
            commits,
            reads,
            hub,
            _tasks: tasks,
        })
    }

    /// Waits for the group commit of a request.
    async fn commit<T>(
        &self,
        action: &'static str,
        id: &str,
        request: impl FnOnce(commits::Answer<T>) -> Request,
    ) -> Result<T, BackendError> {
        send(action, self.commits.of(id), request).await
    }
}

/// Sends a request and waits for its answer.
async fn send<R, T>(
    action: &'static str,
    queue: &mpsc::Sender<R>,
    request: impl FnOnce(commits::Answer<T>) -> R,
) -> Result<T, BackendError> {
    let stopped = || BackendError::Unavailable {
        action,
        reason: "the backend is stopped".to_owned(),
    };

    let (sender, receiver) = oneshot::channel();

    queue.send(request(sender)).await.map_err(|_| stopped())?;
    receiver.await.map_err(|_| stopped())?
}

/// Checks that the listener receives a notification. A pooler in transaction mode delivers them to
/// any of its clients; without this check, instances would wait for the next look of a worker.
async fn check_notifications(pool: &PgPool, listener: &mut PgListener) -> Result<(), BackendError> {
    let notified = async {
        sqlx::raw_sql(statements::NOTIFY_ALL).execute(pool).await?;
        listener.recv().await
    };

    let reason = match tokio::time::timeout(NOTIFICATION_TIMEOUT, notified).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("none arrived within {NOTIFICATION_TIMEOUT:?}"),
    };

    Err(BackendError::Unavailable {
        action: "receive notifications of PostgreSQL",
        reason: format!(
            "{reason}; if the URL leads to a connection pooler, use its session mode or the \
             address of the server"
        ),
    })
}

async fn create_tables(pool: &PgPool) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    // Two processes that create the same table at the same time fail, also with `IF NOT EXISTS`.
    sqlx::query(statements::SCHEMA_LOCK)
        .execute(&mut *transaction)
        .await?;

    for statement in statements::SCHEMA {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }

    transaction.commit().await
}

/// Forwards notifications to the hub. After a lost connection, all consumers look again.
async fn listen(pool: PgPool, mut current: PgListener, hub: Hub) {
    loop {
        match current.try_recv().await {
            Ok(Some(notification)) if notification.payload().is_empty() => hub.notify_available(),
            Ok(Some(notification)) => hub.notify(notification.payload()),
            // The connection was lost and restored: notifications in between are missing.
            Ok(None) => hub.notify_all(),
            Err(error) => {
                warn!(%error, "notifications of PostgreSQL unavailable");
                current = reconnect(&pool).await;
                hub.notify_all();
            }
        }
    }
}

/// Connects again. The listener receives each notification from now on, so consumers that look
/// afterwards miss none.
async fn reconnect(pool: &PgPool) -> PgListener {
    loop {
        tokio::time::sleep(RECONNECT_DELAY).await;
        match listener(pool).await {
            Ok(listener) => return listener,
            Err(error) => warn!(%error, "notifications of PostgreSQL unavailable"),
        }
    }
}

async fn listener(pool: &PgPool) -> Result<PgListener, sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn create(&self, instance: NewInstance) -> Result<bool, BackendError> {
        let id = InstanceId::clone(&instance.id);
        self.commit("store an instance", &id, |answer| {
            Request::Create(instance, answer)
        })
        .await
    }

    async fn load(&self, id: &str) -> Result<Option<StoredInstance>, BackendError> {
        send("read an instance", &self.reads, |answer| {
            (id.into(), answer)
        })
        .await
    }

    async fn save(&self, save: Save) -> Result<(), BackendError> {
        let id = InstanceId::clone(&save.id);
        self.commit("store a snapshot", &id, |answer| {
            Request::Save(save, answer)
        })
        .await
    }

    async fn fetch(&self, limit: usize, now_ms: u64) -> Result<Fetched, BackendError> {
        // One more row than requested shows when the next instance becomes available.
        let rows = sqlx::query(statements::FETCH)
            .bind(rows_limit(limit.saturating_add(1)))
            .bind(big(NEVER_MS))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| unavailable("list instances", &error))?;

        let mut fetched = Fetched {
            ids: Vec::new(),
            next_ms: NEVER_MS,
        };
        for row in rows {
            let available_ms = get::<i64>(&row, 1)?.cast_unsigned();
            if available_ms > now_ms || fetched.ids.len() == limit {
                fetched.next_ms = available_ms;
                break;
            }
            fetched.ids.push(get::<String>(&row, 0)?.into());
        }

        Ok(fetched)
    }

    async fn claim(
        &self,
        ids: &[InstanceId],
        claim: &Claim,
    ) -> Result<Vec<StoredInstance>, BackendError> {
        let rows = sqlx::query(statements::CLAIM)
            .bind(ids.iter().map(ToString::to_string).collect::<Vec<_>>())
            .bind(&*claim.holder)
            .bind(big(claim.until_ms))
            .bind(big(claim.now_ms))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| unavailable("claim instances", &error))?;
        rows.iter().map(stored).collect()
    }

    async fn take_over(
        &self,
        id: &str,
        holder: &str,
    ) -> Result<Option<StoredInstance>, BackendError> {
        let row = sqlx::query(statements::TAKE_OVER)
            .bind(id)
            .bind(holder)
            .bind(big(NEVER_MS))
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| unavailable("claim an instance", &error))?;
        row.as_ref().map(stored).transpose()
    }

    async fn extend(
        &self,
        claims: &[(InstanceId, u64)],
        until_ms: u64,
    ) -> Result<Vec<InstanceId>, BackendError> {
        let extended = claims.iter().map(|(id, epoch)| {
            self.commit("extend a claim", id, |answer| Request::Extend {
                id: InstanceId::clone(id),
                epoch: *epoch,
                until_ms,
                answer,
            })
        });
        // All at once, so that they share few group commits.
        let extended = futures::future::try_join_all(extended).await?;

        let mut lost = Vec::new();
        for ((id, _), is_extended) in claims.iter().zip(extended) {
            if !is_extended {
                lost.push(InstanceId::clone(id));
            }
        }
        Ok(lost)
    }

    async fn send_signal(
        &self,
        id: &str,
        name: &str,
        payload: Bytes,
    ) -> Result<bool, BackendError> {
        let store = |error: sqlx::Error| unavailable("store a signal", &error);
        let mut transaction = self.pool.begin().await.map_err(store)?;

        let is_stored = sqlx::query(statements::SIGNAL)
            .bind(id)
            .bind(name)
            .bind(payload.to_vec())
            .execute(&mut *transaction)
            .await
            .map_err(store)?
            .rows_affected()
            > 0;

        // In the transaction of the signal: the notification is sent when it commits.
        if is_stored {
            let notified = vec![id.to_owned(), String::new()];
            sqlx::query(statements::NOTIFY)
                .bind(notified)
                .execute(&mut *transaction)
                .await
                .map_err(store)?;
        }

        transaction.commit().await.map_err(store)?;
        Ok(is_stored)
    }

    async fn signals(&self, id: &str, after: u64) -> Result<Vec<Signal>, BackendError> {
        let rows = sqlx::query(statements::SIGNALS)
            .bind(id)
            .bind(big(after))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| unavailable("read signals", &error))?;

        let mut signals = Vec::with_capacity(rows.len());
        for row in &rows {
            signals.push(Signal {
                number: get::<i64>(row, 0)?.cast_unsigned(),
                name: get(row, 1)?,
                payload: get::<Vec<u8>>(row, 2)?.into(),
            });
        }
        Ok(signals)
    }

    async fn unended(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<InstanceId>, BackendError> {
        let rows = sqlx::query(statements::UNENDED)
            .bind(after)
            .bind(rows_limit(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| unavailable("list instances", &error))?;
        rows.iter()
            .map(|row| get::<String>(row, 0).map(Into::into))
            .collect()
    }

    async fn put_graph(&self, hash: &str, graph: Bytes) -> Result<(), BackendError> {
        sqlx::query(statements::PUT_GRAPH)
            .bind(hash)
            .bind(graph.to_vec())
            .execute(&self.pool)
            .await
            .map(drop)
            .map_err(|error| unavailable("store a graph", &error))
    }

    async fn graph(&self, hash: &str) -> Result<Option<Bytes>, BackendError> {
        let row = sqlx::query(statements::GRAPH)
            .bind(hash)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| unavailable("read a graph", &error))?;
        row.map(|row| get::<Vec<u8>>(&row, 0).map(Into::into))
            .transpose()
    }

    async fn purge(&self, ended_before_ms: u64) -> Result<u64, BackendError> {
        let row = sqlx::query(statements::PURGE)
            .bind(big(ended_before_ms))
            .fetch_one(&self.pool)
            .await
            .map_err(|error| unavailable("purge instances", &error))?;
        Ok(get::<i64>(&row, 0)?.cast_unsigned())
    }

    fn hub(&self) -> &Hub {
        &self.hub
    }
}

fn rows_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
