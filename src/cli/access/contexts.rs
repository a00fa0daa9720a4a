//! `orlog context`: lists, creates, changes and deletes contexts.

use std::collections::BTreeSet;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{joined, print_changes};
use crate::cli::client::{ApiClient, ClientError, ServerArgs, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;
use orlog_node::access::Member;

/// Names of the lists in the API.
const LISTS: [&str; 3] = ["admins", "readers", "executors"];
/// Name of the requirement in the API.
const REQUIRE_SIGNED_EVENTS: &str = "require_signed_events";
/// Maximum number of attempts to change a context that other users change at the same time.
const MAX_ATTEMPTS: usize = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the contexts that you may read
    List(ListArgs),
    /// Show a context: its members and its last changes
    Show(ContextArgs),
    /// Create the context of a tenant
    Create(CreateArgs),
    /// Add members to the lists of a context, or remove them
    Set(SetArgs),
    /// Delete the context of a tenant without instances, dead letters and definitions of its own
    Delete(ContextArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ContextArgs {
    /// Tenant of the context
    #[arg(value_name = "TENANT")]
    context: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    which: ContextArgs,
    /// Member with all rights: actor:<id>, context:<context>@<node>, group:<name> or user:<name>
    #[arg(long = "admin", value_name = "MEMBER", required = true)]
    admins: Vec<Member>,
    /// Member who reads
    #[arg(long = "reader", value_name = "MEMBER")]
    readers: Vec<Member>,
    /// Member who executes jobs
    #[arg(long = "executor", value_name = "MEMBER")]
    executors: Vec<Member>,
    /// Accept events and signals only with the signature of a member who may publish
    #[arg(long)]
    require_signed_events: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    which: ContextArgs,
    /// Add a member with all rights: actor:<id>, context:<context>@<node>, group:<name> or
    /// user:<name>
    #[arg(long, value_name = "MEMBER")]
    add_admin: Vec<Member>,
    /// Add a member who reads
    #[arg(long, value_name = "MEMBER")]
    add_reader: Vec<Member>,
    /// Add a member who executes jobs
    #[arg(long, value_name = "MEMBER")]
    add_executor: Vec<Member>,
    /// Remove a member from the admins
    #[arg(long, value_name = "MEMBER")]
    remove_admin: Vec<Member>,
    /// Remove a member from the readers
    #[arg(long, value_name = "MEMBER")]
    remove_reader: Vec<Member>,
    /// Remove a member from the executors
    #[arg(long, value_name = "MEMBER")]
    remove_executor: Vec<Member>,
    /// Accept events and signals only with the signature of a member who may publish, or also
    /// without
    #[arg(long, value_name = "BOOL")]
    require_signed_events: Option<bool>,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => print(&args.client()?.get(&args.path(), &[]).await?, console),
        Command::Create(CreateArgs {
            which,
            admins,
            readers,
            executors,
            require_signed_events,
        }) => {
            // Without a revision, the node only creates: it rejects the request if the context
            // exists with other lists.
            let mut body = json!({ "admins": admins, "readers": readers, "executors": executors });
            // An absent field leaves an existing requirement unchanged, so that a repeated creation
            // with equal lists has no effect.
            if require_signed_events {
                body[REQUIRE_SIGNED_EVENTS] = true.into();
            }
            print(&which.client()?.put(&which.path(), &body).await?, console)
        }
        Command::Set(args) => set(args, console).await,
        Command::Delete(args) => {
            args.client()?.delete(&args.path(), &[]).await?;
            if console.is_json() {
                return console.json(&json!({ "tenant": args.context, "deleted": true }));
            }
            console.line(&format!("{}: context deleted", args.context))
        }
    }
}

impl ContextArgs {
    fn client(&self) -> Result<ApiClient, CommandError> {
        ApiClient::new(&self.server)
    }

    fn path(&self) -> String {
        path(&["v1", "contexts", &self.context])
    }
}

async fn list(args: ListArgs, console: &Console) -> Result<(), CommandError> {
    let found = args.page.fetch("/v1/contexts", &[]).await?;
    found.print(
        &["TENANT", "ADMINS", "READERS", "EXECUTORS"],
        context_row,
        "no contexts",
        console,
    )
}

fn context_row(item: &Value) -> Vec<String> {
    let lists = LISTS.map(|list| joined(item, list));
    [text(item, "tenant")].into_iter().chain(lists).collect()
}

/// Reads the context, changes its lists, and replaces it unless another user has changed it; then
/// it repeats that.
async fn set(args: SetArgs, console: &Console) -> Result<(), CommandError> {
    let SetArgs {
        which,
        add_admin,
        add_reader,
        add_executor,
        remove_admin,
        remove_reader,
        remove_executor,
        require_signed_events,
    } = args;

    let changes = [
        (add_admin, remove_admin),
        (add_reader, remove_reader),
        (add_executor, remove_executor),
    ];
    let is_empty = changes
        .iter()
        .all(|(added, removed)| added.is_empty() && removed.is_empty());
    // Otherwise the command would print the context as if it had changed it.
    if is_empty && require_signed_events.is_none() {
        return Err(CommandError::usage(
            "state a change, for example --add-reader user:ada",
        ));
    }

    let mut client = which.client()?;
    let path = which.path();
    let mut attempt = 1;
    loop {
        // Each attempt reads again: the change of the other user must stay in the lists.
        let context = client.get(&path, &[]).await?;
        let mut body = json!({});
        for (name, (added, removed)) in LISTS.into_iter().zip(&changes) {
            let known = items(&context, name)
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned);
            let mut list: BTreeSet<String> =
                known.chain(added.iter().map(ToString::to_string)).collect();
            list.retain(|member| !removed.iter().any(|gone| gone.to_string() == *member));
            // A request replaces all lists, so that it also contains those that the command does
            // not change.
            body[name] = json!(list);
        }

        if let Some(required) = require_signed_events {
            body[REQUIRE_SIGNED_EVENTS] = required.into();
        }
        client.expect_revision(context["revision"].as_u64());

        match client.try_put(&path, &body).await {
            Ok(context) => return print(&context, console),
            // Without a delay: each mismatch means that the change of another user succeeded.
            Err(ClientError::Problem { status: 412, .. }) if attempt < MAX_ATTEMPTS => attempt += 1,
            Err(error) => return Err(client.failure(error)),
        }
    }
}

fn print(context: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(context);
    }

    console.line(&format!("context {}", text(context, "tenant")))?;
    for list in LISTS {
        console.field(&format!("  {list}"), 13, &joined(context, list))?;
    }
    if context[REQUIRE_SIGNED_EVENTS] == true {
        console.line("  events and signals must be signed")?;
    }

    console.field("  revision", 13, &text(context, "revision"))?;
    print_changes(context, console)
}
