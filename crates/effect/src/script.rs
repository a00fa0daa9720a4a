//! Effects that are scripts: jobs of flows, and scripts that the configuration names.
//!
//! A job runs in a folder of its own, with an environment that holds what it was given and nothing else, under limits, without
//! network and with the rest of the file system read-only, as far as the kernel lets it. Its input is JSON, its answer is
//! what it writes to its standard output, its log is what it writes to its standard error. When its time is over, when it is
//! cancelled and when Orlog ends, all of its processes end: see [`helper`].

mod entry_point;
mod job;
mod result;
mod run;
mod sandbox;
mod spec;
mod supervisor;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, InstanceKey, TraceParent, Work, WorkItem};

pub use entry_point::helper;
pub(crate) use job::is_variable;
pub use spec::Isolation;
pub(crate) use spec::Limits;

use crate::job_logs::Lines;
use crate::placeholders::Text;
use crate::provider::{Attempt, Provider, Refusal, Reply};
use crate::secret::Scrub;
use run::Trouble;

/// Lines of one attempt that go to the log of the node; the rest is only kept for whoever looks.
const LOGGED: usize = 1000;

/// How scripts of a language are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// The program and its arguments; the file with the source comes behind.
    pub(crate) command: Vec<String>,
    /// How the file ends.
    pub(crate) suffix: String,
}

/// What one effect runs.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) interpreter: Interpreter,
    /// The source; `None`: that of the payload.
    pub(crate) script: Option<String>,
    pub(crate) env: Vec<(String, Text)>,
}

/// What is the same for all effects of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) upstream: String,
    /// The program that is its own helper; `None`: this one.
    pub(crate) helper: Option<PathBuf>,
    pub(crate) user: Option<u32>,
    pub(crate) limits: Limits,
    pub(crate) isolation: Isolation,
    pub(crate) network: bool,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
    pub(crate) max_output: usize,
}

/// The effects of one upstream that are scripts.
pub struct Script {
    manner: Manner,
    operations: BTreeMap<EffectName, Operation>,
    lines: Arc<Lines>,
}

impl Script {
    pub(crate) fn new(
        manner: Manner,
        operations: BTreeMap<EffectName, Operation>,
        lines: Arc<Lines>,
    ) -> Self {
        if manner.isolation != Isolation::None {
            let (landlock, as_user) = (sandbox::landlock(), manner.user);
            tracing::info!(
                upstream = manner.upstream,
                landlock,
                as_user,
                "scripts are confined as far as the kernel can"
            );
        }
        Self { manner, operations, lines }
    }

    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }

    fn operation<'a>(&'a self, item: &'a WorkItem) -> Result<(&'a Effect, &'a Operation), Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let operation = self.operations.get(&effect.name).ok_or_else(|| {
            let message = format!("{} has no script for {}", self.manner.upstream, effect.name);
            Refusal::failed("effect_unknown", message)
        })?;
        Ok((effect, operation))
    }

    fn program(&self) -> Result<PathBuf, Refusal> {
        match &self.manner.helper {
            Some(helper) => Ok(helper.clone()),
            None => std::env::current_exe()
                .map_err(|error| Refusal::retry("not_begun", format!("the helper is not found: {error}"))),
        }
    }
}

#[async_trait]
impl Provider for Script {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let (effect, operation) = self.operation(item)?;
        let mut scrub = Scrub::default();
        let job = operation.job(&self.manner, item, effect, attempt, &mut scrub)?;
        let program = self.program()?;
        let (begun, mut last, mut logged) = (Instant::now(), String::new(), 0);
        let ended = run::run(&program, job, |line| {
            let line = scrub.text(line);
            let at = attempt.at.after(begun.elapsed());
            if logged < LOGGED {
                let InstanceKey { tenant, saga, correlation } = &item.instance;
                let trace_id = item.trace.as_ref().map(TraceParent::trace_id);
                let (id, effect) = (&item.id, &effect.name);
                tracing::info!(%tenant, %saga, %correlation, trace_id, %id, %effect, line, "a job writes");
                logged += 1;
            }
            self.lines.write(item, at, std::slice::from_ref(&line));
            if !line.is_empty() {
                last = line;
            }
        });
        let mut ended = ended.await.map_err(|trouble| self.refusal(trouble, effect))?;
        ended.output = scrub.bytes(ended.output);
        result::judge(&ended, effect.name.as_str(), &last)
    }
}

impl Script {
    fn refusal(&self, trouble: Trouble, effect: &Effect) -> Refusal {
        let place = format!("{}: {}", self.manner.upstream, effect.name);
        match trouble {
            Trouble::NotBegun(why) => {
                Refusal::retry("not_begun", format!("{place} cannot be started: {why}"))
            }
            Trouble::Confinement(why) => {
                Refusal::retry("not_begun", format!("{place} was not started: {why}"))
            }
            Trouble::Output => {
                let most = self.manner.max_output;
                Refusal::failed(
                    "output_too_long",
                    format!("{place} answers more than {most} bytes (max_output_bytes)"),
                )
            }
            Trouble::Lost(why) => Refusal::lost("keeper_lost", format!("{place}: {why}")),
        }
    }
}
