//! `orlog migrate`: migrates running instances to another definition of their saga.

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, path};
use crate::cli::console::{Console, items, note, text};
use crate::cli::exit::{CommandError, CommandExit};

/// Instances per request.
const PAGE: usize = 200;
/// Maximum number of blocked instances to print.
const MAX_ROWS: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Saga
    saga: String,
    /// Current definition: version or hash prefix
    #[arg(long, value_name = "VERSION|HASH")]
    from: String,
    /// Target definition: version or hash prefix [default: the active one]
    #[arg(long, value_name = "VERSION|HASH")]
    to: Option<String>,
    /// Print the plan without migrating (dry run)
    #[arg(long)]
    dry_run: bool,
    /// Migrate only these instances
    #[arg(long, value_name = "CORRELATION", num_args = 1..)]
    only: Vec<String>,
    /// Maximum number of instances
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Exit with 0 even if instances are blocked
    #[arg(long)]
    skip_blocked: bool,
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let Migrated { result, failure } = everything(&client, &args).await?;
    // Printed before the exit code is decided, because blocked instances do not stop the others.
    if console.is_json() {
        console.json(&result)?;
    } else {
        report(&result, console)?;
    }
    // After the results: the instances of the requests before it are migrated.
    if let Some(failure) = failure {
        return Err(failure);
    }

    match result["counts"]["blocked"].as_u64() {
        Some(blocked) if blocked > 0 && !args.skip_blocked => Err(CommandError::new(
            CommandExit::Rejected,
            format!(
                "{blocked} instances cannot migrate and keep their definition; with \
                 --skip-blocked, the exit code is 0"
            ),
        )),
        // Missing pods are reported only without blocked instances, which need a decision first.
        _ => client.check_complete(),
    }
}

/// Results of all requests.
struct Migrated {
    result: Value,
    /// Failure of a request after the first one.
    failure: Option<CommandError>,
}

/// Migrates page by page. After an interruption, the same command resumes: migrated instances are
/// skipped.
async fn everything(client: &ApiClient, args: &Args) -> Result<Migrated, CommandError> {
    let mut all = Vec::new();
    let mut failure = None;
    let mut cursor = Value::Null;
    let mut last = Value::Null;
    let mut named = args.only.as_slice();
    let limit = args.limit.unwrap_or(usize::MAX);
    // Page by page: a request has a time limit, and each page is durable when its response arrives.
    while all.len() < limit {
        let size = PAGE.min(limit - all.len());
        // The node rejects more names than instances of a page.
        let only = next_chunk(&mut named, size);
        let body = json!({
            "from": args.from, "to": args.to, "only": only, "dry_run": args.dry_run,
            "user": args.user,
            "limit": size, "cursor": cursor,
        });
        let url = path(&["v1", "definitions", &args.saga, "migrate"]);
        last = match client.post(&url, Some(&body)).await {
            Ok(page) => page,
            Err(error) if all.is_empty() => return Err(error),
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        all.extend(items(&last, "items").iter().cloned());
        // A page can be short, or empty, and still have a cursor: other definitions are skipped.
        cursor = last["next_cursor"].take();

        // Names have no cursor: each request has others.
        if cursor.is_null() && named.is_empty() {
            break;
        }
    }

    let count = |class: &str| all.iter().filter(|one| one["class"] == class).count();
    let migrated = all.iter().filter(|one| one["migrated"] == true).count();
    let counts = json!({
        "safe": count("safe"), "mapped": count("mapped"), "blocked": count("blocked"),
        "migrated": migrated,
    });
    let version = last["to_version"].take();
    let hash = last["to_hash"].take();

    let result = json!({
        "dry_run": args.dry_run, "to_version": version, "to_hash": hash, "counts": counts,
        "items": all,
        "has_more": !cursor.is_null() || !named.is_empty(),
        "next_cursor": cursor,
    });
    Ok(Migrated { result, failure })
}

/// Removes up to `size` names from the start of a list, and returns them.
fn next_chunk<'a>(names: &mut &'a [String], size: usize) -> &'a [String] {
    let (chunk, rest) = names.split_at(size.min(names.len()));
    *names = rest;
    chunk
}

fn report(result: &Value, console: &Console) -> Result<(), CommandError> {
    let (mut blocked, others): (Vec<_>, Vec<_>) = items(result, "items")
        .iter()
        .partition(|one| one["class"] == "blocked");
    // After a migration, only the blocked instances need attention. A plan shows all of them.
    let listed = if result["dry_run"] == true {
        &others[..]
    } else {
        &[]
    };
    let hidden = blocked.len().saturating_sub(MAX_ROWS) + listed.len().saturating_sub(MAX_ROWS);
    blocked.truncate(MAX_ROWS);

    let rows = listed.iter().take(MAX_ROWS).chain(&blocked).map(|one| {
        let reasons: Vec<_> = items(one, "reasons")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        vec![
            text(one, "correlation"),
            text(one, "class"),
            reasons.join("; "),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        console.table(&["INSTANCE", "PLAN", "REASON"], &rows, "")?;
    }
    if hidden > 0 {
        note(&format!(
            "{hidden} more are not printed; --output json lists all"
        ));
    }

    if result["has_more"] == true {
        note("--limit reached; more instances possible");
    }
    let counts = &result["counts"];
    let classes = ["safe", "mapped", "blocked"]
        .map(|class| format!("{} {class}", counts[class]))
        .join(", ");
    let done = match result["dry_run"].as_bool() {
        Some(true) => "dry run: no changes made".to_owned(),
        _ => format!(
            "{} instances migrated to v{}",
            counts["migrated"],
            text(result, "to_version")
        ),
    };

    console.line(&format!("{classes}; {done}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sent_in_chunks_of_a_page() {
        let names: Vec<String> = (0..450).map(|number| format!("o-{number}")).collect();
        let mut rest = names.as_slice();
        let mut sent = Vec::new();
        let mut sizes = Vec::new();
        while !rest.is_empty() {
            let chunk = next_chunk(&mut rest, PAGE);
            sizes.push(chunk.len());
            sent.extend_from_slice(chunk);
        }

        assert_eq!(sizes, [200, 200, 50]);
        assert_eq!(sent, names);
        assert!(next_chunk(&mut rest, PAGE).is_empty());
    }
}
