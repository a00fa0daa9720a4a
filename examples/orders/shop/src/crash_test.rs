//! Kills the runner in the middle of everything, again and again, and then demands that nothing is lost or doubled.

use std::time::Duration;

use anyhow::{Context as _, bail};
use fastrand::Rng;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::orders::{Order, orders};
use crate::orlog::{Client, Place, Runner};
use crate::reconciliation::{Audit, audit};
use crate::shop::{Mood, Options, Shop};

/// The saga's name in `order.saga.yaml`.
pub const SAGA: &str = "order";
/// How long an order waits to be accepted while the runner goes away again and again.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Between looks at how far things are.
const LOOK: Duration = Duration::from_millis(100);
/// One order in this many is placed twice.
const REPEAT_ONE_IN: usize = 20;

/// What to go through.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the runner is.
    pub place: Place,
    /// Decides the orders, the moments of death and the bad luck.
    pub seed: u64,
    /// How often the runner is killed.
    pub kills: usize,
    /// Orders placed between two kills.
    pub orders_per_kill: usize,
    /// The time from the last kill until every saga must have ended.
    pub settle: Duration,
}

/// Goes through with it and compares the books.
///
/// # Errors
/// When the runner does not start, or the sagas do not end in time.
pub async fn run(plan: Plan) -> anyhow::Result<Audit> {
    let mut runner = Runner::new(plan.place)?;
    let shop = open_shop(&runner.url(), plan.seed).await?;
    shop.set_mood(Mood { fail_rate: 0.1, ..Mood::default() });
    runner.start(&shop.url()).await?;
    let mut chance = Rng::with_seed(plan.seed);
    let all = orders(plan.seed, plan.kills.max(1) * plan.orders_per_kill);
    for (round, placed) in all.chunks(plan.orders_per_kill).enumerate() {
        let feed = tokio::spawn(place(runner.client().clone(), placed.to_vec(), Duration::from_millis(10)));
        if round < plan.kills {
            tokio::time::sleep(Duration::from_millis(chance.u64(1..1200))).await;
            kill(&mut runner, &mut chance).await?;
        }
        feed.await.context("the feed failed")??;
    }
    settle(runner.client(), &shop, all.len(), plan.settle).await?;
    let accepted: Vec<String> = all.into_iter().map(|order| order.id).collect();
    let found = audit(&accepted, &runner.client().all(SAGA).await?, &shop.book());
    runner.stop().await?;
    Ok(found)
}

/// Kills the runner and starts it again; one time in four it dies once more while it is still recovering.
async fn kill(runner: &mut Runner, chance: &mut Rng) -> anyhow::Result<()> {
    runner.kill().await?;
    if chance.u8(0..4) == 0 {
        runner.launch()?;
        tokio::time::sleep(Duration::from_millis(chance.u64(1..80))).await;
        runner.kill().await?;
    }
    runner.restart().await
}

/// Opens a shop at a free address.
///
/// # Errors
/// When there is none.
pub async fn open_shop(orlog: &str, seed: u64) -> anyhow::Result<Shop> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("there is no free port for the shop")?;
    let options = Options { orlog: orlog.to_owned(), seed, pace: Duration::from_millis(20) };
    Shop::open(listener, &options)
}

/// Places orders one after the other, some of them twice, with that pause between them.
///
/// # Errors
/// When one of them is not accepted in time.
pub async fn place(client: Client, orders: Vec<Order>, pause: Duration) -> anyhow::Result<()> {
    for (number, order) in orders.iter().enumerate() {
        let times = if number % REPEAT_ONE_IN == 0 { 2 } else { 1 };
        client.publish(&vec![order.placed(); times], PATIENCE).await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Waits until every saga has ended and nothing is on its way any more.
///
/// # Errors
/// When the time is over; the error says how many are where.
pub async fn settle(client: &Client, shop: &Shop, expected: usize, within: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        let counts = client.statuses(SAGA).await?;
        let ended: usize = ["completed", "failed"].iter().filter_map(|status| counts.get(*status)).sum();
        if ended >= expected && shop.unsent() == 0 {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!(
                "after {within:?} not every saga of {expected} has ended: {counts:?}, {} events unsent",
                shop.unsent()
            );
        }
        tokio::time::sleep(LOOK).await;
    }
}
