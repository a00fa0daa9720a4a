//! A program with embedded Orlog: two bookings of a workflow, one that succeeds and one whose card is declined.
//!
//! `cargo run --example typed` prints the final status of both and the reserved seats.

mod booking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use booking::{SeatMap, SeatRequested};
use orlog::workflow::start_event;
use orlog::{App, AppOverrides, Config};
use orlog_actors::CommitObserver;
use orlog_effect::{FunctionProvider, Policy};
use orlog_model::{Commit, EventId, Status};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Reports the final status of each booking.
struct CompletionObserver(UnboundedSender<(String, Status)>);

impl CommitObserver for CompletionObserver {
    fn on_commit(&self, commit: &Commit) {
        if let Some(instance) = commit
            .instance
            .as_ref()
            .filter(|instance| instance.status.is_final())
        {
            // If the receiver is closed, the report is not needed.
            drop(
                self.0
                    .send((commit.key.correlation.to_string(), instance.status)),
            );
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let seats = SeatMap::default();
    let workflow = booking::workflow(&seats)?.on_node_by_event();
    let workflow = workflow
        .completed_event("Booked")
        .failed_event("BookingFailed");
    let (ended, mut receiver) = unbounded_channel();
    let mut overrides = AppOverrides::workflows([workflow])?;
    let mail = FunctionProvider::new().effect("mail.ticket", |call| async move {
        Ok(json!({ "seat": call.payload["seat"] }))
    });
    overrides
        .upstreams
        .push(mail.upstream("mail", Policy::default()));
    overrides.observer = Some(Arc::new(CompletionObserver(ended)));
    let config = Config {
        data_dir: dir.path().to_owned(),
        ..Config::default()
    };
    let app = App::start_with(config, overrides).await?;

    let requested = [("b-1", 7, "4711"), ("b-2", 8, "0815")];
    let events = requested.map(|(booking, seat, card)| {
        let requested = SeatRequested {
            booking: booking.to_owned(),
            seat,
            card: card.to_owned(),
        };
        start_event(
            &requested,
            EventId::new(booking)?,
            "urn:example:typed",
            app.clock.now(),
        )
    });
    app.publish(events.into_iter().collect::<Result<_, _>>()?)
        .await?;

    let mut endings = BTreeMap::new();
    while endings.len() < requested.len() {
        let end = tokio::time::timeout(Duration::from_secs(30), receiver.recv()).await;
        let (booking, status) = end
            .context("the bookings do not end")?
            .context("the node has stopped")?;
        endings.insert(booking, status);
    }
    for (booking, status) in &endings {
        println!("{booking}: {status:?}");
    }
    println!("taken: {:?}", seats.lock());
    app.stop().await
}
