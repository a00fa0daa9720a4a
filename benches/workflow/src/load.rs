//! Load: a constant number of workflows in flight, for a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

/// Time before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time in which the workflows in flight must end.
const END_LIMIT: Duration = Duration::from_mins(1);

/// Result of a case in a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    /// Workflows per second.
    pub(crate) rate: f64,
    /// CPU time of this process for one workflow.
    pub(crate) cpu_us: f64,
}

/// Executes `run` with the numbers from 0 on, `in_flight` at a time. Returns the measurement and the number of executed workflows.
///
/// The futures stay on one thread each, one thread for each core: those of `sayiir` are not `Send`.
pub(crate) async fn apply<F>(
    in_flight: usize,
    seconds: u64,
    run: impl Fn(u64) -> F + Clone + Send + 'static,
) -> Result<(Measurement, u64)>
where
    F: Future<Output = Result<()>> + 'static,
{
    let (next, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = watch::Sender::new(false);
    let threads = available_parallelism()?.get();
    let mut tasks = JoinSet::new();
    for thread in 0..threads {
        let share = (in_flight + thread) / threads;
        let (next, ended, run, stop) = (
            Arc::clone(&next),
            Arc::clone(&ended),
            run.clone(),
            stop.subscribe(),
        );
        let runtime = Handle::current();
        tasks.spawn_blocking(move || {
            runtime.block_on(LocalSet::new().run_until(async move {
                let mut loops = JoinSet::new();
                for _ in 0..share {
                    loops.spawn_local(repeat(
                        run.clone(),
                        Arc::clone(&next),
                        Arc::clone(&ended),
                        stop.clone(),
                    ));
                }
                while let Some(ended) = loops.join_next().await {
                    ended??;
                }
                Ok::<_, anyhow::Error>(())
            }))
        });
    }
    let measure = async {
        tokio::time::sleep(WARM_UP).await;
        let before = (Instant::now(), ended.load(Ordering::Relaxed), cpu());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        (
            before.0.elapsed(),
            ended.load(Ordering::Relaxed) - before.1,
            cpu().saturating_sub(before.2),
        )
    };
    let (elapsed, count, cpu) = tokio::select! {
        measured = measure => measured,
        Some(ended) = tasks.join_next() => {
            ended??;
            bail!("the load has ended before the measurement");
        }
    };
    stop.send_replace(true);
    let end = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok::<_, anyhow::Error>(())
    };
    match tokio::time::timeout(END_LIMIT, end).await {
        Ok(ended) => ended?,
        Err(_) => bail!("workflows have not ended after {}s", END_LIMIT.as_secs()),
    }
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52")]
    let count = count as f64;
    let measurement = Measurement {
        rate: count / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / count.max(1.0),
    };
    Ok((measurement, next.load(Ordering::Relaxed)))
}

async fn repeat<F: Future<Output = Result<()>>>(
    run: impl Fn(u64) -> F,
    next: Arc<AtomicU64>,
    ended: Arc<AtomicU64>,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    while !*stop.borrow() {
        run(next.fetch_add(1, Ordering::Relaxed)).await?;
        ended.fetch_add(1, Ordering::Relaxed);
        // In-process workflows never wait: the other loops need their turn.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns the CPU time of this process, user and system.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is not negative")
}
