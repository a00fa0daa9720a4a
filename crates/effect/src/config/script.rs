//! Scripts as the configuration describes them.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::EffectName;
use serde::{Deserialize, Serialize};

use super::{Error, origin, upstream_config};
use crate::job_logs::Lines;
use crate::placeholders::Text;
use crate::policy::Policy;
use crate::script::{Interpreter, Isolation, Limits, Manner, Operation, Script, is_variable};
use crate::upstream::Upstream;

/// What jobs may read where nothing is said, if it is there.
const READ: [&str; 12] = [
    "/bin",
    "/etc",
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

/// As whom jobs run where Orlog runs as root.
const NOBODY: u32 = 65534;

/// The interpreters that need no configuration: name, command, how the file ends.
const KNOWN: [(&str, &str, &str); 4] =
    [("bash", "bash", ".sh"), ("node", "node", ".js"), ("python", "python3", ".py"), ("sh", "sh", ".sh")];

upstream_config! {
    /// Effects that are scripts.
    ScriptConfig {
        /// What it performs, by the effect's name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, RunConfig>,
        /// Interpreters besides `python`, `sh`, `bash` and `node`, or in their place.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub interpreters: BTreeMap<String, InterpreterConfig>,
        /// What a job may use.
        #[serde(default)]
        pub limits: LimitsConfig,
        /// Whether a job runs where it cannot be confined.
        #[serde(default)]
        pub isolation: Isolation,
        /// Whether jobs may use the network.
        #[serde(default)]
        pub network: bool,
        /// Folders and files that jobs may read besides those of the system.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub read: Vec<PathBuf>,
        /// Folders and files that jobs may write besides their own folder.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub write: Vec<PathBuf>,
        /// As whom jobs run where Orlog runs as root; 65534 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub user: Option<u32>,
        /// The most that a job may answer; 1048576 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_output_bytes: Option<NonZeroUsize>,
        /// The program that stands over jobs, for programs in which Orlog is embedded; this one where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub helper: Option<PathBuf>,
    }
}

/// One effect that is a script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// Who runs it; of `job.python` that is `python` where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// The source; that of the payload where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Its environment, besides what the payload asks for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// How scripts of a language are run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterpreterConfig {
    /// The program and its arguments; the file with the source comes behind.
    pub command: Vec<String>,
    /// How the file ends.
    #[serde(default)]
    pub suffix: String,
}

/// What a job may use.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Processor time of each process; none where absent.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
    pub cpu: Option<Duration>,
    /// Data of each process, in bytes.
    pub memory_bytes: NonZeroU64,
    /// Each file, in bytes.
    pub file_bytes: NonZeroU64,
    /// Open files of each process.
    pub open_files: NonZeroU64,
    /// Processes and threads at once.
    pub processes: NonZeroU64,
}

impl Default for LimitsConfig {
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

impl From<LimitsConfig> for Limits {
    fn from(config: LimitsConfig) -> Self {
        Self {
            // A fraction of a second would be none at all.
            cpu_seconds: config.cpu.map(|cpu| cpu.as_secs().max(1)),
            memory_bytes: config.memory_bytes.get(),
            file_bytes: config.file_bytes.get(),
            open_files: config.open_files.get(),
            processes: config.processes.get(),
        }
    }
}

impl ScriptConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When an effect has no interpreter, or a path is none.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        let wrong = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        if self.effects.is_empty() {
            return Err(wrong("it performs nothing; write for example [effects.\"job.python\"]".to_owned()));
        }
        if let Some(path) =
            self.read.iter().chain(&self.write).chain(&self.helper).find(|path| !path.is_absolute())
        {
            return Err(wrong(format!("{} is no absolute path", path.display())));
        }
        if let Some((name, _)) = self.interpreters.iter().find(|(_, config)| config.command.is_empty()) {
            return Err(wrong(format!(
                "interpreters.{name} has no command; write for example command = [\"ruby\"]"
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
        let lines = Arc::<Lines>::default();
        let script = Script::new(self.manner(name), operations, Arc::clone(&lines));
        let policy = self.policy(Policy::script());
        let upstream = Upstream::effects(name, script.effects(), Arc::new(script), policy);
        let upstream = upstream.for_tenants(self.tenants.clone()).made_from(origin(self));
        Ok(upstream.writing(lines))
    }

    fn manner(&self, name: &str) -> Manner {
        Manner {
            upstream: name.to_owned(),
            helper: self.helper.clone(),
            user: rustix::process::geteuid().is_root().then(|| self.user.unwrap_or(NOBODY)),
            limits: self.limits.into(),
            isolation: self.isolation,
            network: self.network,
            read: READ.iter().map(PathBuf::from).chain(self.read.iter().cloned()).collect(),
            write: self.write.clone(),
            max_output: self.max_output_bytes.map_or(1 << 20, NonZeroUsize::get),
        }
    }

    fn operation(&self, effect: &EffectName, config: &RunConfig) -> Result<Operation, String> {
        let named = config.interpreter.as_deref().or_else(|| effect.as_str().strip_prefix("job."));
        let named = named.ok_or("it has no interpreter; write for example interpreter = \"python\"")?;
        let interpreter = self.interpreter(named).ok_or_else(|| {
            let known = KNOWN.iter().map(|(name, ..)| *name).chain(self.interpreters.keys().map(String::as_str));
            let known = known.collect::<Vec<_>>().join(", ");
            format!("there is no interpreter {named:?}; there is {known}; others are added under [interpreters.{named}]")
        })?;
        let env = config.env.iter().map(|(name, text)| {
            is_variable(name).map_err(|reason| format!("env: {reason}"))?;
            let text = Text::parse(text).map_err(|reason| format!("env.{name}: {reason}"))?;
            Ok((name.clone(), text))
        });
        Ok(Operation { interpreter, script: config.script.clone(), env: env.collect::<Result<_, String>>()? })
    }

    fn interpreter(&self, name: &str) -> Option<Interpreter> {
        if let Some(InterpreterConfig { command, suffix }) = self.interpreters.get(name) {
            return Some(Interpreter { command: command.clone(), suffix: suffix.clone() });
        }
        let (_, command, suffix) = KNOWN.iter().find(|(known, ..)| *known == name)?;
        Some(Interpreter { command: vec![(*command).to_owned()], suffix: (*suffix).to_owned() })
    }
}
