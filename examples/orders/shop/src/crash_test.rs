//! Crash test: kills the runner repeatedly under load, then checks for lost and duplicated actions.

use std::time::Duration;

use anyhow::{Context as _, bail};
use fastrand::Rng;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::orders::{Order, orders};
use crate::orlog::{Client, Runner, RunnerPaths};
use crate::reconciliation::{Reconciliation, reconcile};
use crate::shop::{FaultSettings, Options, Shop};

/// Name of the saga in `order.saga.yaml`.
pub const SAGA: &str = "order";
/// Timeout until an order is accepted while the runner is killed repeatedly.
pub const TIMEOUT: Duration = Duration::from_mins(1);
/// Poll interval of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Poll interval of the first commit after a kill.
const COMMIT_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Pause between two orders.
const ORDER_PAUSE: Duration = Duration::from_millis(10);
/// One order in this many is placed twice.
const REPEAT_ONE_IN: usize = 20;

/// Plan of a crash test.
#[derive(Clone, Debug)]
pub struct CrashTestPlan {
    /// Paths of the runner.
    pub place: RunnerPaths,
    /// Seed of the orders, the kill times and the faults.
    pub seed: u64,
    /// Number of kills.
    pub kills: usize,
    /// Orders between two kills.
    pub orders_per_kill: usize,
    /// Timeout from the last kill until every saga must have ended.
    pub wait: Duration,
}

/// Results of a crash test.
pub struct CrashTestReport {
    /// Comparison of the records.
    pub audit: Reconciliation,
    /// Times from a kill to the first new commit.
    pub recoveries: Vec<Duration>,
}

/// Runs the crash test and the reconciliation.
///
/// # Errors
/// Fails if the runner does not start or the sagas do not end in time.
pub async fn run(plan: CrashTestPlan) -> anyhow::Result<CrashTestReport> {
    let mut runner = Runner::new(plan.place)?;
    let shop = open_shop(&runner.url(), plan.seed).await?;
    shop.set_faults(FaultSettings {
        fail_rate: 0.1,
        ..FaultSettings::default()
    });
    runner.start(&shop.url()).await?;
    let mut chance = Rng::with_seed(plan.seed);
    let all = orders(plan.seed, plan.kills.max(1) * plan.orders_per_kill);
    let mut recoveries = Vec::with_capacity(plan.kills);
    for (round, placed) in all.chunks(plan.orders_per_kill).enumerate() {
        let feed = tokio::spawn(place(runner.client().clone(), placed.to_vec(), ORDER_PAUSE));
        if round < plan.kills {
            // The kill comes before the last order is placed, so that a commit follows.
            let feed_time = ORDER_PAUSE * u32::try_from(placed.len()).context("too many orders")?;
            tokio::time::sleep(feed_time.mul_f64(chance.f64())).await;
            recoveries.push(kill(&mut runner, &mut chance).await?);
        }
        feed.await.context("the order feed failed")??;
    }
    wait(runner.client(), &shop, all.len(), plan.wait).await?;
    let accepted: Vec<String> = all.into_iter().map(|order| order.id).collect();
    let audit = reconcile(&accepted, &runner.client().all(SAGA).await?, &shop.record());
    runner.stop().await?;
    Ok(CrashTestReport { audit, recoveries })
}

/// Kills and restarts the runner; one time in four it is killed again during recovery. Returns the time
/// from the last kill to the first new commit.
async fn kill(runner: &mut Runner, chance: &mut Rng) -> anyhow::Result<Duration> {
    let mut killed = Instant::now();
    runner.kill().await?;
    if chance.u8(0..4) == 0 {
        runner.launch()?;
        tokio::time::sleep(Duration::from_millis(chance.u64(1..80))).await;
        killed = Instant::now();
        runner.kill().await?;
    }
    runner.restart().await?;
    while !runner.client().has_committed().await {
        if killed.elapsed() > TIMEOUT {
            bail!("no commit within {TIMEOUT:?} of a kill");
        }
        tokio::time::sleep(COMMIT_POLL_INTERVAL).await;
    }
    Ok(killed.elapsed())
}

/// Starts a shop on a free port.
///
/// # Errors
/// Fails if no port is free.
pub async fn open_shop(orlog: &str, seed: u64) -> anyhow::Result<Shop> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .context("no free port for the shop")?;
    let options = Options {
        orlog: orlog.to_owned(),
        seed,
        pace: Duration::from_millis(20),
    };
    Shop::open(listener, &options)
}

/// Places orders in sequence with a pause between them, some of them twice.
///
/// # Errors
/// Fails if an order is not accepted in time.
pub async fn place(client: Client, orders: Vec<Order>, pause: Duration) -> anyhow::Result<()> {
    for (number, order) in orders.iter().enumerate() {
        let times = if number % REPEAT_ONE_IN == 0 { 2 } else { 1 };
        client
            .publish(&vec![order.placed(); times], TIMEOUT)
            .await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Waits until every saga has ended and no event is in flight.
///
/// # Errors
/// Fails on timeout; the error contains the counts by status.
pub async fn wait(
    client: &Client,
    shop: &Shop,
    expected: usize,
    within: Duration,
) -> anyhow::Result<()> {
    let end = Instant::now() + within;
    loop {
        let counts = client.statuses(SAGA).await?;
        let ended: usize = ["completed", "failed"]
            .iter()
            .filter_map(|status| counts.get(*status))
            .sum();
        if ended >= expected && shop.unsent() == 0 {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!(
                "after {within:?} not every saga of {expected} has ended: {counts:?}, {} events unsent",
                shop.unsent()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
