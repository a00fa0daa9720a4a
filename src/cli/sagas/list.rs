//! `orlog saga list`: lists instances, page by page up to the limit.

use serde_json::Value;

use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;
use orlog_node::config::similar_name;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Filter by saga
    #[arg(long)]
    saga: Option<String>,
    /// Filter by status: running, compensating, completed, failed, cancelled, stuck
    #[arg(long, value_delimiter = ',')]
    status: Vec<String>,
    /// Filter by prefix of the correlation id
    #[arg(long)]
    prefix: Option<String>,
    /// Updated at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_from: Option<String>,
    /// Updated before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    updated_until: Option<String>,
    /// Started at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_from: Option<String>,
    /// Started before this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    created_until: Option<String>,
    /// Filter by a part of the business reference, for example order=o-1, or by the name
    #[arg(long, value_name = "[PART=]TEXT")]
    reference: Option<String>,
    /// Filter with a CEL condition, for example "vars.total > 100" (docs/queries.md)
    #[arg(long, value_name = "CEL")]
    filter: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let saga = args.saga.clone();
    let status = Some(args.status.join(",")).filter(|status| !status.is_empty());
    let query = [
        ("saga", args.saga),
        ("status", status),
        ("prefix", args.prefix),
        ("updated_from", args.updated_from),
        ("updated_until", args.updated_until),
        ("created_from", args.created_from),
        ("created_until", args.created_until),
        ("reference", args.reference),
        ("filter", args.filter),
    ];

    let found = args.page.fetch("/v1/sagas", &query).await?;
    let head = [
        "SAGA",
        "CORRELATION",
        "STATUS",
        "VERSION",
        "WAITING FOR",
        "UPDATED",
    ];
    let failed: u64 = found
        .pages
        .iter()
        .filter_map(|page| page["filter_errors"].as_u64())
        .sum();

    let failure = found
        .pages
        .iter()
        .find_map(|page| page["first_filter_error"].as_str());

    if let Some(reason) = failure.filter(|_| !console.is_json()) {
        note(&format!(
            "filter failed for {failed} instances; first: {reason}"
        ));
    }

    // Only for people, and only without a result: it costs further requests.
    let empty = match saga.filter(|_| found.is_empty() && !console.is_json()) {
        Some(saga) => no_instances(&saga, &args.page).await?,
        None => "no instances".to_owned(),
    };
    found.print(&head, row, &empty, console)
}

/// Describes an empty list: a saga without a definition is often misspelt.
async fn no_instances(saga: &str, page: &PageArgs) -> Result<String, CommandError> {
    let definitions = page.client()?.get_all("/v1/definitions").await?;
    let known: Vec<_> = definitions.iter().map(|item| text(item, "saga")).collect();
    if known.iter().any(|name| name == saga) {
        return Ok("no instances".to_owned());
    }

    let hint = match similar_name(saga, known.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("sagas with a definition: {}", known.join(", ")),
    };
    Ok(format!(
        "no instances; the saga `{saga}` has no definition; {hint}"
    ))
}

fn row(item: &Value) -> Vec<String> {
    let paused = item["paused"].as_bool().unwrap_or_default();
    let waits = items(item, "waits")
        .iter()
        .map(|wait| text(wait, "name"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut status = text(item, "status");

    if paused {
        status.push_str(" (paused)");
    }
    // The result became a dead letter: the status alone would show an instance that only waits.
    if item["attention"] == "unapplied_result" {
        status.push_str(" (unapplied result)");
    }

    vec![
        text(item, "saga"),
        text(item, "correlation"),
        status,
        text(item, "version"),
        waits,
        text(item, "updated_at"),
    ]
}
