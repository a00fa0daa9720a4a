//! Demo: hundreds of orders with injected faults, followed by a reconciliation.

mod breaker;
mod progress;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use fastrand::Rng;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::crash_test::{SAGA, open_shop, place};
use crate::orders::orders;
use crate::orlog::{Runner, RunnerPaths};
use crate::reconciliation::{Reconciliation, reconcile};
use crate::shop::{FaultSettings, Shop};
use breaker::BreakerMonitor;
use progress::Progress;

/// Duration over which the orders are placed evenly.
const FEED: Duration = Duration::from_secs(20);
/// Time from the first order to the outage of the payment service …
const OUTAGE_AT: Duration = Duration::from_secs(7);
/// … and to its end.
const OUTAGE_END: Duration = Duration::from_secs(12);
/// Time from the first order by which every saga must have ended.
const DEADLINE: Duration = Duration::from_mins(1);
/// Poll interval of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Share of payment calls that fail outside the outage.
const FAIL_RATE: f64 = 0.03;

/// Options of the demo.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Number of orders
    #[arg(long, default_value_t = 400)]
    pub orders: usize,
    /// Seed of the orders and all random faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Kill the runner with SIGKILL twice, at random times
    #[arg(long)]
    pub kill: bool,
    /// Path of the program `orlog`. Default: beside this program
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// Directory of the definition and the configuration
    #[arg(long, default_value = "examples/orders")]
    pub files: PathBuf,
}

fn program_beside() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("orlog"))
}

/// Runs the demo. Returns `true` if the records match.
///
/// # Errors
/// Fails if the demo does not complete. No process is left running in any case.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
    let paths = RunnerPaths {
        binary: options.binary.clone().map_or_else(program_beside, Ok)?,
        files: options.files.clone(),
        dir: dir.path().to_owned(),
    };
    let mut runner = Runner::new(paths)?;
    let shop = open_shop(&runner.url(), options.seed).await?;
    let played = tokio::select! {
        played = play(&options, &mut runner, &shop) => played,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    // After a failure there is nothing to finish; the original error is reported.
    let (audit, opened) = match played {
        Ok(played) => played,
        Err(error) => {
            runner.kill().await?;
            return Err(error);
        }
    };
    runner.stop().await?;
    print!("{}", report::table(&audit, opened));
    Ok(audit.is_clean())
}

async fn play(
    options: &Options,
    runner: &mut Runner,
    shop: &Shop,
) -> anyhow::Result<(Reconciliation, u64)> {
    runner.start(&shop.url()).await?;
    println!(
        "shop at {}, runner at {}, {} orders, seed {}",
        shop.url(),
        runner.url(),
        options.orders,
        options.seed
    );
    let all = orders(options.seed, options.orders);
    let accepted: Vec<String> = all.iter().map(|order| order.id.clone()).collect();
    let pause = FEED / u32::try_from(options.orders.max(1)).context("too many orders")?;
    let feed = OrderFeed::new(tokio::spawn(place(runner.client().clone(), all, pause)));
    let opened = watch(options, runner, shop, &feed).await?;
    feed.end().await?;
    let sagas = runner.client().all(SAGA).await?;
    Ok((reconcile(&accepted, &sagas, &shop.record()), opened))
}

/// Injects the faults at their times and prints the progress until every saga has ended.
async fn watch(
    options: &Options,
    runner: &mut Runner,
    shop: &Shop,
    feed: &OrderFeed,
) -> anyhow::Result<u64> {
    let started = Instant::now();
    let mut kill_times = kill_times(options);
    let mut progress = Progress::new(options.orders);
    let mut breaker = BreakerMonitor::watching(runner.client().clone());
    loop {
        let now = started.elapsed();
        let down = (OUTAGE_AT..OUTAGE_END).contains(&now);
        shop.set_faults(FaultSettings {
            fail_rate: FAIL_RATE,
            down,
            ..FaultSettings::default()
        });
        progress.outage(down);
        if kill_times.last().is_some_and(|at| *at <= now) {
            kill_times.pop();
            progress.print_line("kill -9 of the runner; restarting on the same data");
            runner.kill().await?;
            runner.restart().await?;
        }
        for change in breaker.changes() {
            progress.print_line(&format!("circuit breaker of payments: {change}"));
        }
        let counts = runner.client().statuses(SAGA).await?;
        let ended = progress.show(now, &counts);
        if feed.has_ended() && ended >= options.orders && shop.unsent() == 0 && !down {
            return Ok(breaker.opened());
        }
        if now >= DEADLINE {
            bail!("after {DEADLINE:?} not every saga has ended: {counts:?}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the times at which the runner is killed, latest first.
fn kill_times(options: &Options) -> Vec<Duration> {
    let mut chance = Rng::with_seed(options.seed);
    let latest = u64::try_from(FEED.as_millis()).expect("the feed duration fits in 64 bits");
    let mut at: Vec<_> = (0..2)
        .map(|_| Duration::from_millis(chance.u64(1000..latest)))
        .collect();
    at.sort_unstable_by(|a, b| b.cmp(a));
    if options.kill { at } else { Vec::new() }
}

/// Task that places the orders; aborted on drop.
struct OrderFeed {
    task: JoinHandle<anyhow::Result<()>>,
    abort: AbortHandle,
}

impl OrderFeed {
    fn new(task: JoinHandle<anyhow::Result<()>>) -> Self {
        Self {
            abort: task.abort_handle(),
            task,
        }
    }

    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    async fn end(mut self) -> anyhow::Result<()> {
        (&mut self.task).await.context("the order feed failed")?
    }
}

impl Drop for OrderFeed {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Waits for an interrupt signal.
async fn interrupted() {
    let mut signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ]
    .map(signal);
    let waiting = signals.iter_mut().filter_map(|signal| signal.as_mut().ok());
    let mut waiting: Vec<_> = waiting.map(|signal| Box::pin(signal.recv())).collect();
    std::future::poll_fn(move |context| {
        let ready = waiting
            .iter_mut()
            .any(|signal| signal.as_mut().poll(context).is_ready());
        if ready {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}
