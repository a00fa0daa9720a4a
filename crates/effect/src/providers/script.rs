//! Effects that are scripts: jobs of flows, and configured scripts.
//!
//! A job runs in its own directory, with resource limits and an environment of only its configured
//! variables. As far as the kernel supports it, the job has no network and a read-only file system
//! outside its directory. Its input is JSON, its standard output is the result, its standard error
//! is the log. On timeout, cancellation and exit of Orlog, all processes of the job are terminated:
//! see [`run_if_helper`].
//!
//! Between Orlog and a script stand helper processes: a *supervisor* of the job, and those that
//! sandbox themselves before they become the interpreter. They are the current program with a
//! hidden argument. Self-restriction of a process is safe in Rust. The same code between `fork` and
//! `exec` of a multi-threaded program is not.

mod config;
mod descriptors;
mod job;
mod mounts;
mod namespaces;
mod result;
mod run;
mod sandbox;
mod spec;
mod supervisor;
mod system_calls;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orlog_model::{Effect, InstanceKey, TraceParent, WorkItem};
use serde::{Deserialize, Serialize};

pub use config::{ScriptConfig, ScriptEffectConfig};
pub use descriptors::close_on_exec;
pub use spec::{Isolation, ResourceLimits};

use crate::job_logs::JobLogs;
use crate::operations::Operations;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use crate::template::TextTemplate;
use run::RunError;
use spec::{INIT_COMMAND, NAMESPACES_COMMAND, SANDBOX_COMMAND, SUPERVISE_COMMAND};

/// Maximum number of lines of one attempt in the log of the node; further lines are only in the job
/// log.
const LOGGED: usize = 1000;

/// Maximum duration of the check of the sandbox at the start of a node.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Interpreter of a script language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    /// Program and its arguments; the path of the source file is appended.
    pub command: Vec<String>,
    /// File suffix.
    #[serde(default)]
    pub suffix: String,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptOperation {
    pub(crate) interpreter: Interpreter,
    /// Source code; `None`: the source in the payload.
    pub(crate) script: Option<String>,
    pub(crate) env: Vec<(String, TextTemplate)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ScriptOptions {
    /// Helper program; `None`: the current program.
    pub(crate) helper: Option<PathBuf>,
    pub(crate) user: Option<u32>,
    pub(crate) limits: ResourceLimits,
    pub(crate) isolation: Isolation,
    pub(crate) network: bool,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) max_output: usize,
}

/// Provider of the script effects of one upstream.
pub struct ScriptProvider {
    options: ScriptOptions,
    operations: Operations<ScriptOperation>,
    logs: Arc<JobLogs>,
}

impl ScriptProvider {
    pub(crate) fn new(
        options: ScriptOptions,
        operations: Operations<ScriptOperation>,
        logs: Arc<JobLogs>,
    ) -> Self {
        if options.isolation != Isolation::None {
            let landlock = sandbox::landlock();
            let as_user = options.user;
            tracing::info!(
                upstream = operations.upstream,
                landlock,
                as_user,
                "scripts run in a sandbox as far as the kernel supports it"
            );
        }

        Self {
            options,
            operations,
            logs,
        }
    }

    fn program(&self) -> Result<PathBuf, ProviderError> {
        match &self.options.helper {
            Some(helper) => Ok(helper.clone()),
            None => std::env::current_exe().map_err(|error| {
                ProviderError::unavailable(
                    "not_begun",
                    format!("helper program not found: {error}"),
                )
            }),
        }
    }
}

#[async_trait]
impl Provider for ScriptProvider {
    async fn check(&self) -> Result<(), String> {
        if self.options.isolation != Isolation::Required {
            return Ok(());
        }
        let Ok(program) = self.program() else {
            return Ok(());
        };

        let probe = run::run(&program, self.options.probe(), |_| ());
        match tokio::time::timeout(CHECK_TIMEOUT, probe).await {
            Ok(Err(RunError::Confinement(reason))) if !reason.starts_with(spec::NO_COMMAND) => {
                Err(format!(
                    "{reason}; permit user namespaces, use Linux 6.12, or set isolation = \
                    \"best_effort\" (docs/providers/script.md#isolation)"
                ))
            }
            // Another error does not concern the sandbox; each job reports it.
            _ => Ok(()),
        }
    }

    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (effect, operation) = self.operations.find(item)?;
        let mut scrub = SecretScrubber::default();
        let job = operation.job(&self.options, item, effect, attempt, &mut scrub)?;
        let program = self.program()?;

        let started = Instant::now();
        let mut last = String::new();
        let mut logged = 0;
        let ended = run::run(&program, job, |line| {
            let line = scrub.scrub_text(line);
            let at = attempt.at.saturating_add(started.elapsed());
            // A job that writes millions of lines must not fill the log of the node. The job log
            // has its own limit.
            if logged < LOGGED {
                let InstanceKey {
                    tenant,
                    saga,
                    correlation,
                } = &item.instance;
                let trace_id = item.trace.as_ref().map(TraceParent::trace_id);
                tracing::info!(
                    %tenant,
                    %saga,
                    %correlation,
                    trace_id,
                    id = %item.id,
                    effect = %effect.name,
                    line,
                    "job log line"
                );
                logged += 1;
            }

            self.logs.append(item, at, std::slice::from_ref(&line));
            if !line.is_empty() {
                last = line;
            }
        });
        let mut ended = ended
            .await
            .map_err(|trouble| self.provider_error(trouble, effect))?;

        // The variables of the job can contain secrets, and the job can print them.
        ended.output = scrub.scrub_bytes(ended.output);
        result::classify_exit(&ended, effect.name.as_str(), &last)
    }
}

impl ScriptProvider {
    fn provider_error(&self, trouble: RunError, effect: &Effect) -> ProviderError {
        let label = format!("{}: {}", self.operations.upstream, effect.name);
        match trouble {
            RunError::NotStarted(reason) => ProviderError::unavailable(
                "not_begun",
                format!("{label} cannot be started: {reason}"),
            ),
            RunError::Confinement(reason) => ProviderError::unavailable(
                "not_begun",
                format!("{label} was not started: {reason}"),
            ),
            RunError::Output => {
                let limit = self.options.max_output;
                ProviderError::permanent(
                    "output_too_long",
                    format!("the result of {label} exceeds {limit} bytes (max_output_bytes)"),
                )
            }
            RunError::Lost(reason) => {
                ProviderError::response_lost("supervisor_lost", format!("{label}: {reason}"))
            }
        }
    }
}

/// Runs the helper if the process was started as one, and returns its exit code. Call it first in
/// `main` of a program in which Orlog runs scripts.
#[must_use]
pub fn run_if_helper() -> Option<ExitCode> {
    let run = match std::env::args_os().nth(1)?.to_str()? {
        SUPERVISE_COMMAND => supervisor::run,
        NAMESPACES_COMMAND => namespaces::run,
        INIT_COMMAND => namespaces::run_first,
        SANDBOX_COMMAND => sandbox::run,
        _ => return None,
    };

    // The sandbox fails if this is not possible.
    close_on_exec().ok();
    Some(run())
}
