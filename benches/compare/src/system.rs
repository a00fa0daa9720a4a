//! The systems under test: how each one is configured and started.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use hyper::Method;
use serde_json::json;
use tokio::process::Command;

use crate::client::Client;
use crate::process::{Process, free_ports};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A system, and the protocol between it and the service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum System {
    /// Orlog with a worker that holds a stream of exchanges.
    OrlogExchange,
    /// Orlog with effects of the kind `http`.
    OrlogHttp,
    /// Restate with a service handler.
    RestateService,
    /// Restate with a workflow.
    RestateWorkflow,
}

impl System {
    /// Returns the name in arguments and results.
    pub(crate) fn id(self) -> String {
        self.to_possible_value()
            .expect("no variant is skipped")
            .get_name()
            .to_owned()
    }

    /// Returns the name in tables.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::OrlogExchange => "Orlog, exchange worker",
            Self::OrlogHttp => "Orlog, HTTP effects",
            Self::RestateService => "Restate, service handler",
            Self::RestateWorkflow => "Restate, workflow",
        }
    }

    /// Returns whether it is a variant of Orlog.
    pub(crate) fn is_orlog(self) -> bool {
        matches!(self, Self::OrlogExchange | Self::OrlogHttp)
    }
}

/// The programs.
pub(crate) struct Programs {
    pub(crate) orlog: PathBuf,
    pub(crate) restate: PathBuf,
}

/// A started server.
pub(crate) struct Server {
    pub(crate) process: Process,
    /// Port for starts of sagas.
    pub(crate) port: u16,
    /// Port for the administration.
    admin: u16,
}

impl Server {
    /// Starts `system` with its default settings and an empty directory in `dir`. `service` is the port of the service.
    pub(crate) async fn start(
        system: System,
        programs: &Programs,
        dir: &Path,
        service: u16,
    ) -> Result<Self> {
        let server = if system.is_orlog() {
            start_orlog(system, &programs.orlog, dir, service)?
        } else {
            start_restate(&programs.restate, dir)?
        };
        let path = if system.is_orlog() {
            "/ready"
        } else {
            "/health"
        };
        server.request(Method::GET, path, String::new()).await?;
        Ok(server)
    }

    /// Registers the service on `port` at Restate.
    pub(crate) async fn register(&self, port: u16) -> Result<()> {
        let body = json!({"uri": format!("http://127.0.0.1:{port}")}).to_string();
        self.request(Method::POST, "/deployments", body).await
    }

    /// Sends a request to the administration until it succeeds.
    async fn request(&self, method: Method, path: &str, body: String) -> Result<()> {
        let started = Instant::now();
        loop {
            let client = Client::new(self.admin, 1);
            match client
                .send(method.clone(), path, "application/json", body.clone())
                .await
            {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > START_TIMEOUT => {
                    return Err(error.context(format!(
                        "the server is not ready after {}s",
                        START_TIMEOUT.as_secs()
                    )));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

fn start_orlog(system: System, program: &Path, dir: &Path, service: u16) -> Result<Server> {
    let (definitions, upstreams) = (dir.join("definitions"), dir.join("upstreams"));
    write(
        &definitions,
        "order.saga.yaml",
        include_str!("../order.saga.yaml"),
    )?;
    let upstream = if system == System::OrlogExchange {
        "kind = \"worker\"\neffects = [\"order.reserve\", \"order.charge\", \"order.ship\"]\n"
            .to_owned()
    } else {
        let base = format!("kind = \"http\"\nbase_url = \"http://127.0.0.1:{service}\"\n");
        ["reserve", "charge", "ship"]
            .iter()
            .fold(base, |text, step| {
                text + &format!("[effects.\"order.{step}\"]\npath = \"/{step}\"\n")
            })
    };
    write(&upstreams, "order.toml", &upstream)?;
    let [port] = free_ports()?;
    let mut command = Command::new(program);
    command
        .arg("run")
        .env("ORLOG_LISTEN", format!("127.0.0.1:{port}"))
        .env("ORLOG_DATA_DIR", dir.join("data"));
    command
        .env("ORLOG_DEFINITIONS_DIR", definitions)
        .env("ORLOG_UPSTREAMS_DIR", upstreams);
    Ok(Server {
        process: Process::start("server", &mut command, dir, false)?,
        port,
        admin: port,
    })
}

fn start_restate(program: &Path, dir: &Path) -> Result<Server> {
    let [ingress, admin, node] = free_ports()?;
    let mut command = Command::new(program);
    command
        .args([
            "--no-logo",
            "--listen-mode",
            "tcp",
            "--node-name",
            "compare",
            "--base-dir",
        ])
        .arg(dir.join("data"));
    command.env("RESTATE_BIND_ADDRESS", format!("127.0.0.1:{node}"));
    command.env(
        "RESTATE_INGRESS__BIND_ADDRESS",
        format!("127.0.0.1:{ingress}"),
    );
    command.env("RESTATE_ADMIN__BIND_ADDRESS", format!("127.0.0.1:{admin}"));
    // Usage reports to the vendor.
    command.env("RESTATE_DISABLE_TELEMETRY", "true");
    Ok(Server {
        process: Process::start("server", &mut command, dir, false)?,
        port: ingress,
        admin,
    })
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(dir.join(name), text))
        .with_context(|| format!("cannot write {name} in {}", dir.display()))
}
