//! `orlog export`: keeps a copy of instances and tasks elsewhere, from what a node tells of its changes.

mod error;
mod file;
mod page;
mod postgres;
mod statements;
mod target;

use std::time::Duration;

use clap::ArgGroup;

use super::client::{Client, Server, Trouble};
use super::console::{Console, remark, text};
use super::exit::Failure;
use error::Stop;
use page::Page;
use statements::SCHEMA;
use target::Target;

/// How long the node waits for a change before it says that there is none.
const WAIT: &str = "20s";
/// The pauses before something is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// What a node answers to a cursor that leads nowhere any more.
const GONE: u16 = 410;

/// What goes where.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["to", "print_schema"]))]
pub(super) struct Args {
    /// Where it is kept: `env:NAME` or `file:/PATH` for what holds the URL of a database, or <postgres://…> itself; a file for
    /// lines; - for standard output
    #[arg(long, value_name = "TARGET", env = "ORLOG_EXPORT_TO", hide_env_values = true)]
    to: Option<String>,
    /// Go on with what changes; without it, end when everything is told
    #[arg(long)]
    follow: bool,
    /// End when everything is told; the default
    #[arg(long, conflicts_with = "follow")]
    once: bool,
    /// What is kept: instances, tasks, `task_events`, history
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_value = "instances,tasks,task_events")]
    kinds: Vec<String>,
    /// What every tenant has, not only --tenant
    #[arg(long)]
    all: bool,
    /// Forget the cursor and begin with everything that is there
    #[arg(long)]
    anew: bool,
    /// Print the tables that are kept in PostgreSQL, and end
    #[arg(long)]
    print_schema: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let Some(to) = args.to.as_deref().filter(|_| !args.print_schema) else {
        return console.line(SCHEMA.trim_end());
    };
    let scope = match args.server.tenant() {
        _ if args.all => "all".to_owned(),
        tenant => format!("tenant:{}", tenant.unwrap_or_default()),
    };
    let mut kinds = args.kinds.clone();
    kinds.sort();
    kinds.dedup();
    let mut query = vec![("kinds", kinds.join(","))];
    if args.all {
        query.push(("all", "true".to_owned()));
    }
    let target = Target::new(to, scope, kinds.join(","))?;
    let export = Export { client: Client::new(&args.server)?, target, query, follow: args.follow };
    export.run(args.anew).await
}

/// A copy being kept.
struct Export {
    client: Client,
    target: Target,
    query: Vec<(&'static str, String)>,
    follow: bool,
}

impl Export {
    async fn run(mut self, anew: bool) -> Result<(), Failure> {
        let (mut pause, mut begins_anew) = (FIRST_PAUSE, anew);
        loop {
            match self.pass(&mut begins_anew, &mut pause).await {
                Ok(()) => return Ok(()),
                Err(Stop::Passing(failure)) if self.follow => {
                    remark(&format!("{failure}; it is tried again in {pause:?}"));
                    tokio::time::sleep(pause).await;
                    pause = LAST_PAUSE.min(pause * 2);
                }
                Err(Stop::Passing(failure) | Stop::Final(failure)) => return Err(failure),
            }
        }
    }

    /// Goes on from where the target stands, until everything is told, or something fails.
    async fn pass(&mut self, begins_anew: &mut bool, pause: &mut Duration) -> Result<(), Stop> {
        let mut cursor = self.target.open().await?;
        if std::mem::take(begins_anew) {
            cursor = None;
        }
        loop {
            if cursor.is_none() {
                self.target.begin().await?;
            }
            let page = match self.ask(cursor.as_deref()).await {
                Ok(page) => page?,
                Err(Trouble::Problem { status: GONE, body }) if cursor.is_some() => {
                    let why = text(&body, "detail");
                    remark(&format!("{why}: everything is copied anew"));
                    cursor = None;
                    continue;
                }
                Err(trouble) => return Err(self.judged(trouble)),
            };
            self.target.take(&page).await?;
            *pause = FIRST_PAUSE;
            if !page.more && !self.follow {
                return Ok(());
            }
            cursor = Some(page.cursor);
        }
    }

    async fn ask(&self, cursor: Option<&str>) -> Result<Result<Page, Stop>, Trouble> {
        let mut query = self.query.clone();
        query.extend(cursor.map(|cursor| ("after", cursor.to_owned())));
        if self.follow {
            query.push(("wait", WAIT.to_owned()));
        }
        Ok(Page::read(&self.client.lines("/v1/export", &query).await?))
    }

    /// A node that is away or busy comes back; one that says no does not change its mind.
    fn judged(&self, trouble: Trouble) -> Stop {
        let passes = match &trouble {
            Trouble::Silence(_) => true,
            Trouble::Problem { status, .. } => *status >= 500 || *status == 429,
        };
        let failure = self.client.failure(trouble);
        if passes { Stop::Passing(failure) } else { Stop::Final(failure) }
    }
}
