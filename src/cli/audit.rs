//! `orlog audit`: lists the audit trail, and verifies its files.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;
use orlog_node::audit::{ExpectedRecord, FileSet, Verification};

/// Records per request.
const PAGE: usize = 200;

/// Filter of audit records.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Include all tenants and node-wide records
    #[arg(long)]
    all: bool,
    /// Show the counts of denied requests instead of records
    #[arg(long)]
    denials: bool,
    /// Filter by user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Filter by text in the route, for example /admin/
    #[arg(long, value_name = "TEXT")]
    route: Option<String>,
    /// Filter by outcome: started, succeeded, rejected, failed or unknown
    #[arg(long)]
    outcome: Option<String>,
    /// Records at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Maximum number of results
    #[arg(long, default_value = "100")]
    limit: NonZeroUsize,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Verify that no record in a directory was changed, inserted or removed
    Verify(VerifyArgs),
}

#[derive(Debug, clap::Args)]
struct VerifyArgs {
    /// Directory of the records: audit.dir, or `audit` in the data directory
    dir: PathBuf,
    /// Record that the directory must contain, as an earlier verification printed it
    #[arg(long, value_name = "SEQUENCE:HASH")]
    expect: Option<ExpectedRecord>,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    if let Some(Command::Verify(args)) = args.command {
        // The verification reads files and needs no node, so that it also works on a copy of the
        // trail.
        return tokio::task::block_in_place(|| verify(&args, console));
    }

    let client = ApiClient::new(&args.server)?;
    let Fetched {
        records,
        more,
        broken_at,
    } = fetch(&client, &args).await?;

    // Before the output and on standard error, so that JSON on standard output stays one document.
    if let Some(sequence) = broken_at {
        note(&format!(
            "record {sequence} does not match the line before it; run `orlog audit verify` on the \
             node"
        ));
    }

    if console.is_json() {
        return console
            .json(&json!({ "items": records, "has_more": more, "broken_at": broken_at }));
    }
    if args.denials {
        return list_denials(&records, console);
    }

    let rows: Vec<_> = records.iter().map(record_row).collect();
    console.table(
        &[
            "TIME", "USER", "ROLE", "TENANT", "ROUTE", "OUTCOME", "SOURCE",
        ],
        &rows,
        "no records",
    )?;

    if more {
        note("more results available; raise --limit");
    }
    Ok(())
}

fn record_row(record: &Value) -> Vec<String> {
    let outcome = match text(record, "code") {
        code if code.is_empty() => text(record, "outcome"),
        code => format!("{} {code}", text(record, "outcome")),
    };
    // The route has placeholders. The target has the path and the query of the request, without the
    // method.
    let method = text(record, "route")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned();

    let action = format!("{method} {}", text(record, "target"));
    let [at, user, role, tenant, source] =
        ["at", "user", "role", "tenant", "source"].map(|field| text(record, field));
    vec![at, user, role, tenant, action, outcome, source]
}

fn list_denials(records: &[Value], console: &Console) -> Result<(), CommandError> {
    let rows: Vec<_> = records.iter().map(summary_row).collect();
    console.table(
        &["SINCE", "UNTIL", "COUNT", "USER", "SOURCE", "ROUTE", "CODE"],
        &rows,
        "no denied requests",
    )
}

fn summary_row(record: &Value) -> Vec<String> {
    let [since, at, user, source, route, code] =
        ["since", "at", "user", "source", "route", "code"].map(|field| text(record, field));
    vec![
        since,
        at,
        record["count"].to_string(),
        user,
        source,
        route,
        code,
    ]
}

fn verify(args: &VerifyArgs, console: &Console) -> Result<(), CommandError> {
    let verify = |set, expected| {
        let found = orlog_node::audit::verify(&args.dir, set, expected);
        found.map_err(|error| CommandError::failed(error.to_string()))
    };
    // Only calls have an expected record: the files of denials are limited in size, so that old
    // counts are deleted.
    let records = verify(FileSet::Calls, args.expect.as_ref())?;
    let denials = verify(FileSet::Denials, None)?;
    if console.is_json() {
        return console.json(&json!({ "records": records, "denials": denials }));
    }

    let line = |name: &str, found: &Verification| {
        let Verification {
            first,
            last,
            hash,
            unchained,
            truncated,
        } = found;
        let head = if *last == 0 {
            "none".to_owned()
        } else {
            format!("{first} to {last}, last {last}:{hash}")
        };

        console.line(&format!(
            "{name}: OK, {head}; {unchained} without chain, {truncated} truncated lines"
        ))
    };
    line("records", &records)?;

    line("denials", &denials)
}

/// Received records.
struct Fetched {
    records: Vec<Value>,
    more: bool,
    broken_at: Option<u64>,
}

async fn fetch(client: &ApiClient, args: &Args) -> Result<Fetched, CommandError> {
    let filters = [
        ("user", &args.user),
        ("route", &args.route),
        ("outcome", &args.outcome),
        ("from", &args.from),
    ];
    let filters = filters.map(|(name, value)| value.as_ref().map(|value| (name, value.clone())));
    let mut fixed: Vec<_> = filters.into_iter().flatten().collect();
    fixed.push(("all", args.all.to_string()));
    fixed.push(("denials", args.denials.to_string()));

    let mut records = Vec::new();
    let mut cursor = None::<String>;
    let mut broken_at = None;
    loop {
        let mut query = fixed.clone();
        query.push((
            "limit",
            // The loop ends when the limit is reached, so that the difference is at least 1 here.
            PAGE.min(args.limit.get() - records.len()).to_string(),
        ));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/audit", &query).await?;
        records.extend(items(&page, "items").iter().cloned());
        // Pages go back in time, so that the last finding is the oldest one. A page without a
        // finding keeps the one before.
        broken_at = page["broken_at"].as_u64().or(broken_at);
        cursor = page["next_cursor"].as_str().map(str::to_owned);

        // A short page is not the end: the node scans a bounded number of records for a page.
        if cursor.is_none() || records.len() >= args.limit.get() {
            return Ok(Fetched {
                records,
                more: cursor.is_some(),
                broken_at,
            });
        }
    }
}
