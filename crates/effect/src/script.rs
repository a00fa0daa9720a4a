//! Effects that are scripts: jobs of flows, and configured scripts.
//!
//! A job runs in its own directory, with resource limits and an environment of only its configured
//! variables. As far as the kernel supports it, the job has no network and a read-only file system
//! outside its directory. Its input is JSON, its standard output is the result, its standard error is
//! the log. On timeout, cancellation and exit of Orlog, all processes of the job are terminated: see
//! [`run_if_helper`].

mod entry_point;
mod job;
mod mounts;
mod namespaces;
mod result;
mod run;
mod sandbox;
mod spec;
mod supervisor;
mod system_calls;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, InstanceKey, TraceParent, Work, WorkItem};

pub use entry_point::run_if_helper;
pub(crate) use job::is_variable;
pub use spec::Isolation;
pub(crate) use spec::ResourceLimits;

use crate::job_logs::JobLogs;
use crate::placeholders::TextTemplate;
use crate::provider::{Attempt, Provider, ProviderError, Reply};
use crate::secret::SecretScrubber;
use run::RunError;

/// Maximum number of lines of one attempt in the log of the node; further lines are only in the job
/// log.
const LOGGED: usize = 1000;

/// Maximum duration of the check of the sandbox at the start of a node.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Interpreter of a script language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// Program and its arguments; the path of the source file is appended.
    pub(crate) command: Vec<String>,
    /// File suffix.
    pub(crate) suffix: String,
}

/// Script of one effect.
#[derive(Clone, Debug)]
pub(crate) struct ScriptOperation {
    pub(crate) interpreter: Interpreter,
    /// Source code; `None`: the source in the payload.
    pub(crate) script: Option<String>,
    pub(crate) env: Vec<(String, TextTemplate)>,
}

/// Common options of all effects of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct ScriptOptions {
    pub(crate) upstream: String,
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
    operations: BTreeMap<EffectName, ScriptOperation>,
    logs: Arc<JobLogs>,
}

impl ScriptProvider {
    pub(crate) fn new(
        options: ScriptOptions,
        operations: BTreeMap<EffectName, ScriptOperation>,
        logs: Arc<JobLogs>,
    ) -> Self {
        if options.isolation != Isolation::None {
            let (landlock, as_user) = (sandbox::landlock(), options.user);
            tracing::info!(
                upstream = options.upstream,
                landlock,
                as_user,
                "scripts run in a sandbox as far as the kernel supports it"
            );
        }
        Self { options, operations, logs }
    }

    /// Returns the effects in order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }

    fn operation<'a>(
        &'a self,
        item: &'a WorkItem,
    ) -> Result<(&'a Effect, &'a ScriptOperation), ProviderError> {
        let Work::Effect(effect) = &item.work else {
            return Err(ProviderError::permanent(
                "not_an_effect",
                format!("{} is not an effect", item.work.label()),
            ));
        };
        let operation = self.operations.get(&effect.name).ok_or_else(|| {
            let message = format!("{} has no script for {}", self.options.upstream, effect.name);
            ProviderError::permanent("effect_unknown", message)
        })?;
        Ok((effect, operation))
    }

    fn program(&self) -> Result<PathBuf, ProviderError> {
        match &self.options.helper {
            Some(helper) => Ok(helper.clone()),
            None => std::env::current_exe().map_err(|error| {
                ProviderError::unavailable("not_begun", format!("helper program not found: {error}"))
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
        let Ok(program) = self.program() else { return Ok(()) };
        let probe = run::run(&program, self.options.probe(), |_| ());
        match tokio::time::timeout(CHECK_TIMEOUT, probe).await {
            Ok(Err(RunError::Confinement(reason))) if !reason.starts_with(spec::NO_COMMAND) => Err(format!(
                "{reason}; permit user namespaces, use Linux 6.12, or set isolation = \"best_effort\" \
                 (docs/providers/script.md#isolation)"
            )),
            // Another error does not concern the sandbox; each job reports it.
            _ => Ok(()),
        }
    }

    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (effect, operation) = self.operation(item)?;
        let mut scrub = SecretScrubber::default();
        let job = operation.job(&self.options, item, effect, attempt, &mut scrub)?;
        let program = self.program()?;
        let (started, mut last, mut logged) = (Instant::now(), String::new(), 0);
        let ended = run::run(&program, job, |line| {
            let line = scrub.scrub_text(line);
            let at = attempt.at.saturating_add(started.elapsed());
            if logged < LOGGED {
                let InstanceKey { tenant, saga, correlation } = &item.instance;
                let trace_id = item.trace.as_ref().map(TraceParent::trace_id);
                let (id, effect) = (&item.id, &effect.name);
                tracing::info!(%tenant, %saga, %correlation, trace_id, %id, %effect, line, "job log line");
                logged += 1;
            }
            self.logs.append(item, at, std::slice::from_ref(&line));
            if !line.is_empty() {
                last = line;
            }
        });
        let mut ended = ended.await.map_err(|trouble| self.provider_error(trouble, effect))?;
        ended.output = scrub.scrub_bytes(ended.output);
        result::classify_exit(&ended, effect.name.as_str(), &last)
    }
}

impl ScriptProvider {
    fn provider_error(&self, trouble: RunError, effect: &Effect) -> ProviderError {
        let label = format!("{}: {}", self.options.upstream, effect.name);
        match trouble {
            RunError::NotStarted(reason) => {
                ProviderError::unavailable("not_begun", format!("{label} cannot be started: {reason}"))
            }
            RunError::Confinement(reason) => {
                ProviderError::unavailable("not_begun", format!("{label} was not started: {reason}"))
            }
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
