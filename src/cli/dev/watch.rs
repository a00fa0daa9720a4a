//! Watches the files of a development node: reloads changed definitions and upstreams, and reports
//! changes of the configuration, which apply at the next start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use crate::cli::console::note;
use orlog_node::app::App;
use orlog_node::config::Config;
use orlog_node::definitions::DeploymentPlan;
use orlog_node::definitions::change::DeployError;
use orlog_node::definitions::deploy::DeployPolicy;
use orlog_node::definitions::{DefinitionErrors, list_files};

/// Interval of the polls. A change counts when two polls have equal results, so that a file is
/// complete.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// User name of the deployments.
const USER: &str = "orlog dev";

/// Modification time and size of each watched file.
type FileStates = BTreeMap<PathBuf, Option<(SystemTime, u64)>>;

/// Watched files of a node, and their states before the node read them: a change during the start
/// counts.
pub(super) struct WatchedFiles {
    paths: Arc<WatchedPaths>,
    initial: FileStates,
}

struct WatchedPaths {
    definitions: Option<PathBuf>,
    upstreams: Option<PathBuf>,
    /// It can be created after the start.
    config: PathBuf,
}

impl WatchedFiles {
    /// Reads the states of the files of a node that starts.
    pub(super) fn of(config: &Config, config_file: PathBuf) -> Self {
        let definitions = config.definitions_dir.clone();
        let paths = WatchedPaths {
            definitions,
            upstreams: config.upstreams_dir.clone(),
            config: config_file,
        };

        Self {
            initial: paths.states(),
            paths: Arc::new(paths),
        }
    }

    /// Watches the files until the node has stopped.
    pub(super) fn watch(self, app: &Arc<App>) {
        // Weak, so that the watch does not keep a stopped node in memory.
        tokio::spawn(watch(Arc::downgrade(app), self.paths, self.initial));
    }
}

async fn watch(app: Weak<App>, watched: Arc<WatchedPaths>, mut applied: FileStates) {
    let mut last = watched.poll().await;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(app) = app.upgrade() else { return };
        let now = watched.poll().await;
        let is_settled = now == last;
        last = now;
        // Files that still change are half written, or part of a copy of several files.
        if !is_settled || last == applied {
            continue;
        }

        let config_changed = last.get(&watched.config) != applied.get(&watched.config);
        // Without the configuration: a change of it alone must not reload the definitions.
        let others = |states: &FileStates| {
            states
                .iter()
                .filter(|(file, _)| **file != watched.config)
                .map(|(f, s)| (f.clone(), *s))
                .collect::<FileStates>()
        };

        let files_changed = others(&last) != others(&applied);
        // Before the reload: a rejected one is not repeated until a file changes again.
        applied.clone_from(&last);
        if config_changed {
            note(&format!(
                "{} changed: restart `orlog dev` to apply it",
                watched.config.display()
            ));
        }

        if files_changed {
            // Edited content under a used version is rejected, so that one version does not name
            // two contents.
            let policy = DeployPolicy {
                allow_downgrade: false,
                replace_used_version: false,
            };
            report(&app.reload(USER.to_owned(), policy).await);
        }
    }
}

impl WatchedPaths {
    async fn poll(self: &Arc<Self>) -> FileStates {
        let watched = Arc::clone(self);
        // Reads of directories block: a slow file system must not delay the node.
        tokio::task::spawn_blocking(move || watched.states())
            .await
            .unwrap_or_default()
    }

    /// Returns the state of each file; `None` for a file that cannot be read, for example while it
    /// is replaced.
    fn states(&self) -> FileStates {
        let definitions = self
            .definitions
            .iter()
            .flat_map(|dir| list_files(dir))
            .filter_map(Result::ok);
        let upstreams = self
            .upstreams
            .iter()
            .flat_map(std::fs::read_dir)
            .flatten()
            .filter_map(Result::ok);
        let upstreams = upstreams
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "toml"));
        let files = definitions.chain(upstreams).chain([self.config.clone()]);
        files.map(|file| (file.clone(), state(&file))).collect()
    }
}

fn state(file: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn report(result: &Result<DeploymentPlan, DeployError>) {
    match result {
        Ok(plan) => {
            note(&format!("reloaded: {}", summary(plan)));
            plan.warnings
                .iter()
                .for_each(|warning| note(&format!("warning: {warning}")));
        }
        Err(DeployError::Rejected(DefinitionErrors(problems))) => {
            for problem in problems {
                note(&problem.to_string());
            }
            note("not reloaded: correct the errors above; the active definitions are unchanged");
        }
        Err(error) => note(&format!("not reloaded: {error}")),
    }
}

/// Returns the changes of a deployment in one line.
fn summary(plan: &DeploymentPlan) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(
        plan.added
            .iter()
            .map(|one| format!("{} v{} added", one.saga, one.version)),
    );
    parts.extend(plan.changed.iter().map(|one| {
        format!(
            "{} v{} replaces v{}",
            one.to.saga, one.to.version, one.from_version
        )
    }));
    parts.extend(
        plan.retired
            .iter()
            .map(|one| format!("{} v{} retired", one.saga, one.version)),
    );
    parts.extend(
        plan.upstreams
            .iter()
            .map(|name| format!("upstream {name} changed")),
    );

    if parts.is_empty() {
        "no changes".to_owned()
    } else {
        parts.join(", ")
    }
}
