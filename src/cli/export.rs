//! `orlog export`: maintains a copy of instances and tasks from the change stream of a node.

mod file;
#[cfg_attr(
    not(feature = "sql"),
    expect(dead_code, reason = "only PostgreSQL reads single lines")
)]
mod page;
#[cfg(feature = "sql")]
mod postgres;
#[cfg_attr(
    not(feature = "sql"),
    expect(dead_code, reason = "only PostgreSQL executes the statements")
)]
mod statements;
mod target;

use std::time::{Duration, Instant};

use clap::ArgGroup;

use crate::cli::client::{ApiClient, ClientError, ServerArgs};
use crate::cli::console::{Console, note, text};
use crate::cli::exit::CommandError;
use page::{ExportError, ExportPage};
use statements::SCHEMA;
use target::ExportTarget;

/// Maximum time that the node waits for a change before it responds. Default: 20s.
const WAIT: &str = "20s";
/// Delays between retries.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Minimum wait of a node for a change. A shorter one means that it drains.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// HTTP status of a node for an expired cursor.
const HTTP_GONE: u16 = 410;

/// Source and target of an export.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent")]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["to", "print_schema"]))]
pub(crate) struct Args {
    /// Target: `env:NAME` or `file:/PATH` with the URL of a database, <postgres://…> itself, a file
    /// for JSON lines, or - for standard output
    #[arg(
        long,
        value_name = "TARGET",
        env = "ORLOG_EXPORT_TO",
        hide_env_values = true
    )]
    to: Option<String>,
    /// Follow changes; default: stop after the snapshot
    #[arg(long)]
    follow: bool,
    /// Stop after the snapshot; the default
    #[arg(long, conflicts_with = "follow")]
    once: bool,
    /// Kinds to export: instances, tasks, `task_events`, history
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "instances,tasks,task_events"
    )]
    kinds: Vec<String>,
    /// Include all tenants, not only --tenant
    #[arg(long)]
    all: bool,
    /// Discard the cursor and export a new snapshot
    #[arg(long)]
    reset: bool,
    /// Print the PostgreSQL schema and exit
    #[arg(long)]
    print_schema: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let Some(to) = args.to.as_deref().filter(|_| !args.print_schema) else {
        return console.line(SCHEMA.trim_end());
    };

    let scope = match args.server.tenant() {
        _ if args.all => "all".to_owned(),
        tenant => format!("tenant:{}", tenant.unwrap_or_default()),
    };
    let mut kinds = args.kinds.clone();
    // The stored kinds are compared as text: another order must not start a new snapshot.
    kinds.sort();
    kinds.dedup();

    let mut query = vec![("kinds", kinds.join(","))];
    if args.all {
        query.push(("all", "true".to_owned()));
    }
    let target = ExportTarget::new(to, scope, kinds.join(","))?;
    let export = ExportRun {
        client: ApiClient::new(&args.server)?,
        target,
        query,
        follow: args.follow,
    };

    export.run(args.reset).await
}

/// Run of an export.
struct ExportRun {
    client: ApiClient,
    target: ExportTarget,
    query: Vec<(&'static str, String)>,
    follow: bool,
}

impl ExportRun {
    async fn run(mut self, reset: bool) -> Result<(), CommandError> {
        let mut pause = FIRST_PAUSE;
        let mut needs_reset = reset;
        loop {
            // A pass opens the target again: after an error, only the target has the position that
            // it stored.
            match self.pass(&mut needs_reset, &mut pause).await {
                Ok(()) => return self.client.check_complete(),
                // Without `--follow`, a script decides about the repetition.
                Err(ExportError::Transient(failure)) if self.follow => {
                    note(&format!("{failure}; retrying in {pause:?}"));
                    tokio::time::sleep(pause).await;
                    pause = LAST_PAUSE.min(pause * 2);
                }
                Err(ExportError::Transient(failure) | ExportError::Permanent(failure)) => {
                    return Err(failure);
                }
            }
        }
    }

    /// Exports from the current cursor until all changes are written, or until an error occurs.
    async fn pass(
        &mut self,
        needs_reset: &mut bool,
        pause: &mut Duration,
    ) -> Result<(), ExportError> {
        // The cursor of the target counts: it was stored together with the rows.
        let mut cursor = self.target.open().await?;
        if *needs_reset {
            cursor = None;
        }

        loop {
            // Each snapshot starts a generation, also one after an expired cursor.
            if cursor.is_none() {
                self.target.start().await?;
            }
            let requested = Instant::now();
            let page = match self.fetch_page(cursor.as_deref()).await {
                Ok(page) => page?,
                // The node no longer has the changes after the cursor; only a new snapshot contains
                // them.
                Err(ClientError::Problem {
                    status: HTTP_GONE,
                    body,
                    ..
                }) if cursor.is_some() => {
                    let reason = text(&body, "detail");
                    note(&format!("{reason}: exporting a new snapshot"));
                    cursor = None;
                    continue;
                }
                Err(trouble) => return Err(self.classify(trouble)),
            };
            self.target.take(&page).await?;
            // Only now: until the first response is stored, the target has its old cursor.
            *needs_reset = false;
            if !page.more && !self.follow {
                return Ok(());
            }

            if is_early(&page, requested.elapsed()) {
                tokio::time::sleep(*pause).await;
                *pause = LAST_PAUSE.min(*pause * 2);
            } else {
                *pause = FIRST_PAUSE;
            }
            cursor = Some(page.cursor);
        }
    }

    async fn fetch_page(
        &self,
        cursor: Option<&str>,
    ) -> Result<Result<ExportPage, ExportError>, ClientError> {
        let mut query = self.query.clone();
        query.extend(cursor.map(|cursor| ("after", cursor.to_owned())));
        // The node holds the request until there is a change. Otherwise the loop would poll.
        if self.follow {
            query.push(("wait", WAIT.to_owned()));
        }
        Ok(ExportPage::read(
            &self.client.lines("/v1/export", &query).await?,
        ))
    }

    /// Classifies an error: an unavailable or busy node is transient, a rejection is permanent.
    fn classify(&self, trouble: ClientError) -> ExportError {
        let passes = match &trouble {
            ClientError::NoResponse(_) => true,
            // A proxy or a quota can reject a request that succeeds later.
            ClientError::Problem { status, .. } => *status >= 500 || *status == 429,
            ClientError::Unreadable(_) => false,
        };
        let failure = self.client.failure(trouble);

        if passes {
            ExportError::Transient(failure)
        } else {
            ExportError::Permanent(failure)
        }
    }
}

/// Returns whether a node responds without changes and without waiting for them, as it does while
/// it drains.
fn is_early(page: &ExportPage, after: Duration) -> bool {
    page.lines.is_empty() && !page.more && after < SHORTEST_WAIT
}

#[cfg(test)]
mod tests;
