//! Group reads: one statement reads the instances that many callers need.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use tokio::sync::mpsc;

use super::super::{InstanceId, StoredInstance};
use super::commits::Answer;
use super::rows::{stored, unavailable};
use super::session::Session;
use super::statements;

/// Maximum number of instances that one statement reads.
const GROUP: usize = 256;

/// Request for an instance.
pub(super) type Read = (InstanceId, Answer<Option<StoredInstance>>);

/// Answers requests until the backend is dropped.
pub(super) async fn read_all(pool: PgPool, mut requests: mpsc::Receiver<Read>) {
    let mut session = Session::new(pool);
    let mut batch = Vec::with_capacity(GROUP);
    while requests.recv_many(&mut batch, GROUP).await > 0 {
        let found = read(&mut session, &batch).await;
        for (id, answer) in batch.drain(..) {
            let instance = match &found {
                // Several callers can need the same instance, whose row is read once.
                Ok(found) => found.get(&*id).map(stored).transpose(),
                Err(error) => Err(unavailable("read an instance", error)),
            };
            // The caller may have stopped to wait.
            answer.send(instance).ok();
        }
    }
}

/// Returns the rows of the instances that exist, by id.
async fn read(
    session: &mut Session,
    batch: &[Read],
) -> Result<HashMap<String, PgRow>, sqlx::Error> {
    let ids: Vec<&str> = batch.iter().map(|(id, _)| &**id).collect();
    let mut connection = session.take().await?;
    let rows = sqlx::query(statements::LOAD)
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?;

    session.keep(connection);
    rows.into_iter()
        .map(|row| Ok((row.try_get(0)?, row)))
        .collect()
}
