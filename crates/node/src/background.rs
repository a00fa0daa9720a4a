//! Periodic background tasks of a node; they end with the node.
//!
//! A panic ends neither the node nor its stop: it is logged and counted, and a periodic task starts
//! again after a delay.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use orlog_actors::MetricSink;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Delay before a periodic task that panicked starts again.
const RESTART_DELAY: Duration = Duration::from_secs(10);

/// Background tasks of a node.
#[derive(Default)]
pub(crate) struct BackgroundTasks {
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
    panics: Counter,
}

impl BackgroundTasks {
    pub(crate) fn register_metrics(&self, registry: &mut impl MetricSink) {
        registry.register("background_task_panics_total", self.panics.clone());
    }

    /// Runs a task after a delay, unless the node stops earlier.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        after: Duration,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut stopping = self.stopping.subscribe();
        let panics = self.panics.clone();
        let mut tasks = self.tasks.lock();

        // Ended tasks are removed here, so that the set does not grow.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            // The delay ends with the node, but a task that has started runs to its end.
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            let is_due = tokio::select! {
                biased;
                () = stopped => false,
                () = tokio::time::sleep(after) => true,
            };

            if is_due {
                run(name, &panics, task).await;
            }
        });
    }

    /// Runs a task of a service after a delay, and again after each delay that it returns, until
    /// the node stops or drops the service. A task that panics runs again after
    /// [`RESTART_DELAY`]. The stop of the node does not wait for the task, which may wait for free
    /// space.
    pub(crate) fn repeat<S, F>(
        &self,
        name: &'static str,
        service: &Arc<S>,
        mut delay: Duration,
        mut task: impl FnMut(Arc<S>) -> F + Send + 'static,
    ) where
        S: Send + Sync + 'static,
        F: Future<Output = Duration> + Send + 'static,
    {
        // A task must not keep its service alive.
        let service = Arc::downgrade(service);
        let mut stopping = self.stopping.subscribe();
        let panics = self.panics.clone();
        self.tasks.lock().spawn(async move {
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            let repeated = async {
                loop {
                    tokio::time::sleep(delay).await;
                    let Some(service) = service.upgrade() else {
                        return;
                    };

                    // The closure runs inside the guarded future, so that its panic is caught, too.
                    let pass = async { task(service).await };
                    delay = run(name, &panics, pass).await.unwrap_or(RESTART_DELAY);
                }
            };

            tokio::select! {
                biased;
                () = stopped => {}
                () = repeated => {}
            }
        });
    }

    /// Runs a task at once, also while the node stops. Returns `None` after a panic, which is logged
    /// and counted.
    pub(crate) async fn run<T>(
        &self,
        name: &'static str,
        task: impl Future<Output = T>,
    ) -> Option<T> {
        run(name, &self.panics, task).await
    }

    /// Starts no further tasks and waits until the running ones end. Never panics: what follows
    /// stores data and closes stores.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);

        // The lock is free while the tasks end: one of them may spawn another.
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
    }
}

/// Runs a task, and logs and counts its panic. Returns `None` after a panic.
async fn run<T>(name: &'static str, panics: &Counter, task: impl Future<Output = T>) -> Option<T> {
    // Locks of this crate are not poisoned by a panic, and every pass reads its state again.
    let panic = match AssertUnwindSafe(task).catch_unwind().await {
        Ok(output) => return Some(output),
        Err(panic) => panic,
    };

    panics.inc();
    tracing::error!(
        task = name,
        panic = message(&*panic),
        "background task panicked"
    );
    None
}

/// Returns the message of a panic; macros and `expect` panic with a text.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Service whose first pass panics.
    #[derive(Default)]
    struct Service {
        passes: AtomicU32,
        completed: Notify,
    }

    impl Service {
        fn pass(self: Arc<Self>) -> Ready<Duration> {
            let is_first = self.passes.fetch_add(1, Ordering::Relaxed) == 0;
            assert!(!is_first, "the first pass panics");
            self.completed.notify_one();
            ready(Duration::from_hours(1))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_periodic_task_runs_again_after_a_panic_and_the_node_stops() {
        let background = BackgroundTasks::default();
        let service = Arc::<Service>::default();
        background.repeat("test", &service, Duration::ZERO, Service::pass);

        service.completed.notified().await;
        assert_eq!(service.passes.load(Ordering::Relaxed), 2);
        assert_eq!(background.panics.get(), 1);
        background.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_single_task_does_not_panic_the_stop() {
        let background = BackgroundTasks::default();
        let started = Arc::<Notify>::default();
        let starting = Arc::clone(&started);
        background.spawn("test", Duration::ZERO, async move {
            starting.notify_one();
            panic!("{} panics", "the task");
        });

        started.notified().await;
        background.stop().await;
        assert_eq!(background.panics.get(), 1);

        let panicked = async { panic!("the last pass panics") };
        assert_eq!(background.run::<()>("test", panicked).await, None);
        assert_eq!(background.panics.get(), 2);
    }

    #[test]
    fn the_message_of_a_panic_is_its_text() {
        assert_eq!(message(&"text"), "text");
        assert_eq!(message(&"text".to_owned()), "text");
        assert_eq!(message(&1), "unknown");
    }
}
