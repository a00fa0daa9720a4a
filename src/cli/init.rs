//! `orlog init`: writes a new project with a definition, its test, a service or a worker, and a
//! configuration.

use std::path::{Path, PathBuf};

use orlog_program::json_schema;

use super::console::Console;
use super::exit::{CommandError, CommandExit};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Template of the project
    #[arg(value_enum, default_value_t)]
    template: Template,
    /// Directory of the project; created if it is missing [default: the name of the template]
    dir: Option<PathBuf>,
}

/// Template of a project.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Template {
    /// Three steps with compensations
    #[default]
    Order,
    /// Concurrent branches, an approval, a child saga and a pivot
    Trip,
    /// Tasks for people, and a wait for a date
    Onboarding,
    /// Jobs for workers in other processes, one for each element of a list
    Jobs,
}

/// Path of a file in the project, and its content.
type File = (&'static str, &'static str);

/// Lists the files of a template: the path in the project, and the path in the sources.
macro_rules! files {
    ($($path:literal = $source:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("init/", $source)))),+]
    };
}

const COMMON: &[File] = files! {
    ".gitignore" = "common/gitignore",
    ".vscode/extensions.json" = "common/vscode-extensions.json",
    ".vscode/settings.json" = "common/vscode-settings.json",
    "orlog.toml" = "common/orlog.toml",
};

/// Files of the templates whose effects a service executes.
const SERVICE: &[File] = files! {
    "compose.yaml" = "service/compose.yaml",
    "services/python/server.py" = "service/server.py",
    "services/typescript/server.ts" = "service/server.ts",
};

const ORDER: &[File] = files! {
    "README.md" = "order/README.md",
    "events.jsonl" = "order/events.jsonl",
    "sagas/order.saga.test.yaml" = "order/order.saga.test.yaml",
    "sagas/order.saga.yaml" = "order/order.saga.yaml",
    "services/python/operations.py" = "order/operations.py",
    "services/typescript/operations.ts" = "order/operations.ts",
    "upstreams/services.toml" = "order/services.toml",
};

const TRIP: &[File] = files! {
    "README.md" = "trip/README.md",
    "events.jsonl" = "trip/events.jsonl",
    "sagas/trip.saga.test.yaml" = "trip/trip.saga.test.yaml",
    "sagas/trip.saga.yaml" = "trip/trip.saga.yaml",
    "sagas/visa.saga.yaml" = "trip/visa.saga.yaml",
    "services/python/operations.py" = "trip/operations.py",
    "services/typescript/operations.ts" = "trip/operations.ts",
    "upstreams/services.toml" = "trip/services.toml",
};

const ONBOARDING: &[File] = files! {
    "README.md" = "onboarding/README.md",
    "events.jsonl" = "onboarding/events.jsonl",
    "sagas/onboarding.saga.test.yaml" = "onboarding/onboarding.saga.test.yaml",
    "sagas/onboarding.saga.yaml" = "onboarding/onboarding.saga.yaml",
    "services/python/operations.py" = "onboarding/operations.py",
    "services/typescript/operations.ts" = "onboarding/operations.ts",
    "upstreams/services.toml" = "onboarding/services.toml",
};

const JOBS: &[File] = files! {
    "README.md" = "jobs/README.md",
    "compose.yaml" = "jobs/compose.yaml",
    "events.jsonl" = "jobs/events.jsonl",
    "sagas/video.saga.test.yaml" = "jobs/video.saga.test.yaml",
    "sagas/video.saga.yaml" = "jobs/video.saga.yaml",
    "upstreams/workers.toml" = "jobs/workers.toml",
    "workers/python/worker.py" = "jobs/worker.py",
    "workers/typescript/worker.ts" = "jobs/worker.ts",
};

/// File with the JSON Schema of definitions, which the settings of the editor name.
const SCHEMA: &str = "saga.schema.json";

impl Template {
    fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Trip => "trip",
            Self::Onboarding => "onboarding",
            Self::Jobs => "jobs",
        }
    }

    fn files(self) -> Vec<File> {
        let parts: [&[File]; 2] = match self {
            Self::Order => [ORDER, SERVICE],
            Self::Trip => [TRIP, SERVICE],
            Self::Onboarding => [ONBOARDING, SERVICE],
            Self::Jobs => [JOBS, &[]],
        };
        let mut files = [COMMON, parts[0], parts[1]].concat();
        files.sort_unstable();

        files
    }
}

pub(crate) fn run(args: &Args, console: &Console) -> Result<(), CommandError> {
    let dir = args
        .dir
        .clone()
        .unwrap_or_else(|| args.template.name().into());
    let schema = format!("{:#}\n", json_schema());
    let mut files = args.template.files();
    files.push((SCHEMA, &schema));
    // All paths are checked before the first file is written, so that no part of a project remains.
    reject_existing(&dir, &files)?;

    for (path, content) in &files {
        write(&dir.join(path), content)?;
    }
    let paths: Vec<_> = files.iter().map(|(path, _)| *path).collect();
    if console.is_json() {
        return console.json(&serde_json::json!({ "dir": dir, "files": paths }));
    }

    console.line(&format!(
        "created the project {dir}:\n  {files}\n\nNext steps ({dir}/README.md):\n  cd {dir}\n  \
         orlog test sagas\n  orlog dev",
        dir = dir.display(),
        files = paths.join("\n  "),
    ))
}

/// Rejects a directory that contains a file of the project: no file is overwritten.
fn reject_existing(dir: &Path, files: &[(&str, &str)]) -> Result<(), CommandError> {
    let existing = files
        .iter()
        .map(|(path, _)| dir.join(path))
        .find(|path| path.exists());
    existing.map_or(Ok(()), |path| {
        let message = format!(
            "{} exists; set another directory: orlog init TEMPLATE DIR",
            path.display()
        );
        Err(CommandError::new(CommandExit::Rejected, message))
    })
}

fn write(path: &Path, content: &str) -> Result<(), CommandError> {
    let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    parent
        .and_then(|()| std::fs::write(path, content))
        .map_err(|error| CommandError::failed(format!("cannot write {}: {error}", path.display())))
}
