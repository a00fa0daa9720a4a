//! The runner's process: started, killed and stopped by its id, and never left behind.

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

/// The time from its start until it takes work.
const START: Duration = Duration::from_secs(30);
/// The time from SIGTERM until it is gone.
const STOP: Duration = Duration::from_secs(35);
/// Between looks whether it is up.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of its log that an error shows.
const SHOWN: usize = 4000;

/// Where everything of a runner is.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program `orlog`.
    pub binary: PathBuf,
    /// The folder with `order.saga.yaml` and `orlog.toml`.
    pub files: PathBuf,
    /// A folder for its data and its log.
    pub folder: PathBuf,
}

/// A runner and its process, which is killed when this is dropped.
pub struct Runner {
    place: Place,
    listen: SocketAddr,
    shop: String,
    client: Client,
    child: Option<Child>,
}

impl Runner {
    /// A runner that is not started yet, at a free address.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn new(place: Place) -> anyhow::Result<Self> {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")?;
        let listen = free.local_addr().context("the free port has no address")?;
        let client = Client::new(&format!("http://{listen}"))?;
        Ok(Self { place, listen, shop: String::new(), client, child: None })
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// Asks it.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Starts it on its data, with the shop at this URL, and returns once it takes work.
    ///
    /// # Errors
    /// When it does not; the error ends with the last lines of its log.
    pub async fn start(&mut self, shop: &str) -> anyhow::Result<()> {
        shop.clone_into(&mut self.shop);
        self.restart().await
    }

    /// Starts it again as it was started before, and returns once it takes work.
    ///
    /// # Errors
    /// As [`Runner::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        self.ready().await
    }

    /// Starts its process again and returns at once.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn launch(&mut self) -> anyhow::Result<()> {
        let log = self.log()?;
        let mut command = Command::new(&self.place.binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ORLOG_"))
        {
            command.env_remove(name);
        }
        command
            .args(["dev", "--listen", &self.listen.to_string()])
            .arg("--data")
            .arg(self.place.folder.join("data"))
            .arg("--definitions")
            .arg(&self.place.files)
            .arg("--config")
            .arg(self.place.files.join("orlog.toml"))
            .env("ORLOG_GATEWAY__BASE_URL", &self.shop)
            .env("ORLOG_UPSTREAMS__PAYMENTS__BASE_URL", &self.shop)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("the log cannot be shared")?)
            .stderr(log)
            .kill_on_drop(true);
        let program = self.place.binary.display();
        self.child = Some(command.spawn().with_context(|| format!("{program} cannot be started"))?);
        Ok(())
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                bail!("the runner ended with {status}:\n{}", self.tail());
            }
            if self.client.is_ready().await {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        bail!("the runner takes no work after {START:?}:\n{}", self.tail())
    }

    /// Kills it with SIGKILL: it is gone in the middle of whatever it does.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().await.context("the runner cannot be killed")
    }

    /// Asks it with SIGTERM to finish what is under way and to end.
    ///
    /// # Errors
    /// When it does not end well.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.context("the runner has ended by itself")?;
        kill_process(id, Signal::TERM).context("the runner cannot be stopped")?;
        match timeout(STOP, child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
            Ok(status) => bail!("the runner ended badly, {status:?}:\n{}", self.tail()),
            Err(_) => {
                child.kill().await.context("the runner cannot be killed")?;
                bail!("the runner did not end within {STOP:?}:\n{}", self.tail())
            }
        }
    }

    fn log(&self) -> anyhow::Result<File> {
        let path = self.log_path();
        let file = OpenOptions::new().create(true).append(true).open(&path);
        file.with_context(|| format!("{} cannot be written", path.display()))
    }

    /// Where it logs.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.place.folder.join("orlog.log")
    }

    fn tail(&self) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(SHOWN)..]).into_owned()
    }
}
