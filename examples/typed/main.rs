//! A program with Orlog inside: two bookings of a typed saga, one that succeeds and one whose card is refused.
//!
//! `cargo run --example typed` prints how each ends and which seats are taken then.

mod booking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use booking::{House, SeatWanted};
use orlog::typed::event;
use orlog::{App, Config};
use orlog_actors::CommitObserver;
use orlog_effect::Policy;
use orlog_model::{Commit, EventId, Status};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Tells which booking came to an end, and how.
struct Ends(UnboundedSender<(String, Status)>);

impl CommitObserver for Ends {
    fn committed(&self, commit: &Commit) {
        if let Some(instance) = commit.instance.as_ref().filter(|instance| instance.status.is_final()) {
            // When nobody listens any more, nobody wants to know.
            drop(self.0.send((commit.key.correlation.to_string(), instance.status)));
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let house = House::default();
    let saga = booking::saga().map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let (ended, mut ends) = unbounded_channel();
    let mut seams = booking::handlers(&house).seams(vec![saga], Policy::default())?;
    seams.observer = Some(Arc::new(Ends(ended)));
    let config = Config { data: folder.path().to_owned(), ..Config::default() };
    let app = App::start_with(config, seams).await?;

    let wanted = [("b-1", 7, "4711"), ("b-2", 8, "0815")];
    let events = wanted.map(|(booking, seat, card)| {
        let wanted = SeatWanted { booking: booking.to_owned(), seat, card: card.to_owned() };
        event(&wanted, EventId::new(booking)?, "urn:example:typed", app.clock.now())
    });
    app.publish(events.into_iter().collect::<Result<_, _>>()?).await?;

    let mut endings = BTreeMap::new();
    while endings.len() < wanted.len() {
        let end = tokio::time::timeout(Duration::from_secs(30), ends.recv()).await;
        let (booking, status) = end.context("the bookings do not end")?.context("the node has stopped")?;
        endings.insert(booking, status);
    }
    for (booking, status) in &endings {
        println!("{booking}: {status:?}");
    }
    println!("taken: {:?}", house.lock().map_err(|_| anyhow::anyhow!("a handler panicked"))?);
    app.stop().await
}
