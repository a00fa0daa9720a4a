//! NATS servers of a test's own: one node or a cluster on free ports of the loopback, to be killed, paused and started again.
//!
//! Where the server is not installed a test is skipped; in CI it fails.

use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::child_process::Kept;

/// A node that has not begun to answer by then does not work.
const PATIENCE: Duration = Duration::from_secs(30);
/// Clusters of a process at once: more of them starve each other, and choose no leader for minutes.
const CLUSTERS: usize = 4;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The server's binary: `ORLOG_NATS_SERVER`, or where `make nats` puts it. `None`: it is not installed.
///
/// # Panics
/// When it is missing in CI.
#[must_use]
pub fn nats_binary() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats/bin/nats-server");
    let binary = std::env::var_os("ORLOG_NATS_SERVER").map_or(here, PathBuf::from);
    if !binary.is_file() {
        let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
        assert!(!in_ci, "nats-server is not installed; `make nats` installs it");
        eprintln!("skipped: nats-server is not installed; `make nats` installs it");
        return None;
    }
    Some(binary)
}

/// A node and its folder. Dropping it kills it.
pub struct NatsServer {
    /// Where clients connect on 127.0.0.1.
    pub port: u16,
    binary: PathBuf,
    folder: TempDir,
    process: Option<Kept>,
    /// Of the cluster that it belongs to.
    _turn: Option<Arc<Turn>>,
}

impl NatsServer {
    /// Starts one node with JetStream. `None`: it is not installed.
    ///
    /// # Panics
    /// When it does not start, or is missing in CI.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts one node with more configuration.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    #[must_use]
    pub fn start_with(extra: &str) -> Option<Self> {
        let mut node = Self::prepare(nats_binary()?, free_port(), extra, None);
        node.restart();
        Some(node)
    }

    fn prepare(binary: PathBuf, port: u16, extra: &str, turn: Option<Arc<Turn>>) -> Self {
        let folder = tempfile::Builder::new().prefix("orlog-nats-").tempdir().expect("a folder");
        let store = folder.path().join("js");
        let mut text = format!("listen: 127.0.0.1:{port}\n");
        if !extra.contains("jetstream") {
            writeln!(
                text,
                "jetstream {{ store_dir: \"{}\", max_file_store: 20GB, max_memory_store: 1GB }}",
                store.display()
            )
            .expect("a text takes everything");
        }
        text.push_str(extra);
        std::fs::write(folder.path().join("nats.conf"), text).expect("the folder is ours");
        Self { port, binary, folder, process: None, _turn: turn }
    }

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its folder: `nats.conf` and what JetStream stores.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it at once; what it has stored stays.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Ends it in good order; what it has stored stays.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(Signal::TERM);
        }
    }

    /// Stops its clock: it answers nobody until [`NatsServer::resume`].
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts it, again, on what it has stored.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub fn restart(&mut self) {
        self.launch();
        self.wait();
    }

    fn launch(&mut self) {
        self.kill();
        let (config, log) = (self.folder.path().join("nats.conf"), self.folder.path().join("nats.log"));
        let arguments = ["-c", &config.display().to_string()];
        self.process = Some(Kept::start(&self.binary, &arguments, &[], &log));
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "nats-server does not answer: {}", self.log());
            std::thread::park_timeout(LOOK);
        }
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("nats.log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }
}

/// Nodes that form one cluster.
pub struct NatsCluster {
    /// Them; kill what you like.
    pub nodes: Vec<NatsServer>,
}

impl NatsCluster {
    /// Starts a cluster of `size` nodes. `None`: the server is not installed.
    ///
    /// # Panics
    /// When they do not start, or the server is missing in CI.
    #[must_use]
    pub fn start(size: usize) -> Option<Self> {
        let binary = nats_binary()?;
        let turn = Turn::wait();
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (free_port(), free_port())).collect();
        let routes: Vec<String> =
            ports.iter().map(|(_, route)| format!("nats://127.0.0.1:{route}")).collect();
        let mut nodes: Vec<NatsServer> = ports
            .iter()
            .enumerate()
            .map(|(index, (port, route))| {
                let extra = format!(
                    "server_name: n{index}\ncluster {{ name: orlog, listen: 127.0.0.1:{route}, routes: {routes:?} }}\n"
                );
                NatsServer::prepare(binary.clone(), *port, &extra, Some(Arc::clone(&turn)))
            })
            .collect();
        nodes.iter_mut().for_each(NatsServer::launch);
        nodes.iter().for_each(NatsServer::wait);
        Some(Self { nodes })
    }

    /// Where clients connect: all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(NatsServer::url).collect()
    }
}

/// One of the clusters that run at once.
#[derive(Debug)]
struct Turn;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl Turn {
    /// Waits until another one may run.
    fn wait() -> Arc<Self> {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let running = ENDED.wait_while(running, |running| *running >= CLUSTERS);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Arc::new(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

/// A free port of the loopback. Nobody else gets it until a server takes it, unless somebody is very quick.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_after_it_was_killed() {
        let Some(mut node) = NatsServer::start() else { return };
        node.kill();
        assert!(TcpStream::connect(("127.0.0.1", node.port)).is_err());
        node.restart();
        node.stop();
        assert!(node.log().contains("Initiating Shutdown"));
    }

    #[test]
    fn three_nodes_find_each_other() {
        let Some(cluster) = NatsCluster::start(3) else { return };
        assert_eq!(cluster.urls().len(), 3);
    }
}
