//! Runs a node until somebody ends it: start, serve, drain, stop.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::app::{App, DeployError, Seams};
use crate::config::Config;
use crate::definitions::Refused;
use crate::{api, telemetry};

use super::exit::{Exit, Failure};

/// Who reloads, for the record.
const RELOADER: &str = "SIGHUP";

/// Why a node ends.
enum End {
    /// SIGTERM or SIGINT.
    Signal,
    /// Somebody called `/admin/drain`.
    Drained,
    /// Its parts died too often.
    GaveUp,
}

/// Starts a node, tells `ready` where it listens, and returns when it has come to rest.
pub(super) async fn serve(
    config: Config,
    seams: Seams,
    ready: impl FnOnce(&App, SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let telemetry = telemetry::start(&config)?;
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        Failure::failed(format!("cannot listen on {}: {error}; choose another with --listen", config.listen))
    })?;
    let address = listener.local_addr()?;
    // Other pods are told where this one really listens.
    let config = Config { listen: address, ..config };
    let app = App::start_with(config, Seams { telemetry: telemetry.clone(), ..seams }).await?;
    let (close, closed) = oneshot::channel::<()>();
    let server = tokio::spawn(api::serve(Arc::clone(&app), listener, async {
        // An error means the same: nobody wants it to go on.
        drop(closed.await);
    }));
    let end = match ready(&app, address) {
        Ok(()) => until(&app, &mut signals).await,
        Err(failure) => {
            finish(&app, &End::Signal).await?;
            return Err(failure);
        }
    };
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(Exit::Interrupted as i32);
    });
    if matches!(end, End::Signal) {
        tracing::info!("draining; a second signal ends the process at once");
        if !app.drain().await {
            tracing::warn!("not everything came to rest in time; it goes on at the next start");
        }
    }
    // An error means that the server has ended already.
    close.send(()).ok();
    if let Ok(Err(error)) = server.await {
        tracing::warn!(%error, "the HTTP server ended");
    }
    let finished = finish(&app, &end).await;
    telemetry.stop().await;
    finished
}

async fn until(app: &Arc<App>, signals: &mut Signals) -> End {
    loop {
        let Signals { terminate, interrupt, hangup } = signals;
        tokio::select! {
            _ = terminate.recv() => return End::Signal,
            _ = interrupt.recv() => return End::Signal,
            _ = hangup.recv() => reload(app).await,
            () = app.drained() => return End::Drained,
            () = app.gave_up() => return End::GaveUp,
        }
    }
}

/// A mistake changes nothing and is logged, place by place.
async fn reload(app: &Arc<App>) {
    let Err(error) = app.reload(RELOADER.to_owned()).await else { return };
    let DeployError::Refused(Refused(problems)) = &error else {
        tracing::error!(%error, "not reloaded");
        return;
    };
    for problem in problems {
        let (file, line, column) = (&problem.file, problem.line, problem.column);
        tracing::error!(file, line, column, "not reloaded: {problem}");
    }
}

async fn finish(app: &App, end: &End) -> Result<(), Failure> {
    let stopped = app.stop().await;
    match end {
        End::Signal | End::Drained => {
            stopped?;
            tracing::info!("stopped");
            Ok(())
        }
        End::GaveUp => {
            let why = "the node gave up: a part of it was restarted too often (limits.restarts); the log says which and why";
            Err(Failure::internal(why))
        }
    }
}

/// The signals that ask the process to end, and SIGHUP, which asks it to reload.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
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
