//! The demonstration: hundreds of orders, everything that can go wrong, and a comparison of the books at the end.

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
use crate::orlog::{Place, Runner};
use crate::reconciliation::{Audit, audit};
use crate::shop::{Mood, Shop};
use breaker::Breaker;
use progress::Progress;

/// Orders are placed evenly over this time.
const FEED: Duration = Duration::from_secs(20);
/// The payment service goes down this long after the first order …
const OUTAGE_AT: Duration = Duration::from_secs(7);
/// … and comes back this long after it.
const OUTAGE_END: Duration = Duration::from_secs(12);
/// Everything must have ended this long after the first order.
const DEADLINE: Duration = Duration::from_mins(1);
/// Between looks at how far things are.
const LOOK: Duration = Duration::from_millis(100);
/// The share of payment calls that fail when the service is up.
const FAIL_RATE: f64 = 0.03;

/// What to show.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How many orders are placed
    #[arg(long, default_value_t = 400)]
    pub orders: usize,
    /// Decides the orders and everything that is left to chance
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Kill the runner with SIGKILL twice, at random moments
    #[arg(long)]
    pub kill: bool,
    /// The program `orlog`
    #[arg(long, default_value = "target/release/orlog")]
    pub binary: PathBuf,
    /// The folder with the definition and the configuration
    #[arg(long, default_value = "examples/orders")]
    pub files: PathBuf,
}

/// Plays it. `true` when the books agree.
///
/// # Errors
/// When it cannot be played to the end. Whatever happens, no process is left behind.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    let folder = tempfile::tempdir().context("there is no room for temporary files")?;
    let place = Place {
        binary: options.binary.clone(),
        files: options.files.clone(),
        folder: folder.path().to_owned(),
    };
    let mut runner = Runner::new(place)?;
    let shop = open_shop(&runner.url(), options.seed).await?;
    let played = tokio::select! {
        played = play(&options, &mut runner, &shop) => played,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    // When it went wrong there is nothing to finish, and what went wrong is the error to tell.
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

async fn play(options: &Options, runner: &mut Runner, shop: &Shop) -> anyhow::Result<(Audit, u64)> {
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
    let pause = FEED / u32::try_from(options.orders.max(1)).context("so many orders take too long")?;
    let feed = Feed::new(tokio::spawn(place(runner.client().clone(), all, pause)));
    let opened = watch(options, runner, shop, &feed).await?;
    feed.end().await?;
    let sagas = runner.client().all(SAGA).await?;
    Ok((audit(&accepted, &sagas, &shop.book()), opened))
}

/// Makes things go wrong at their times and shows how far things are, until every saga has ended.
async fn watch(options: &Options, runner: &mut Runner, shop: &Shop, feed: &Feed) -> anyhow::Result<u64> {
    let begun = Instant::now();
    let mut deaths = deaths(options);
    let mut progress = Progress::new(options.orders);
    let mut breaker = Breaker::watching(runner.client().clone());
    loop {
        let now = begun.elapsed();
        let down = (OUTAGE_AT..OUTAGE_END).contains(&now);
        shop.set_mood(Mood { fail_rate: FAIL_RATE, down, ..Mood::default() });
        progress.outage(down);
        if deaths.last().is_some_and(|at| *at <= now) {
            deaths.pop();
            progress.say("kill -9 of the runner; it starts again on the same data");
            runner.kill().await?;
            runner.restart().await?;
        }
        for change in breaker.changes() {
            progress.say(&format!("breaker of payments: {change}"));
        }
        let counts = runner.client().statuses(SAGA).await?;
        let ended = progress.show(now, &counts);
        if feed.has_ended() && ended >= options.orders && shop.unsent() == 0 && !down {
            return Ok(breaker.opened());
        }
        if now >= DEADLINE {
            bail!("after {DEADLINE:?} not every saga has ended: {counts:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The moments at which the runner dies, the last first.
fn deaths(options: &Options) -> Vec<Duration> {
    let mut chance = Rng::with_seed(options.seed);
    let latest = u64::try_from(FEED.as_millis()).expect("it is seconds");
    let mut at: Vec<_> = (0..2).map(|_| Duration::from_millis(chance.u64(1000..latest))).collect();
    at.sort_unstable_by(|a, b| b.cmp(a));
    if options.kill { at } else { Vec::new() }
}

/// The orders being placed; given up when this is dropped.
struct Feed {
    task: JoinHandle<anyhow::Result<()>>,
    abort: AbortHandle,
}

impl Feed {
    fn new(task: JoinHandle<anyhow::Result<()>>) -> Self {
        Self { abort: task.abort_handle(), task }
    }

    fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    async fn end(mut self) -> anyhow::Result<()> {
        (&mut self.task).await.context("the feed failed")?
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Returns when somebody wants it to end.
async fn interrupted() {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let waiting = signals.iter_mut().filter_map(|signal| signal.as_mut().ok());
    let mut waiting: Vec<_> = waiting.map(|signal| Box::pin(signal.recv())).collect();
    std::future::poll_fn(move |context| {
        let ready = waiting.iter_mut().any(|signal| signal.as_mut().poll(context).is_ready());
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
