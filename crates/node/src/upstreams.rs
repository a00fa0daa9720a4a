//! Upstreams of a node: from the configuration, from files, and from code.
//!
//! A file `payments.toml` in the directory `upstreams_dir` describes the upstream `payments`. The
//! files, and `[upstreams]` and `[gateway]` of the configuration, are read at the start and on
//! reload; one invalid file rejects the reload.
//!
//! The role of the node selects its upstreams. A node that runs sagas only has the gateway, the
//! upstreams whose commands are dispatched to other processes, and a remote upstream for all
//! effects without a file. A node that executes effects only has all others.

mod nats_gateway;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::requests::RequestClient;
use orlog_effect::config::{UpstreamConfig, UpstreamSite};
use orlog_effect::providers::UpstreamKind;
use orlog_effect::providers::gateway::gateway_message::SubjectTemplate;
use orlog_effect::{EffectsConfig, Policy, Provider, Upstream, UpstreamScope};
use orlog_program::Diagnostic;
use parking_lot::RwLock;
use serde::Deserialize;

use crate::config::{ConfigDiagnostic, Role};
use nats_gateway::NatsGateway;

/// Upstream of effects without a file, on a node that runs sagas only.
const REMOTE_UPSTREAM: &str = "remote";
/// Name of the upstream of `orlog dev` for effects without a configured upstream.
pub const STAND_IN_UPSTREAM: &str = "stand-in";

const UNSIGNED_SCRIPTS: &str = "each client with the permission to publish commands on NATS could \
    run these scripts; set nats.signing.keys, or set nats.signing.allow_unsigned_scripts = true";

/// Sources of the upstreams of a node.
pub struct UpstreamSources {
    dir: Option<PathBuf>,
    configured: RwLock<EffectsConfig>,
    built_in: Vec<Upstream>,
    of_sagas: Vec<Upstream>,
    role: Role,
    remote: Option<RemoteDependencies>,
    rejects_scripts: bool,
}

/// Creates a provider that dispatches commands to other processes, and redispatches after this
/// duration without a response.
pub type QueueProviderFactory = Arc<dyn Fn(Duration) -> Arc<dyn Provider> + Send + Sync>;

/// Remote dependencies of a node that is connected to NATS.
#[derive(Clone)]
pub struct RemoteDependencies {
    /// Creates the provider that dispatches commands to other processes; `None` if none are
    /// dispatched.
    pub dispatch: Option<QueueProviderFactory>,
    /// Transport of requests to the gateway.
    pub requests: Arc<dyn RequestClient>,
    /// Duration without a response after which a command is looked up.
    pub redispatch_after: Duration,
}

/// Common fields of all upstream files.
#[derive(Deserialize)]
struct FileHeader {
    #[serde(default)]
    kind: UpstreamKind,
}

impl UpstreamSources {
    /// Combines the configured upstreams, those of the files in `dir`, and `built_in`.
    #[must_use]
    pub fn new(configured: EffectsConfig, dir: Option<PathBuf>, others: Vec<Upstream>) -> Self {
        Self {
            dir,
            configured: RwLock::new(configured),
            built_in: others,
            of_sagas: Vec::new(),
            role: Role::Combined,
            remote: None,
            rejects_scripts: false,
        }
    }

    /// Adds upstreams of the built-in sagas: the process of a saga executes their effects, in every
    /// role that runs sagas.
    #[must_use]
    pub fn with_built_in_sagas(mut self, upstreams: Vec<Upstream>) -> Self {
        self.of_sagas = upstreams;
        self
    }

    /// Restricts the upstreams to a role, with its remote dependencies.
    #[must_use]
    pub fn in_role(mut self, role: Role, remote: Option<RemoteDependencies>) -> Self {
        self.role = role;
        self.remote = remote;
        self
    }

    /// Rejects upstreams that execute scripts, because the commands are not signed.
    #[must_use]
    pub fn reject_scripts(mut self, rejects: bool) -> Self {
        self.rejects_scripts = rejects;
        self
    }

    /// Returns whether a directory exists that a reload can read.
    #[must_use]
    pub const fn has_dir(&self) -> bool {
        self.dir.is_some()
    }

    /// Returns all upstreams of the configuration and of the current files.
    ///
    /// # Errors
    /// Returns all diagnostics of all files, with lines if known.
    pub fn read(&self) -> Result<Vec<Upstream>, Vec<Diagnostic>> {
        let configured = self.configured.read().clone();
        self.read_with(&configured)
    }

    /// Replaces the configured upstreams.
    pub(crate) fn replace_configured(&self, next: EffectsConfig) {
        *self.configured.write() = next;
    }

    /// Returns all upstreams of this configuration and of the current files.
    ///
    /// # Errors
    /// See [`UpstreamSources::read`].
    pub(crate) fn read_with(
        &self,
        configured: &EffectsConfig,
    ) -> Result<Vec<Upstream>, Vec<Diagnostic>> {
        let mut upstreams = Vec::new();
        let mut problems = Vec::new();
        match self.of_configuration(configured) {
            Ok(found) => upstreams.extend(found),
            Err(error) => problems.push(Diagnostic::of_file("the configuration", error)),
        }

        // All files are read, so that one deployment reports all problems.
        match self.files() {
            Ok(paths) => {
                for path in paths {
                    match self.file(&path) {
                        Ok(upstream) => upstreams.extend(upstream),
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            Err(problem) => problems.push(problem),
        }
        if !problems.is_empty() {
            return Err(problems);
        }

        upstreams.extend(self.built_in_of_role());
        if self.role.runs_sagas() {
            upstreams.extend(self.of_sagas.iter().cloned());
        }
        upstreams.extend(self.remote_fallback());
        Ok(upstreams)
    }

    /// Returns the built-in upstreams that a node of this role uses.
    fn built_in_of_role(&self) -> impl Iterator<Item = Upstream> {
        let used = self
            .built_in
            .iter()
            .filter(|upstream| match upstream.scope {
                // Nodes with sagas send commands.
                UpstreamScope::Commands => self.role.runs_sagas(),
                // A node of the role `saga` executes no effects.
                UpstreamScope::Effects(_) | UpstreamScope::Fallback | UpstreamScope::Jobs => {
                    self.role != Role::Saga
                }
            });
        used.cloned()
    }

    /// Returns the files of the directory; none without a directory.
    fn files(&self) -> Result<Vec<PathBuf>, Diagnostic> {
        match &self.dir {
            Some(dir) => files(dir),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the upstreams of the configuration file.
    fn of_configuration(&self, configured: &EffectsConfig) -> Result<Vec<Upstream>, String> {
        // Without the gateway, which is added below on nodes with sagas.
        let performed = match self.role {
            Role::Saga => EffectsConfig::default(),
            Role::Combined | Role::Effect => EffectsConfig {
                gateway: None,
                ..configured.clone()
            },
        };
        let mut upstreams = performed.upstreams().map_err(|error| error.to_string())?;
        let gateway = configured
            .gateway
            .as_ref()
            .filter(|_| self.role.runs_sagas());

        if let Some(gateway) = gateway {
            upstreams.push(match (&gateway.subject, &gateway.base_url, &self.remote) {
                (Some(subject), None, Some(remote)) => {
                    let provider = nats_gateway(subject, remote)
                        .map_err(|reason| format!("[gateway]: {reason}"))?;
                    gateway.over(provider)
                }
                _ => gateway.upstream().map_err(|error| error.to_string())?,
            });
        }

        Ok(upstreams)
    }

    /// Returns the upstream of effects without a file, if this node does not execute them.
    fn remote_fallback(&self) -> Option<Upstream> {
        let RemoteDependencies {
            dispatch,
            redispatch_after: delay,
            ..
        } = self.remote.as_ref().filter(|_| self.role == Role::Saga)?;
        let provider = dispatch.as_ref()?(*delay);

        // Remote effects take no permits of local ones; the relay limits them.
        let policy = Policy {
            max_concurrency: 1 << 20,
            ..Policy::worker()
        };
        let upstream = Upstream::fallback(REMOTE_UPSTREAM, provider, policy);

        // Any process with permission to publish results could emit facts: those of an effect need
        // a file that declares them.
        let upstream = upstream.with_facts(BTreeSet::new());
        Some(upstream.with_origin(format!("{delay:?}")))
    }

    /// Returns the upstream of a file; `None` if a node of this role does not use it.
    fn file(&self, path: &Path) -> Result<Option<Upstream>, Diagnostic> {
        let file = path.display().to_string();
        let name = name_of(path)?;
        // Before the role is checked: an invalid file is reported on every node, not only on those
        // that use it.
        let config = read(path)?;

        // A node of the role `saga` only dispatches; one of the role `effect` only executes.
        let is_used = if config.is_queued() {
            self.role.runs_sagas()
        } else {
            self.role != Role::Saga
        };

        if !is_used {
            return Ok(None);
        }

        // Without signatures, everyone who may publish to the queue could choose the arguments of a
        // program here.
        if self.rejects_scripts && config.runs_programs() {
            return Err(Diagnostic::of_file(&file, UNSIGNED_SCRIPTS.to_owned()));
        }

        let dispatch = self
            .remote
            .as_ref()
            .and_then(|remote| Some((remote.dispatch.as_ref()?, remote)));
        let queue = dispatch.map(|(dispatch, remote)| {
            move |after: Option<Duration>| dispatch(after.unwrap_or(remote.redispatch_after))
        });
        let dir = path.parent().unwrap_or(Path::new("."));
        let site = UpstreamSite {
            name,
            dir,
            queue: queue.as_ref().map(|queue| queue as _),
        };

        config
            .upstream(site)
            .map(Some)
            .map_err(|error| Diagnostic::of_file(&file, error.to_string()))
    }
}

fn nats_gateway(subject: &str, remote: &RemoteDependencies) -> Result<Arc<dyn Provider>, String> {
    let template = SubjectTemplate::parse(subject)?;
    Ok(Arc::new(NatsGateway::new(
        Arc::clone(&remote.requests),
        template,
    )?))
}

/// Returns the files of a directory by name, without hidden files.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Diagnostic> {
    let unreadable = |error: std::io::Error| {
        let message = format!("the upstreams directory cannot be read: {error}");
        Diagnostic::of_file(dir.display().to_string(), message)
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'));

        if !is_hidden
            && path
                .extension()
                .is_some_and(|extension| extension == "toml")
        {
            paths.push(path);
        }
    }

    // The order of the directory is arbitrary, and problems are reported in this order.
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Result<&str, Diagnostic> {
    let name = path
        .file_stem()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if is_name(name) {
        return Ok(name);
    }

    let message =
        format!("invalid upstream name {name:?}: use lowercase letters, digits, - and _ only");
    Err(Diagnostic::of_file(path.display().to_string(), message))
}

fn read(path: &Path) -> Result<Box<dyn UpstreamConfig>, Diagnostic> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Diagnostic::of_file(&file, format!("it cannot be read: {error}")))?;
    let to_diagnostic = |error: toml::de::Error| {
        let ConfigDiagnostic {
            line,
            column,
            message,
        } = ConfigDiagnostic::of(&text, &error);
        Diagnostic {
            line,
            column,
            ..Diagnostic::of_file(&file, message)
        }
    };

    // Two passes: the kind in the file selects the type of the second one.
    let header: FileHeader = toml::from_str(&text).map_err(to_diagnostic)?;
    let described = toml::Deserializer::parse(&text).and_then(|file| header.kind.read(file));
    described.map_err(to_diagnostic)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        // These are names of upstreams that have no file.
        && !["gateway", REMOTE_UPSTREAM].contains(&text)
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(files: &[(&str, &str)]) -> (tempfile::TempDir, UpstreamSources) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let upstreams = UpstreamSources::new(
            EffectsConfig::default(),
            Some(dir.path().to_owned()),
            Vec::new(),
        );
        (dir, upstreams)
    }

    #[track_caller]
    fn check_rejected(name: &str, text: &str, expected: &str) {
        let (dir, upstreams) = dir(&[(name, text)]);
        let problems = upstreams.read().err().expect("the file is invalid");
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}")
        };
        let location = problem
            .file
            .replace(&dir.path().display().to_string(), "effects");
        assert_eq!(
            format!(
                "{location}:{}:{}: {}",
                problem.line, problem.column, problem.message
            ),
            expected
        );
    }

    #[test]
    fn upstream_is_named_after_its_file() {
        let pay = "base_url = 'http://pay'\ntenants = ['acme']\nmax_concurrency = \
            3\n[effects.'pay.charge']\npath = '/c'";
        let (_dir, upstreams) = dir(&[("pay.toml", pay), (".hidden.toml", "x"), ("notes.md", "x")]);
        let upstreams = upstreams.read().unwrap();
        let [upstream] = upstreams.as_slice() else {
            panic!("one file, one upstream")
        };
        assert_eq!(
            (upstream.name.as_str(), upstream.policy.max_concurrency),
            ("pay", 3)
        );
        assert_eq!(upstream.tenants.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn invalid_upstream_file_is_rejected_with_line() {
        check_rejected("pay.toml", "base_url = 'http://h'\nconcurency = 3", {
            "effects/pay.toml:2:1: unknown key `concurency`; did you mean `max_concurrency`?"
        });
        check_rejected("pay.toml", "kind = 'smoke'", {
            "effects/pay.toml:1:8: unknown variant `smoke`, expected one of `http`, `grpc`, \
             `smtp`, `script`, `sql`, `worker`, `nats`, `webhook`"
        });
        check_rejected("pay.toml", "kind = 'nats'\neffects = ['a.b']", {
            "effects/pay.toml:0:0: upstream pay: kind = \"nats\" requires NATS; set bus.kind = \
             \"nats\" and add [nats] to the configuration"
        });
        check_rejected(
            "pay.toml",
            "base_url = 'http://h'\n[breaker]\nopen_duration = 'soon'",
            {
                "effects/pay.toml:3:17: \"soon\" is not a valid duration: it must consist of \
                 numbers with units; examples: 100ms, 2s, 1h30m"
            },
        );
        check_rejected("pay.toml", "base_url = 'pay'", {
            "effects/pay.toml:0:0: invalid base URL \"pay\" of upstream pay: relative URL without \
             a base; example: http://127.0.0.1:8081"
        });
        let sql = |rest: &str| format!("kind = 'sql'\ndatabase = 'postgres'\n{rest}");
        check_rejected("pay.toml", &sql("url = 'postgres://me:canary@host/db'"), {
            "effects/pay.toml:0:0: upstream pay: a url with a password must be a reference; use \
             env:DATABASE_URL or file:/absolute/path"
        });
        check_rejected(
            "pay.toml",
            &sql("url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT $1'"),
            {
                "effects/pay.toml:0:0: upstream pay, effect a.b: the statement: it contains a \
                 placeholder with $; use :name for a parameter"
            },
        );
        check_rejected(
            "pay.toml",
            &sql("url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT :a'\nparams = { b = 1 }"),
            "effects/pay.toml:0:0: upstream pay, effect a.b: unused parameter params.b: no \
             statement contains :b",
        );
        check_rejected(
            "pay.toml",
            &sql(
                "url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT 1'\nexpect = { rows = 'few' }",
            ),
            "effects/pay.toml:6:19: invalid rows \"few\": expected a number or \"some\"",
        );
        check_rejected("jobs.toml", "kind = 'script'\n[effects.'job.ruby']", {
            "effects/jobs.toml:0:0: upstream jobs, effect job.ruby: unknown interpreter \"ruby\"; \
             available: bash, node, python, sh; add others under [interpreters.ruby]"
        });
        check_rejected(
            "jobs.toml",
            "kind = 'script'\nread = ['films']\n[effects.'job.sh']",
            "effects/jobs.toml:0:0: upstream jobs: films is not an absolute path",
        );
        check_rejected("Pay Me.toml", "base_url = 'http://h'", {
            "effects/Pay Me.toml:0:0: invalid upstream name \"Pay Me\": use lowercase letters, \
             digits, - and _ only"
        });
    }

    #[test]
    fn role_selects_upstreams() {
        let http = "base_url = 'http://pay'\n[effects.'pay.charge']\npath = '/c'";
        let nats = "kind = 'nats'\neffects = ['media.cut']";
        let configured: EffectsConfig = toml::from_str("[gateway]\nbase_url = 'http://g'").unwrap();
        let (dir, _) = dir(&[("pay.toml", http), ("media.toml", nats)]);
        let names = |role| {
            let upstreams =
                UpstreamSources::new(configured.clone(), Some(dir.path().to_owned()), Vec::new())
                    .in_role(role, None);
            let names = |upstreams: Vec<Upstream>| {
                upstreams
                    .into_iter()
                    .map(|upstream| upstream.name)
                    .collect()
            };
            upstreams
                .read()
                .map_or_else(|problems| vec![problems[0].message.clone()], names)
        };
        assert_eq!(names(Role::Effect), ["pay"]);
        let needs = "upstream media: kind = \"nats\" requires NATS; set bus.kind = \"nats\" and \
            add [nats] to the configuration";
        assert_eq!(names(Role::Saga), [needs]);
        std::fs::remove_file(dir.path().join("media.toml")).unwrap();
        assert_eq!(names(Role::Saga), ["gateway"]);
        assert_eq!(names(Role::Combined), ["gateway", "pay"]);
    }

    #[test]
    fn effects_of_built_in_sagas_are_executed_where_sagas_run() {
        let names = |role| {
            let pages = orlog_effect::FunctionProvider::new()
                .sync_effect("orlog.x", |_| Ok(serde_json::Value::Null))
                .upstream("orlog.x", Policy::in_process());
            let sources = UpstreamSources::new(EffectsConfig::default(), None, Vec::new());
            let upstreams = sources
                .with_built_in_sagas(vec![pages])
                .in_role(role, None)
                .read()
                .unwrap();
            upstreams
                .into_iter()
                .map(|upstream| upstream.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (names(Role::Combined), names(Role::Saga)),
            (vec!["orlog.x".to_owned()], vec!["orlog.x".to_owned()])
        );
        assert!(names(Role::Effect).is_empty());
    }

    #[test]
    fn all_invalid_files_are_reported() {
        let (_dir, upstreams) = dir(&[("a.toml", "x"), ("b.toml", "y = 1"), ("c.toml", "")]);
        assert_eq!(
            upstreams.read().err().map(|problems| problems.len()),
            Some(3)
        );
    }
}
