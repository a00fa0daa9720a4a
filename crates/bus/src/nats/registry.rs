//! Registry in a key-value bucket that all nodes share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orlog_journal::DurablePosition;
use tokio::sync::watch;

use super::bucket::{Bucket, BucketView, BucketWatch, PutResult};
use super::connection::Connection;
use super::stream_config::StreamSpec;
use crate::Error;
use crate::registry::{IDENTITY, Registry, RegistryView};
use crate::subject::{decode_token, encode_token};

/// Name of the bucket.
pub const REGISTRY_BUCKET: &str = "orlog-registry";
/// Maximum time until the view contains all records, or an own write.
const VIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Registry in the bucket [`REGISTRY_BUCKET`].
pub struct NatsRegistry {
    bucket: Bucket,
    watch: BucketWatch<RegistryView>,
}

impl NatsRegistry {
    /// Returns the specification of the bucket's stream.
    #[must_use]
    pub fn plan(replicas: usize) -> StreamSpec {
        let config = Bucket::config(REGISTRY_BUCKET, "Contexts and actors", replicas);
        StreamSpec {
            config,
            is_external: false,
        }
    }

    /// Opens the existing bucket and reads all records.
    ///
    /// # Errors
    /// If the servers do not respond or reject the request.
    pub async fn open(connection: &Connection) -> Result<Self, Error> {
        let bucket = Bucket::open(connection, REGISTRY_BUCKET).await?;
        let registry = Self {
            watch: bucket.watch(),
            bucket,
        };

        registry
            .wait("its records are not read", |view| view.is_current)
            .await?;
        Ok(registry)
    }

    async fn wait(
        &self,
        problem: &str,
        is_done: impl FnMut(&Arc<RegistryView>) -> bool,
    ) -> Result<(), Error> {
        let mut view = self.watch.view();
        let found = tokio::time::timeout(VIEW_TIMEOUT, view.wait_for(is_done)).await;
        found.ok().and_then(Result::ok).map(|_| ()).ok_or_else(|| {
            Error::Unavailable(format!(
                "the registry {REGISTRY_BUCKET} does not respond: {problem} after \
                     {VIEW_TIMEOUT:?}"
            ))
        })
    }
}

#[async_trait]
impl Registry for NatsRegistry {
    fn view(&self) -> watch::Receiver<Arc<RegistryView>> {
        self.watch.view()
    }

    fn durable_position(&self) -> Option<DurablePosition> {
        let position = self.watch.view().borrow().revision;
        (position > 0).then_some(DurablePosition {
            identity: IDENTITY,
            position,
        })
    }

    async fn refresh(&self) -> Result<(), Error> {
        // The leader states the end of the bucket; the view of this node may be older.
        let last = self.bucket.last_sequence().await?;
        self.wait("its last records are not read", |view| {
            view.is_current && view.revision >= last
        })
        .await
    }

    async fn put(&self, key: &str, value: Option<String>, seen: u64) -> Result<Option<u64>, Error> {
        if !self.watch.view().borrow().is_current {
            // The client would keep the message, and send it when it is connected again.
            let reason = "the registry cannot be followed at the moment; nothing was changed";
            return Err(Error::Unavailable(reason.to_owned()));
        }

        let token = encode_token(key);
        let body = value.unwrap_or_default().into_bytes();
        let mut result = self
            .bucket
            .put(&token, body.clone(), Some(seen), None)
            .await?;

        if matches!(result, PutResult::Conflict) && seen == 0 {
            // A removed record has a tombstone, whose sequence the servers expect.
            if let Some((tombstone, _)) = self
                .bucket
                .last(&token)
                .await?
                .filter(|(_, body)| body.is_empty())
            {
                result = self.bucket.put(&token, body, Some(tombstone), None).await?;
            }
        }

        let PutResult::Done(revision) = result else {
            return Ok(None);
        };

        // The caller reads its own write.
        self.wait("the change is stored, but not read", |view| {
            view.revision >= revision
        })
        .await?;
        Ok(Some(revision))
    }
}

impl BucketView for RegistryView {
    fn begin(last_sequence: u64) -> Self {
        Self {
            revision: last_sequence,
            is_current: true,
            ..Self::default()
        }
    }

    fn note(&mut self, key: &str, sequence: u64, body: &[u8]) {
        let Ok(key) = decode_token(key) else { return };
        let text = String::from_utf8_lossy(body);
        self.apply(
            &key,
            sequence,
            Some(text.as_ref()).filter(|text| !text.is_empty()),
        );
    }

    fn can_follow(&self, last: &Self) -> bool {
        self.revision >= last.revision
    }

    fn is_current(&self) -> bool {
        self.is_current
    }

    fn lose_currency(&mut self) {
        self.is_current = false;
        self.outdated_since = Some(Instant::now());
    }
}
