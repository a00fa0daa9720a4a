//! Events: their publication, their consumers, and the webhooks that receive them.

use std::sync::Arc;

use axum::extract::FromRef;
use orlog_bus::{Message, PublishAck};
use orlog_model::{Event, TenantId, Timestamp};

use crate::server::context::ApiState;
use orlog_node::access::SignedEvents;
use orlog_node::app::App;
use orlog_node::webhooks::Webhooks;

/// The bus as publishers use it.
#[derive(Clone)]
pub(crate) struct Events {
    app: Arc<App>,
}

impl FromRef<ApiState> for Events {
    fn from_ref(api: &ApiState) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
        }
    }
}

impl Events {
    /// Returns the verification of signed events, if the context of the tenant requires it.
    pub(crate) fn required_signatures(
        &self,
        tenant: &TenantId,
        at: Timestamp,
    ) -> Option<Arc<SignedEvents>> {
        let signed_events = &self.app.signed_events;
        signed_events
            .is_required(tenant, at)
            .then(|| Arc::clone(signed_events))
    }

    /// Returns the number of sagas that consume an event.
    pub(crate) fn consumers(&self, event: &Event) -> usize {
        self.app.programs.consumers(&event.tenant, &event.kind)
    }

    /// Publishes events; returns when they are durable.
    ///
    /// # Errors
    /// Those of [`App::publish`].
    pub(crate) async fn publish(
        &self,
        events: Vec<Event>,
    ) -> Result<Vec<PublishAck>, orlog_bus::Error> {
        self.app.publish(events).await
    }

    /// Publishes messages as [`Self::publish`] does events.
    ///
    /// # Errors
    /// Those of [`App::publish`].
    pub(crate) async fn publish_messages(
        &self,
        messages: Vec<Arc<Message>>,
    ) -> Result<Vec<PublishAck>, orlog_bus::Error> {
        self.app.publish_messages(messages).await
    }

    /// Returns the message of an event.
    pub(crate) fn message_of(&self, event: &Event) -> Arc<Message> {
        self.app.message_of(event)
    }

    /// Returns the message of an event as this node publishes it.
    pub(crate) fn vouched(&self, message: Message) -> Arc<Message> {
        self.app.vouched(message)
    }

    /// Returns the webhooks.
    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.app.webhooks
    }
}
