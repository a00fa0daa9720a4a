//! Publication of events for other systems: by the API and by webhooks.

use std::sync::Arc;

use orlog_actors::WorkObstacle;
use orlog_bus::{Message, PublishAck, codec};
use orlog_model::Event;

use super::App;
use crate::component_config;

impl App {
    /// Publishes events; returns when they are durable.
    ///
    /// # Errors
    /// [`orlog_bus::Error::Unavailable`] while the node drains, [`orlog_bus::Error::Full`] while a
    /// store has no free space, and other errors of the bus.
    pub async fn publish(&self, events: Vec<Event>) -> Result<Vec<PublishAck>, orlog_bus::Error> {
        self.publish_messages(events.iter().map(|event| self.message_of(event)).collect())
            .await
    }

    /// Returns the message of an event.
    pub fn message_of(&self, event: &Event) -> Arc<Message> {
        let kind = component_config::submitted_event_kind(&self.config);
        self.vouched(codec::encode(event, codec::subject_with_kind(event, kind)))
    }

    /// Returns the message of an event as this node publishes it.
    pub fn vouched(&self, message: Message) -> Arc<Message> {
        Arc::new(self.bus.vouch(message, self.clock.now()))
    }

    /// Publishes messages as [`Self::publish`] does events.
    ///
    /// # Errors
    /// Those of [`Self::publish`].
    pub async fn publish_messages(
        &self,
        messages: Vec<Arc<Message>>,
    ) -> Result<Vec<PublishAck>, orlog_bus::Error> {
        // Checked here, not by the bus: an event that is stored on a full or draining node waits
        // until the node can apply it, and the publisher would not learn of it.
        self.runtime
            .check_takes_work()
            .map_err(|obstacle| match obstacle {
                WorkObstacle::Draining => orlog_bus::Error::Unavailable(obstacle.to_string()),
                WorkObstacle::StoreFull => orlog_bus::Error::Full(obstacle.to_string()),
            })?;

        self.bus.publish(messages).await
    }
}
