//! Configuration of script upstreams.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};

use super::job::is_variable;
use super::spec::{Isolation, ResourceLimits};
use super::{Interpreter, ScriptOperation, ScriptOptions, ScriptProvider};
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
use crate::job_logs::JobLogs;
use crate::operations::Operations;
use crate::policy::Policy;
use crate::template::TextTemplate;
use crate::upstream::Upstream;

/// Default paths that jobs may read, if they exist. Of `/etc` only what interpreters and libraries
/// need: it often contains the configuration and secrets of services, also of Orlog.
const READ: [&str; 33] = [
    "/bin",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix",
    "/opt",
    "/proc",
    "/sbin",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/usr",
];

/// User id of jobs if Orlog runs as root.
const UNPRIVILEGED_UID: u32 = 65534;

/// Built-in interpreters: name, command, file suffix.
const KNOWN: [(&str, &str, &str); 4] = [
    ("bash", "bash", ".sh"),
    ("node", "node", ".js"),
    ("python", "python3", ".py"),
    ("sh", "sh", ".sh"),
];

upstream_config! {
    /// Configuration of effects that are scripts.
    ScriptConfig {
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, ScriptEffectConfig>,
        /// Interpreters in addition to `python`, `sh`, `bash` and `node`, or replacements of them.
        #[serde(default)]
        pub interpreters: BTreeMap<String, Interpreter>,
        /// Resource limits of a job.
        #[serde(default)]
        pub limits: ResourceLimits,
        /// Whether a job runs on a system without sandbox support.
        #[serde(default)]
        pub isolation: Isolation,
        /// Whether jobs may use the network.
        #[serde(default)]
        pub network: bool,
        /// Directories and files that jobs may read in addition to those of the system.
        #[serde(default)]
        pub read: Vec<PathBuf>,
        /// Directories and files that jobs may write in addition to their own directory.
        #[serde(default)]
        pub write: Vec<PathBuf>,
        /// User id of jobs if Orlog runs as root. Default: 65534.
        pub user: Option<u32>,
        /// Maximum size of the result of a job, in bytes. Default: 1048576.
        pub max_output_bytes: Option<NonZeroUsize>,
        /// Program that supervises jobs, for programs that embed Orlog. Default: the current
        /// program.
        pub helper: Option<PathBuf>,
    }
}

/// One effect that is a script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptEffectConfig {
    /// Interpreter; for `job.python` the default is `python`.
    pub interpreter: Option<String>,
    /// Source code. Default: the source in the payload.
    pub script: Option<String>,
    /// Environment variables, in addition to those of the payload.
    pub env: BTreeMap<String, String>,
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

impl UpstreamConfig for ScriptConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::upstream(site.name, reason);
        if self.effects.is_empty() {
            return Err(invalid(
                "effects are missing; example: [effects.\"job.python\"]".to_owned(),
            ));
        }

        let mut paths = self.read.iter().chain(&self.write).chain(&self.helper);
        if let Some(path) = paths.find(|path| !path.is_absolute()) {
            return Err(invalid(format!(
                "{} is not an absolute path",
                path.display()
            )));
        }

        if let Some((name, _)) = self
            .interpreters
            .iter()
            .find(|(_, config)| config.command.is_empty())
        {
            return Err(invalid(format!(
                "interpreters.{name} has no command; example: command = [\"ruby\"]"
            )));
        }

        let compile =
            |effect: &EffectName, config: &ScriptEffectConfig| self.operation(effect, config);
        let operations = Operations::new(site.name, "script", &self.effects, compile)?;
        let effects = operations.effects();
        let job_logs = Arc::<JobLogs>::default();
        let script = ScriptProvider::new(self.script_options(), operations, Arc::clone(&job_logs));

        let policy = self.policy(Policy::script());
        let upstream = Upstream::effects(site.name, effects, Arc::new(script), policy);
        let upstream = Upstream {
            job_logs: Some(job_logs),
            ..self.finish(upstream)
        };

        narrow(
            upstream,
            self.effects
                .iter()
                .map(|(effect, config)| (effect, &config.contexts)),
        )
    }

    fn runs_programs(&self) -> bool {
        true
    }
}

impl ScriptConfig {
    fn script_options(&self) -> ScriptOptions {
        ScriptOptions {
            helper: self.helper.clone(),
            user: rustix::process::geteuid()
                .is_root()
                .then(|| self.user.unwrap_or(UNPRIVILEGED_UID)),
            limits: self.limits,
            isolation: self.isolation,
            network: self.network,
            read: READ
                .iter()
                .map(PathBuf::from)
                .chain(self.read.iter().cloned())
                .collect(),
            write: self.write.clone(),
            max_output: self.max_output_bytes.map_or(1 << 20, NonZeroUsize::get),
        }
    }

    fn operation(
        &self,
        effect: &EffectName,
        config: &ScriptEffectConfig,
    ) -> Result<ScriptOperation, String> {
        let named = config
            .interpreter
            .as_deref()
            .or_else(|| effect.as_str().strip_prefix("job."));
        let named = named.ok_or("interpreter is missing; example: interpreter = \"python\"")?;

        let interpreter = self.interpreter(named).ok_or_else(|| {
            let known = KNOWN
                .iter()
                .map(|(name, ..)| *name)
                .chain(self.interpreters.keys().map(String::as_str));
            let known = known.collect::<Vec<_>>().join(", ");
            format!(
                "unknown interpreter {named:?}; available: {known}; add others under \
                [interpreters.{named}]"
            )
        })?;

        let mut env = Vec::with_capacity(config.env.len());
        for (name, text) in &config.env {
            is_variable(name).map_err(|reason| format!("env: {reason}"))?;
            let text =
                TextTemplate::parse(text).map_err(|reason| format!("env.{name}: {reason}"))?;
            env.push((name.clone(), text));
        }

        Ok(ScriptOperation {
            interpreter,
            script: config.script.clone(),
            env,
        })
    }

    fn interpreter(&self, name: &str) -> Option<Interpreter> {
        if let Some(interpreter) = self.interpreters.get(name) {
            return Some(interpreter.clone());
        }

        let (_, command, suffix) = KNOWN.iter().find(|(known, ..)| *known == name)?;

        Some(Interpreter {
            command: vec![(*command).to_owned()],
            suffix: (*suffix).to_owned(),
        })
    }
}
