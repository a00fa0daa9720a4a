//! Bus that discards what is published to it, and delivers the messages of another bus.

use std::sync::Arc;

use async_trait::async_trait;
use orlog_bus::{Bus, Consumer, Error, Message, PublishAck, ScanStart, StreamScan, Subscription};
use uuid::Uuid;

/// Bus that discards publishes; see the module documentation.
pub struct PublishSink(pub Arc<dyn Bus>);

#[async_trait]
impl Bus for PublishSink {
    fn stream_id(&self) -> Uuid {
        self.0.stream_id()
    }

    async fn publish(&self, messages: Vec<Arc<Message>>) -> Result<Vec<PublishAck>, Error> {
        Ok(messages
            .iter()
            .map(|_| PublishAck {
                sequence: 0,
                duplicate: false,
            })
            .collect())
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Box<dyn Consumer>, Error> {
        self.0.subscribe(subscription).await
    }

    async fn scan(
        &self,
        filters: Vec<String>,
        since: ScanStart,
    ) -> Result<Box<dyn StreamScan>, Error> {
        self.0.scan(filters, since).await
    }

    async fn last_sequence(&self) -> Result<u64, Error> {
        self.0.last_sequence().await
    }
}
