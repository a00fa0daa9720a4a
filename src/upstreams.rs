//! The upstreams of a node: those of the configuration, those with a file of their own, and those that code brings.
//!
//! A file `payments.toml` in the folder `effects` describes the upstream `payments`. The files are read at the start and on
//! reload; one mistake, and everything stays as it was. What `[upstreams]` and `[gateway]` in the configuration say
//! holds until the next start.
//!
//! Which of them a node has depends on its role: one that runs sagas only has the gateway and those whose commands go to
//! others, and whatever effect no file names goes to others too; one that performs only has all but these.

mod nats_gateway;

use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::requests::Requests;
use orlog_effect::config::{Described, Kind};
use orlog_effect::{EffectsConfig, Policy, Provider, Serves, Upstream};
use orlog_program::Problem;
use serde::Deserialize;

use crate::config::{Mistake, Role};
use nats_gateway::{AskedGateway, Template};

/// The upstream that performs what no file names, where a node runs sagas only.
const ELSEWHERE: &str = "elsewhere";

/// Where upstreams come from.
pub struct Upstreams {
    folder: Option<PathBuf>,
    configured: EffectsConfig,
    others: Vec<Upstream>,
    role: Role,
    outside: Option<Outside>,
}

/// Makes who offers commands to others, and looks for one when nothing was heard of it for that long.
pub type Dispatching = Arc<dyn Fn(Duration) -> Arc<dyn Provider> + Send + Sync>;

/// What reaches beyond the process, where the node is connected to NATS.
#[derive(Clone)]
pub struct Outside {
    /// Makes who offers commands to others; `None` where none are offered.
    pub dispatch: Option<Dispatching>,
    /// Who carries questions to the gateway.
    pub requests: Arc<dyn Requests>,
    /// After this a command of which nothing was heard is looked for.
    pub patience: Duration,
}

/// What every file says, whatever else it says.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    kind: Kind,
}

impl Upstreams {
    /// Those of the configuration, of the files in `folder`, and `others`.
    #[must_use]
    pub fn new(configured: EffectsConfig, folder: Option<PathBuf>, others: Vec<Upstream>) -> Self {
        Self { folder, configured, others, role: Role::Combined, outside: None }
    }

    /// Those of a node in this role, which reaches so far beyond its process.
    #[must_use]
    pub fn in_role(mut self, role: Role, outside: Option<Outside>) -> Self {
        self.role = role;
        self.outside = outside;
        self
    }

    /// Whether there is a folder that a reload can read.
    #[must_use]
    pub const fn have_folder(&self) -> bool {
        self.folder.is_some()
    }

    /// All upstreams as the files describe them now.
    ///
    /// # Errors
    /// Every mistake in every file, with its line where there is one.
    pub fn read(&self) -> Result<Vec<Upstream>, Vec<Problem>> {
        let (mut upstreams, mut problems) = match self.configured() {
            Ok(upstreams) => (upstreams, Vec::new()),
            Err(error) => (Vec::new(), vec![problem("the configuration", (0, 0), error)]),
        };
        let files = self.folder.as_deref().map_or(Ok(Vec::new()), files);
        for path in files.unwrap_or_else(|found| {
            problems.push(found);
            Vec::new()
        }) {
            match self.file(&path) {
                Ok(upstream) => upstreams.extend(upstream),
                Err(found) => problems.push(found),
            }
        }
        let others = self.others.iter().filter(|upstream| match upstream.serves {
            Serves::Commands => self.role.runs_sagas(),
            Serves::Effects(_) | Serves::Rest => self.role != Role::Saga,
        });
        upstreams.extend(others.cloned());
        upstreams.extend(self.elsewhere());
        if problems.is_empty() { Ok(upstreams) } else { Err(problems) }
    }

    /// Those of the configuration file.
    fn configured(&self) -> Result<Vec<Upstream>, String> {
        let performed = match self.role {
            Role::Saga => EffectsConfig::default(),
            Role::Combined | Role::Effect => EffectsConfig { gateway: None, ..self.configured.clone() },
        };
        let mut upstreams = performed.upstreams().map_err(|error| error.to_string())?;
        let gateway = self.configured.gateway.as_ref().filter(|_| self.role.runs_sagas());
        if let Some(gateway) = gateway {
            upstreams.push(match (&gateway.subject, &gateway.base_url, &self.outside) {
                (Some(subject), None, Some(outside)) => {
                    let subject =
                        Template::parse(subject).map_err(|reason| format!("[gateway]: {reason}"))?;
                    gateway.asked_by(Arc::new(AskedGateway::new(Arc::clone(&outside.requests), subject)))
                }
                _ => gateway.upstream().map_err(|error| error.to_string())?,
            });
        }
        Ok(upstreams)
    }

    /// What no file names, where it is not performed here.
    fn elsewhere(&self) -> Option<Upstream> {
        let Outside { dispatch, patience, .. } = self.outside.as_ref().filter(|_| self.role == Role::Saga)?;
        let provider = dispatch.as_ref()?(*patience);
        // What waits elsewhere takes no place from anything here; the relay bounds it.
        let policy = Policy { concurrency: 1 << 20, ..Policy::worker() };
        let upstream = Upstream::rest(ELSEWHERE, provider, policy);
        Some(upstream.made_from(format!("{patience:?}")))
    }

    /// The upstream that a file describes; `None`: a node in this role does not have it.
    fn file(&self, path: &Path) -> Result<Option<Upstream>, Problem> {
        let (file, name) = (path.display().to_string(), name_of(path)?);
        let wrong = |error: orlog_effect::config::Error| problem(&file, (0, 0), error.to_string());
        let described = read(path)?;
        let has = match &described {
            Described::Nats(_) => self.role.runs_sagas(),
            _ => self.role != Role::Saga,
        };
        let outside = self.outside.as_ref();
        let dispatch = outside.and_then(|outside| Some((outside.dispatch.as_ref()?, outside.patience)));
        match (&described, dispatch) {
            _ if !has => Ok(None),
            (Described::Nats(config), Some((dispatch, patience))) => {
                let provider = dispatch(config.patience.unwrap_or(patience));
                config.upstream(name, provider).map(Some).map_err(wrong)
            }
            _ => {
                let folder = path.parent().unwrap_or(Path::new("."));
                described.upstream(name, folder).map(Some).map_err(wrong)
            }
        }
    }
}

/// The files in a folder, by name; hidden ones are left alone.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Problem> {
    let unreadable = |error: std::io::Error| {
        let message = format!("the folder of the upstreams cannot be read: {error}");
        problem(&folder.display().to_string(), (0, 0), message)
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Result<&str, Problem> {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    if is_name(name) {
        return Ok(name);
    }
    let message = format!("{name:?} is no name of an upstream: lowercase letters, digits, - and _ only");
    Err(problem(&path.display().to_string(), (0, 0), message))
}

fn read(path: &Path) -> Result<Described, Problem> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| problem(&file, (0, 0), format!("it cannot be read: {error}")))?;
    let wrong = |error: toml::de::Error| {
        let Mistake { line, column, what } = Mistake::of(&text, &error);
        problem(&file, (line, column), what)
    };
    let head: Head = toml::from_str(&text).map_err(wrong)?;
    let described = toml::Deserializer::parse(&text).and_then(|file| Described::read(head.kind, file));
    described.map_err(wrong)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !["gateway", ELSEWHERE].contains(&text)
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
}

fn problem(file: &str, (line, column): (usize, usize), message: String) -> Problem {
    Problem { file: file.to_owned(), line, column, path: String::new(), message, suggestion: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Upstreams) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let upstreams = Upstreams::new(EffectsConfig::default(), Some(folder.path().to_owned()), Vec::new());
        (folder, upstreams)
    }

    #[track_caller]
    fn check_refused(name: &str, text: &str, expected: &str) {
        let (folder, upstreams) = folder(&[(name, text)]);
        let problems = upstreams.read().err().expect("it is refused");
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        let place = problem.file.replace(&folder.path().display().to_string(), "effects");
        assert_eq!(format!("{place}:{}:{}: {}", problem.line, problem.column, problem.message), expected);
    }

    #[test]
    fn a_file_is_an_upstream_of_its_name() {
        let pay = "base_url = 'http://pay'\ntenants = ['acme']\nconcurrency = 3\n[effects.'pay.charge']\npath = '/c'";
        let (_folder, upstreams) = folder(&[("pay.toml", pay), (".hidden.toml", "x"), ("notes.md", "x")]);
        let upstreams = upstreams.read().unwrap();
        let [upstream] = upstreams.as_slice() else { panic!("one file, one upstream") };
        assert_eq!((upstream.name.as_str(), upstream.policy.concurrency), ("pay", 3));
        assert_eq!(upstream.tenants.as_ref().unwrap().len(), 1);
    }

    #[test]
    fn mistakes_are_refused_with_their_line() {
        check_refused("pay.toml", "base_url = 'http://h'\nconcurency = 3", {
            "effects/pay.toml:2:1: unknown key `concurency`; did you mean `concurrency`?"
        });
        check_refused("pay.toml", "kind = 'smoke'", {
            "effects/pay.toml:1:8: unknown variant `smoke`, expected one of `http`, `grpc`, `smtp`, `script`, `sql`, `worker`, `nats`"
        });
        check_refused("pay.toml", "kind = 'nats'\neffects = ['a.b']", {
            "effects/pay.toml:0:0: upstream pay: kind = \"nats\" needs NATS; write bus.kind = \"nats\" and [nats] into the configuration"
        });
        check_refused("pay.toml", "base_url = 'http://h'\n[breaker]\nopen_for = 'soon'", {
            "effects/pay.toml:3:12: \"soon\" is no duration such as 100ms, 2s or 1h30m: failed to parse input in the \"friendly\" duration format: expected duration to start with a unit value (a decimal integer) after an optional sign, but no integer was found"
        });
        check_refused("pay.toml", "base_url = 'pay'", {
            "effects/pay.toml:0:0: the base URL \"pay\" of pay: relative URL without a base; write for example http://127.0.0.1:8081"
        });
        let sql = |rest: &str| format!("kind = 'sql'\ndatabase = 'postgres'\n{rest}");
        check_refused("pay.toml", &sql("url = 'postgres://me:canary@host/db'"), {
            "effects/pay.toml:0:0: upstream pay: the url holds a password, so it is given by reference: write env:DATABASE_URL or file:/absolute/path"
        });
        check_refused("pay.toml", &sql("url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT $1'"), {
            "effects/pay.toml:0:0: upstream pay, effect a.b: the statement: it holds a placeholder with $; write :name for a parameter"
        });
        check_refused(
            "pay.toml",
            &sql("url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT :a'\nparams = { b = 1 }"),
            "effects/pay.toml:0:0: upstream pay, effect a.b: params.b: no statement has :b",
        );
        check_refused(
            "pay.toml",
            &sql("url = 'env:X'\n[effects.'a.b']\nstatement = 'SELECT 1'\nexpect = { rows = 'few' }"),
            "effects/pay.toml:6:19: \"few\" is neither a number of rows nor \"some\"",
        );
        check_refused("jobs.toml", "kind = 'script'\n[effects.'job.ruby']", {
            "effects/jobs.toml:0:0: upstream jobs, effect job.ruby: there is no interpreter \"ruby\"; there is bash, node, python, sh; others are added under [interpreters.ruby]"
        });
        check_refused("jobs.toml", "kind = 'script'\nread = ['films']\n[effects.'job.sh']", {
            "effects/jobs.toml:0:0: upstream jobs: films is no absolute path"
        });
        check_refused("Pay Me.toml", "base_url = 'http://h'", {
            "effects/Pay Me.toml:0:0: \"Pay Me\" is no name of an upstream: lowercase letters, digits, - and _ only"
        });
    }

    #[test]
    fn a_node_has_the_upstreams_of_its_role() {
        let http = "base_url = 'http://pay'\n[effects.'pay.charge']\npath = '/c'";
        let nats = "kind = 'nats'\neffects = ['media.cut']";
        let configured: EffectsConfig = toml::from_str("[gateway]\nbase_url = 'http://g'").unwrap();
        let (folder, _) = folder(&[("pay.toml", http), ("media.toml", nats)]);
        let names = |role| {
            let upstreams = Upstreams::new(configured.clone(), Some(folder.path().to_owned()), Vec::new())
                .in_role(role, None);
            let names =
                |upstreams: Vec<Upstream>| upstreams.into_iter().map(|upstream| upstream.name).collect();
            upstreams.read().map_or_else(|problems| vec![problems[0].message.clone()], names)
        };
        assert_eq!(names(Role::Effect), ["pay"]);
        let needs = "upstream media: kind = \"nats\" needs NATS; write bus.kind = \"nats\" and [nats] into the configuration";
        assert_eq!(names(Role::Saga), [needs]);
        std::fs::remove_file(folder.path().join("media.toml")).unwrap();
        assert_eq!(names(Role::Saga), ["gateway"]);
        assert_eq!(names(Role::Combined), ["gateway", "pay"]);
    }

    #[test]
    fn every_file_with_a_mistake_is_named() {
        let (_folder, upstreams) = folder(&[("a.toml", "x"), ("b.toml", "y = 1"), ("c.toml", "")]);
        assert_eq!(upstreams.read().err().map(|problems| problems.len()), Some(3));
    }
}
