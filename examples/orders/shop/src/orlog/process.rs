//! Process of the runner: started, killed and stopped by its id, and never left running.

use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::Client;

/// Timeout from the start until the runner accepts work.
const START: Duration = Duration::from_secs(30);
/// Timeout from SIGTERM until the process has ended.
const STOP: Duration = Duration::from_secs(35);
/// Poll interval of the readiness check.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of log bytes that an error contains.
const LOG_TAIL_BYTES: usize = 4000;

/// Paths of a runner.
#[derive(Clone, Debug)]
pub struct RunnerPaths {
    /// Path of the program `orlog`.
    pub binary: PathBuf,
    /// Directory of `order.saga.yaml` and `orlog.toml`.
    pub files: PathBuf,
    /// Directory of its data and its log.
    pub dir: PathBuf,
}

/// Runner process; killed on drop.
pub struct Runner {
    paths: RunnerPaths,
    listen: SocketAddr,
    shop: String,
    client: Client,
    child: Option<Child>,
}

impl Runner {
    /// Creates a runner with a free address without starting it.
    ///
    /// # Errors
    /// Fails if no port is free.
    pub fn new(paths: RunnerPaths) -> anyhow::Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
        let listen = free.local_addr().context("the free port has no address")?;
        let client = Client::new(&format!("http://{listen}"))?;
        Ok(Self {
            paths,
            listen,
            shop: String::new(),
            client,
            child: None,
        })
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Returns its client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Starts the runner on its data, with the shop at this URL. Returns once it accepts work.
    ///
    /// # Errors
    /// Fails if it does not start; the error ends with the last lines of its log.
    pub async fn start(&mut self, shop: &str) -> anyhow::Result<()> {
        shop.clone_into(&mut self.shop);
        self.restart().await
    }

    /// Restarts the runner with the same options. Returns once it accepts work.
    ///
    /// # Errors
    /// Same as [`Runner::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        self.ready().await
    }

    /// Restarts the process without waiting for it.
    ///
    /// # Errors
    /// Fails if the process cannot be started.
    pub fn launch(&mut self) -> anyhow::Result<()> {
        let log = self.log()?;
        let mut command = Command::new(&self.paths.binary);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORLOG_"))
        {
            command.env_remove(name);
        }
        command
            .args(["dev", "--listen", &self.listen.to_string()])
            .arg("--data-dir")
            .arg(self.paths.dir.join("data"))
            .arg("--definitions-dir")
            .arg(&self.paths.files)
            .arg("--config")
            .arg(self.paths.files.join("orlog.toml"))
            // Each start would have another token.
            .env("ORLOG_AUTH__ALLOW_UNAUTHENTICATED", "true")
            .env("ORLOG_GATEWAY__BASE_URL", &self.shop)
            .env("ORLOG_UPSTREAMS__PAYMENTS__BASE_URL", &self.shop)
            .stdin(Stdio::null())
            .stdout(
                log.try_clone()
                    .context("cannot duplicate the log file handle")?,
            )
            .stderr(log)
            .kill_on_drop(true);
        let program = self.paths.binary.display();
        self.child = Some(
            command
                .spawn()
                .with_context(|| format!("cannot start {program}"))?,
        );
        Ok(())
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().ok().flatten())
            {
                bail!("the runner ended with {status}:\n{}", self.tail());
            }
            if self.client.is_ready().await {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!(
            "the runner accepts no work after {START:?}:\n{}",
            self.tail()
        )
    }

    /// Kills the process with SIGKILL, in the middle of its work.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        child.kill().await.context("cannot kill the runner")
    }

    /// Stops the process with SIGTERM, so that it finishes the work in flight.
    ///
    /// # Errors
    /// Fails if it does not end with success.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let id = id.context("the runner has already ended")?;
        kill_process(id, Signal::TERM).context("cannot stop the runner")?;
        match timeout(STOP, child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
            Ok(status) => bail!("the runner failed, {status:?}:\n{}", self.tail()),
            Err(_) => {
                child.kill().await.context("cannot kill the runner")?;
                bail!("the runner did not end within {STOP:?}:\n{}", self.tail())
            }
        }
    }

    fn log(&self) -> anyhow::Result<File> {
        let path = self.log_path();
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns the path of its log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.paths.dir.join("orlog.log")
    }

    fn tail(&self) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }
}
