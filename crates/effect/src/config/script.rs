//! Configuration of script upstreams.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;
use serde::{Deserialize, Serialize};

use super::{Error, origin, upstream_config};
use crate::job_logs::JobLogs;
use crate::placeholders::TextTemplate;
use crate::policy::Policy;
use crate::script::{
    Interpreter, Isolation, ResourceLimits, ScriptOperation, ScriptOptions, ScriptProvider, is_variable,
};
use crate::upstream::Upstream;

/// Default paths that jobs may read, if they exist. Of `/etc` only what interpreters and libraries need: it often
/// contains the configuration and secrets of services, also of Orlog.
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
const KNOWN: [(&str, &str, &str); 4] =
    [("bash", "bash", ".sh"), ("node", "node", ".js"), ("python", "python3", ".py"), ("sh", "sh", ".sh")];

upstream_config! {
    /// Configuration of effects that are scripts.
    ScriptConfig {
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, ScriptEffectConfig>,
        /// Interpreters in addition to `python`, `sh`, `bash` and `node`, or replacements of them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub interpreters: BTreeMap<String, InterpreterConfig>,
        /// Resource limits of a job.
        #[serde(default)]
        pub limits: ResourceLimitsConfig,
        /// Whether a job runs on a system without sandbox support.
        #[serde(default)]
        pub isolation: Isolation,
        /// Whether jobs may use the network.
        #[serde(default)]
        pub network: bool,
        /// Directories and files that jobs may read in addition to those of the system.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub read: Vec<PathBuf>,
        /// Directories and files that jobs may write in addition to their own directory.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub write: Vec<PathBuf>,
        /// User id of jobs if Orlog runs as root. Default: 65534.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub user: Option<u32>,
        /// Maximum size of the result of a job, in bytes. Default: 1048576.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_output_bytes: Option<NonZeroUsize>,
        /// Program that supervises jobs, for programs that embed Orlog. Default: the current program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub helper: Option<PathBuf>,
    }
}

/// One effect that is a script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptEffectConfig {
    /// Interpreter; for `job.python` the default is `python`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// Source code. Default: the source in the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Environment variables, in addition to those of the payload.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// Interpreter of a script language.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterpreterConfig {
    /// Program and its arguments; the path of the source file is appended.
    pub command: Vec<String>,
    /// File suffix.
    #[serde(default)]
    pub suffix: String,
}

/// Resource limits of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLimitsConfig {
    /// CPU time per process. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
    pub cpu: Option<Duration>,
    /// Memory per process, in bytes.
    pub memory_bytes: NonZeroU64,
    /// Size per file, in bytes.
    pub file_bytes: NonZeroU64,
    /// Open files per process.
    pub open_files: NonZeroU64,
    /// Maximum number of concurrent processes and threads.
    pub processes: NonZeroU64,
}

impl Default for ResourceLimitsConfig {
    fn default() -> Self {
        let number = |number| NonZeroU64::new(number).expect("it is not zero");
        Self {
            cpu: None,
            memory_bytes: number(2 << 30),
            file_bytes: number(1 << 30),
            open_files: number(256),
            processes: number(64),
        }
    }
}

impl From<ResourceLimitsConfig> for ResourceLimits {
    fn from(config: ResourceLimitsConfig) -> Self {
        Self {
            // A fraction of a second would be rounded to zero.
            cpu_seconds: config.cpu.map(|cpu| cpu.as_secs().max(1)),
            memory_bytes: config.memory_bytes.get(),
            file_bytes: config.file_bytes.get(),
            open_files: config.open_files.get(),
            processes: config.processes.get(),
        }
    }
}

impl ScriptConfig {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If an effect has no interpreter, or if a path is invalid.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        if self.effects.is_empty() {
            return Err(invalid("effects are missing; example: [effects.\"job.python\"]".to_owned()));
        }
        if let Some(path) =
            self.read.iter().chain(&self.write).chain(&self.helper).find(|path| !path.is_absolute())
        {
            return Err(invalid(format!("{} is not an absolute path", path.display())));
        }
        if let Some((name, _)) = self.interpreters.iter().find(|(_, config)| config.command.is_empty()) {
            return Err(invalid(format!(
                "interpreters.{name} has no command; example: command = [\"ruby\"]"
            )));
        }
        let operations = self.effects.iter().map(|(effect, config)| {
            let operation = self.operation(effect, config).map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            Ok((effect.clone(), operation))
        });
        let operations = operations.collect::<Result<BTreeMap<_, _>, Error>>()?;
        let job_logs = Arc::<JobLogs>::default();
        let script = ScriptProvider::new(self.script_options(name), operations, Arc::clone(&job_logs));
        let policy = self.policy(Policy::script());
        let upstream = Upstream::effects(name, script.effects(), Arc::new(script), policy);
        let upstream = upstream.for_tenants(self.tenants.clone()).with_origin(origin(self));
        Ok(upstream.with_job_logs(job_logs))
    }

    fn script_options(&self, name: &str) -> ScriptOptions {
        ScriptOptions {
            upstream: name.to_owned(),
            helper: self.helper.clone(),
            user: rustix::process::geteuid().is_root().then(|| self.user.unwrap_or(UNPRIVILEGED_UID)),
            limits: self.limits.into(),
            isolation: self.isolation,
            network: self.network,
            read: READ.iter().map(PathBuf::from).chain(self.read.iter().cloned()).collect(),
            write: self.write.clone(),
            max_output: self.max_output_bytes.map_or(1 << 20, NonZeroUsize::get),
        }
    }

    fn operation(&self, effect: &EffectName, config: &ScriptEffectConfig) -> Result<ScriptOperation, String> {
        let named = config.interpreter.as_deref().or_else(|| effect.as_str().strip_prefix("job."));
        let named = named.ok_or("interpreter is missing; example: interpreter = \"python\"")?;
        let interpreter = self.interpreter(named).ok_or_else(|| {
            let known =
                KNOWN.iter().map(|(name, ..)| *name).chain(self.interpreters.keys().map(String::as_str));
            let known = known.collect::<Vec<_>>().join(", ");
            format!(
                "unknown interpreter {named:?}; available: {known}; add others under [interpreters.{named}]"
            )
        })?;
        let env = config.env.iter().map(|(name, text)| {
            is_variable(name).map_err(|reason| format!("env: {reason}"))?;
            let text = TextTemplate::parse(text).map_err(|reason| format!("env.{name}: {reason}"))?;
            Ok((name.clone(), text))
        });
        Ok(ScriptOperation {
            interpreter,
            script: config.script.clone(),
            env: env.collect::<Result<_, String>>()?,
        })
    }

    fn interpreter(&self, name: &str) -> Option<Interpreter> {
        if let Some(InterpreterConfig { command, suffix }) = self.interpreters.get(name) {
            return Some(Interpreter { command: command.clone(), suffix: suffix.clone() });
        }
        let (_, command, suffix) = KNOWN.iter().find(|(known, ..)| *known == name)?;
        Some(Interpreter { command: vec![(*command).to_owned()], suffix: (*suffix).to_owned() })
    }
}
