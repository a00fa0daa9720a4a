//! Runs a node: start, serve, drain, stop.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use orlog_node::app::{App, AppOverrides};
use orlog_node::audit::{AuditOutcome, AuditRecord, NotWritten};
use orlog_node::config::Config;
use orlog_node::definitions::DefinitionErrors;
use orlog_node::definitions::change::DeployError;
use orlog_node::definitions::deploy::DeployPolicy;
use orlog_node::descriptors;
use orlog_node::doctor::tables;
use orlog_node::telemetry::{self, TelemetryHandle};

use super::exit::{CommandError, CommandExit};

/// User name recorded for a reload by SIGHUP.
const RELOAD_USER: &str = "SIGHUP";

/// Reason why a node stops.
enum StopReason {
    /// SIGTERM or SIGINT.
    Signal,
    /// A drain through `/admin/drain`.
    Drained,
    /// Too many restarts of an actor.
    Failed,
}

/// Starts a node, sends its listen address to `ready`, and returns after the drain.
pub(crate) async fn serve(
    config: Config,
    overrides: AppOverrides,
    ready: impl FnOnce(&Arc<App>, SocketAddr) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    // First, so that errors of all other parts are logged and exported.
    let telemetry = telemetry::start(&config)?;
    let served = run(config, overrides, ready, telemetry.clone()).await;
    // Last, so that the records of the stop, or of a failed start, are exported too.
    telemetry.stop().await;
    served
}

async fn run(
    config: Config,
    overrides: AppOverrides,
    ready: impl FnOnce(&Arc<App>, SocketAddr) -> Result<(), CommandError>,
    telemetry: TelemetryHandle,
) -> Result<(), CommandError> {
    // Before the node starts: a signal during the start must not end the process without a drain.
    let mut signals = Signals::new()?;
    // Before the first connection and store, which are limited by it.
    descriptors::raise_limit();
    #[cfg(feature = "script")]
    descriptors::close_on_exec();
    descriptors::max_connections(&config)
        .map_err(|error| CommandError::failed(error.to_string()))?;

    // Before the stores are opened: an address in use is a quick error, and changes nothing.
    // Clients that connect early wait until the node serves.
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        CommandError::failed(format!(
            "cannot listen on {}: {error}; set another address with --listen",
            config.listen
        ))
    })?;
    let address = listener.local_addr()?;
    // Other pods receive the actual address.
    let config = Config {
        listen: address,
        ..config
    };
    let overrides = AppOverrides {
        telemetry,
        ..overrides
    };
    // A start can wait, for example for NATS. A signal ends it: as after a crash, nothing is lost.
    let app = tokio::select! {
        started = start(config, overrides) => started?,
        () = signals.next() => {
            tracing::info!("stopped during the start");
            return Ok(());
        }
    };

    let (close, closed) = oneshot::channel::<()>();
    let server = tokio::spawn(orlog_api::serve(Arc::clone(&app), listener, async {
        // An error means the same: the sender was dropped.
        drop(closed.await);
    }));
    let end = match ready(&app, address) {
        Ok(()) => until(&app, &mut signals).await,
        Err(failure) => {
            // The node has started, so that its stores are flushed before the error is returned.
            if let Err(error) = finish(&app, &StopReason::Signal).await {
                tracing::error!(%error, "the node did not stop cleanly");
            }
            return Err(failure);
        }
    };
    // A second signal ends the process, whatever the drain waits for.
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(CommandExit::Interrupted as i32);
    });

    // Only a signal leaves something to drain: the others have drained already, or cannot.
    if matches!(end, StopReason::Signal) {
        tracing::info!("draining; send a second signal to stop immediately");
        if !app.drain().await {
            tracing::warn!("drain timed out; remaining work resumes at the next start");
        }
    }

    // An error means that the server has already stopped.
    close.send(()).ok();
    // The server ends after the drain: clients receive results until no work is in flight.
    if let Ok(Err(error)) = server.await {
        tracing::warn!(%error, "HTTP server stopped");
    }

    // After the server: no handler uses a stopped part.
    finish(&app, &end).await
}

/// Checks the tables and starts the node.
async fn start(config: Config, overrides: AppOverrides) -> Result<Arc<App>, CommandError> {
    // Before a store is opened, because a damaged page could end this process with a signal.
    tables::check_before_start(&config)
        .await
        .map_err(CommandError::failed)?;
    Ok(App::start_with(config, overrides).await?)
}

async fn until(app: &Arc<App>, signals: &mut Signals) -> StopReason {
    loop {
        let Signals {
            terminate,
            interrupt,
            hangup,
        } = signals;
        tokio::select! {
            _ = terminate.recv() => return StopReason::Signal,
            _ = interrupt.recv() => return StopReason::Signal,
            _ = hangup.recv() => reload(app).await,
            () = app.drained() => return StopReason::Drained,
            () = app.has_failed() => return StopReason::Failed,
        }
    }
}

/// Reloads the definitions. On an error, nothing changes and every diagnostic is logged.
async fn reload(app: &Arc<App>) {
    // Without a durable record, a required audit trail would lack a change.
    let Ok(guard) = ReloadRecord::begin(app).await else {
        tracing::error!("reload rejected: audit.required, and the audit trail cannot be written");
        return;
    };

    let reloaded = app
        .reload(RELOAD_USER.to_owned(), DeployPolicy::default())
        .await;
    guard.end(app, reloaded.is_ok());

    let Err(error) = reloaded else { return };
    let DeployError::Rejected(DefinitionErrors(problems)) = &error else {
        tracing::error!(%error, "reload rejected");
        return;
    };

    for problem in problems {
        let file = &problem.file;
        let line = problem.line;
        let column = problem.column;
        tracing::error!(file, line, column, "reload rejected: {problem}");
    }
}

/// Audit record of a reload by a signal.
struct ReloadRecord(AuditRecord);

impl ReloadRecord {
    /// Makes the start durable if the configuration requires the records of changes.
    async fn begin(app: &App) -> Result<Self, NotWritten> {
        let mut record = AuditRecord::of_process(RELOAD_USER, app.config.node_name());
        // A crash during the reload then leaves the record that it started.
        if app.config.audit.required {
            record.outcome = AuditOutcome::Started;
            app.audit.begin(&record).await?;
        }
        Ok(Self(record))
    }

    fn end(mut self, app: &App, is_successful: bool) {
        self.0.outcome = if is_successful {
            AuditOutcome::Succeeded
        } else {
            AuditOutcome::Rejected
        };
        app.audit.record(&self.0);
    }
}

async fn finish(app: &App, end: &StopReason) -> Result<(), CommandError> {
    // Also after a failure: the other parts flush their files.
    let stopped = app.stop().await;
    match end {
        StopReason::Signal | StopReason::Drained => {
            stopped?;
            tracing::info!("stopped");
            Ok(())
        }
        StopReason::Failed => {
            let reason = "node failed: too many restarts of one component (limits.max_restarts); \
                          see the log for the cause";
            Err(CommandError::internal(reason))
        }
    }
}

/// Signal handlers: SIGTERM and SIGINT stop the process, SIGHUP reloads it.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, CommandError> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
