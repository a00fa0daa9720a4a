//! Metrics of messages between contexts, by type and final status. The number of series is fixed.

use orlog_model::{Commit, Instance, Status};
use orlog_sagas::message::{self, MessageStatus, MessageType};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::sink::MetricSink;

type ByType = [(&'static str, &'static str); 1];
type ByEnd = [(&'static str, &'static str); 3];

/// Metrics of all messages.
#[derive(Debug)]
pub(crate) struct MessageMetrics {
    sent: Family<ByType, Counter>,
    received: Family<ByType, Counter>,
    ended: Family<ByEnd, Counter>,
}

/// Box of a message: its instance is in the context of the sender or of the receiver.
#[derive(Clone, Copy, Debug)]
enum MessageBox {
    Out,
    In,
}

impl MessageBox {
    fn as_str(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

impl Default for MessageMetrics {
    fn default() -> Self {
        let metrics = Self {
            sent: Family::default(),
            received: Family::default(),
            ended: Family::default(),
        };

        for kind in MessageType::ALL {
            for place in [MessageBox::Out, MessageBox::In] {
                drop(metrics.started(place, kind));
                for status in [MessageStatus::Processed, MessageStatus::Error] {
                    drop(metrics.ended(place, kind, status));
                }
            }
        }

        metrics
    }
}

impl MessageMetrics {
    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("messages_sent_total", self.sent.clone());
        sink.register("messages_received_total", self.received.clone());
        sink.register("messages_ended_total", self.ended.clone());
    }

    /// Counts a commit that starts or ends a message.
    pub(super) fn count(&self, commit: &Commit, after: &Instance) {
        let place = match after.definition.saga.as_str() {
            message::SAGA => MessageBox::Out,
            message::INBOX_SAGA => MessageBox::In,
            _ => return,
        };

        let starts = commit.before.is_none();
        let ended = match after.status {
            Status::Completed => Some(MessageStatus::Processed),
            Status::Failed | Status::Cancelled => Some(MessageStatus::Error),
            Status::Running | Status::Compensating | Status::Stuck => None,
        };

        let ended = ended.filter(|_| {
            commit
                .before
                .as_deref()
                .is_none_or(|before| !before.status.is_final())
        });

        if !starts && ended.is_none() {
            return;
        }

        // Only now: the state is decoded for this.
        let Some(kind) = message::type_of(&after.state) else {
            return;
        };

        if starts {
            self.started(place, kind).inc();
        }
        if let Some(status) = ended {
            self.ended(place, kind, status).inc();
        }
    }

    fn started(&self, place: MessageBox, kind: MessageType) -> Counter {
        let family = match place {
            MessageBox::Out => &self.sent,
            MessageBox::In => &self.received,
        };
        family.get_or_create(&[("type", kind.as_str())]).clone()
    }

    fn ended(&self, place: MessageBox, kind: MessageType, status: MessageStatus) -> Counter {
        let labels = [
            ("box", place.as_str()),
            ("type", kind.as_str()),
            ("status", status.as_str()),
        ];
        self.ended.get_or_create(&labels).clone()
    }
}
