//! NATS servers of a test: one node or a cluster on free loopback ports that can be killed, paused and
//! restarted.
//!
//! If the server is not installed, the test fails.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::child_process::ChildProcess;
use crate::host::{free_port, missing};
use crate::wait::WAIT_TIMEOUT;

/// Maximum number of concurrent clusters per process. More clusters starve each other and elect no
/// leader for minutes.
const CLUSTERS: usize = 4;
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the path of the server binary: `ORLOG_NATS_SERVER`, or the location used by `make nats`.
///
/// # Panics
/// If it is not installed.
#[must_use]
pub fn nats_binary() -> PathBuf {
    let default_path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/nats/bin/nats-server");
    let binary = std::env::var_os("ORLOG_NATS_SERVER").map_or(default_path, PathBuf::from);
    if !binary.is_file() {
        missing("nats-server", "nats");
    }
    binary
}

/// Node and its directory. Dropping it kills the node.
pub struct NatsServer {
    /// Client port on 127.0.0.1.
    pub port: u16,
    binary: PathBuf,
    dir: TempDir,
    process: Option<ChildProcess>,
    /// Slot of the cluster of this node.
    _slot: Option<Arc<ClusterSlot>>,
}

impl NatsServer {
    /// Starts one node with JetStream.
    ///
    /// # Panics
    /// If it is not installed or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts one node with additional configuration.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    #[must_use]
    pub fn start_with(extra: &str) -> Self {
        let mut node = Self::prepare(nats_binary(), free_port(), extra, None);
        node.restart();
        node
    }

    fn prepare(binary: PathBuf, port: u16, extra: &str, slot: Option<Arc<ClusterSlot>>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("orlog-nats-")
            .tempdir()
            .expect("a directory");
        let store = dir.path().join("js");
        let mut text = format!("listen: 127.0.0.1:{port}\n");
        if !extra.contains("jetstream {") {
            writeln!(
                text,
                "jetstream {{ store_dir: \"{}\", max_file_store: 20GB, max_memory_store: 1GB }}",
                store.display()
            )
            .expect("writing to a String never fails");
        }
        text.push_str(extra);
        std::fs::write(dir.path().join("nats.conf"), text).expect("the directory is writable");
        Self {
            port,
            binary,
            dir,
            process: None,
            _slot: slot,
        }
    }

    /// Returns the client URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the directory with `nats.conf` and the JetStream data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Kills the node immediately; stored data is preserved.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Stops the node gracefully; stored data is preserved.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.end(Signal::TERM);
        }
    }

    /// Suspends the process: it does not respond until [`NatsServer::resume`].
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes the process.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Restarts the node on its stored data.
    ///
    /// # Panics
    /// If it does not respond in time.
    pub fn restart(&mut self) {
        self.launch();
        self.wait();
    }

    fn launch(&mut self) {
        self.kill();
        let (config, log) = (
            self.dir.path().join("nats.conf"),
            self.dir.path().join("nats.log"),
        );
        let arguments = ["-c", &config.display().to_string()];
        self.process = Some(ChildProcess::start(&self.binary, &arguments, &[], &log));
    }

    fn wait(&self) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(
                started.elapsed() < WAIT_TIMEOUT,
                "nats-server does not respond: {}",
                self.log()
            );
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Returns the log written so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }
}

/// Nodes that form one cluster.
pub struct NatsCluster {
    /// Nodes; tests may kill any of them.
    pub nodes: Vec<NatsServer>,
}

impl NatsCluster {
    /// Starts a cluster of `size` nodes. Clients learn no other
    /// addresses from the nodes, so that a proxy before a node stays the only path to it.
    ///
    /// # Panics
    /// If the server is not installed, or the nodes do not start.
    #[must_use]
    pub fn start(size: usize) -> Self {
        let binary = nats_binary();
        let slot = ClusterSlot::wait();
        let ports: Vec<(u16, u16)> = (0..size).map(|_| (free_port(), free_port())).collect();
        let routes: Vec<String> = ports
            .iter()
            .map(|(_, route)| format!("nats://127.0.0.1:{route}"))
            .collect();
        let mut nodes: Vec<NatsServer> = ports
            .iter()
            .enumerate()
            .map(|(index, (port, route))| {
                let extra = format!(
                    "server_name: n{index}\ncluster {{ name: orlog, listen: 127.0.0.1:{route}, routes: {routes:?}, no_advertise: true }}\n"
                );
                NatsServer::prepare(binary.clone(), *port, &extra, Some(Arc::clone(&slot)))
            })
            .collect();
        nodes.iter_mut().for_each(NatsServer::launch);
        nodes.iter().for_each(NatsServer::wait);
        Self { nodes }
    }

    /// Returns the client URLs of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(NatsServer::url).collect()
    }
}

/// Slot of one of the concurrent clusters.
#[derive(Debug)]
struct ClusterSlot;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

impl ClusterSlot {
    /// Waits until a slot is free.
    fn wait() -> Arc<Self> {
        let mut running = RUNNING.lock();
        ENDED.wait_while(&mut running, |running| *running >= CLUSTERS);
        *running += 1;
        Arc::new(Self)
    }
}

impl Drop for ClusterSlot {
    fn drop(&mut self) {
        *RUNNING.lock() -= 1;
        ENDED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_restarts_after_kill() {
        let mut node = NatsServer::start();
        node.kill();
        assert!(TcpStream::connect(("127.0.0.1", node.port)).is_err());
        node.restart();
        node.stop();
        assert!(node.log().contains("Initiating Shutdown"));
    }

    #[test]
    fn three_nodes_form_a_cluster() {
        let cluster = NatsCluster::start(3);
        assert_eq!(cluster.urls().len(), 3);
    }
}
