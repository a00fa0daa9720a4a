//! `orlog migrate`: moves running instances to another definition of their saga.

use serde_json::{Value, json};

use super::client::{Client, Server, path};
use super::console::{Console, items, remark, text};
use super::exit::{Exit, Failure};

/// Instances of one request.
const PAGE: usize = 200;
/// Blocked instances that are shown one by one.
const SHOWN: usize = 100;

/// Which instances go where.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The saga
    saga: String,
    /// The definition they go by now: its version, or the beginning of its hash
    #[arg(long, value_name = "VERSION|HASH")]
    from: String,
    /// The definition they are to go by [default: the one in force]
    #[arg(long, value_name = "VERSION|HASH")]
    to: Option<String>,
    /// Say what would become of each, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only these instances
    #[arg(long, value_name = "CORRELATION", num_args = 1..)]
    only: Vec<String>,
    /// At most so many instances
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// End with 0 even if instances are blocked
    #[arg(long)]
    skip_blocked: bool,
    /// Who says so, for the record
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let result = everything(&client, &args).await?;
    if console.is_json() {
        console.json(&result)?;
    } else {
        report(&result, console)?;
    }
    match result["counts"]["blocked"].as_u64() {
        Some(blocked) if blocked > 0 && !args.skip_blocked => {
            Err(Failure::new(Exit::Refused, format!("{blocked} blocked; --skip-blocked takes that as it is")))
        }
        _ => Ok(()),
    }
}

/// Page after page. Where it breaks off, the same command goes on: what has moved is left alone.
async fn everything(client: &Client, args: &Args) -> Result<Value, Failure> {
    let (mut all, mut cursor, mut last) = (Vec::new(), Value::Null, Value::Null);
    let limit = args.limit.unwrap_or(usize::MAX);
    while all.len() < limit {
        let body = json!({
            "from": args.from, "to": args.to, "only": args.only, "dry_run": args.dry_run, "by": args.by,
            "limit": PAGE.min(limit - all.len()), "cursor": cursor,
        });
        last = client.post(&path(&["v1", "definitions", &args.saga, "migrate"]), Some(&body)).await?;
        all.extend(items(&last, "items").iter().cloned());
        cursor = last["next"].take();
        if cursor.is_null() {
            break;
        }
    }
    let count = |class: &str| all.iter().filter(|one| one["class"] == class).count();
    let migrated = all.iter().filter(|one| one["migrated"] == true).count();
    let counts = json!({
        "safe": count("safe"), "mapped": count("mapped"), "blocked": count("blocked"), "migrated": migrated,
    });
    let (version, hash) = (last["to_version"].take(), last["to_hash"].take());
    Ok(json!({
        "dry_run": args.dry_run, "to_version": version, "to_hash": hash, "counts": counts, "items": all,
        "next": cursor,
    }))
}

fn report(result: &Value, console: &Console) -> Result<(), Failure> {
    let (mut blocked, others): (Vec<_>, Vec<_>) =
        items(result, "items").iter().partition(|one| one["class"] == "blocked");
    let shown = if result["dry_run"] == true { &others[..] } else { &[] };
    let hidden = blocked.len().saturating_sub(SHOWN) + shown.len().saturating_sub(SHOWN);
    blocked.truncate(SHOWN);
    let rows = shown.iter().take(SHOWN).chain(&blocked).map(|one| {
        let reasons: Vec<_> = items(one, "reasons").iter().filter_map(Value::as_str).collect();
        vec![text(one, "correlation"), text(one, "class"), reasons.join("; ")]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        console.table(&["INSTANCE", "CLASS", "WHY"], &rows, "")?;
    }
    if hidden > 0 {
        remark(&format!("{hidden} more are not shown; --output json lists all"));
    }
    if !result["next"].is_null() {
        remark("there may be more: --limit ended it");
    }
    let counts = &result["counts"];
    let classes = ["safe", "mapped", "blocked"].map(|class| format!("{} {class}", counts[class])).join(", ");
    let done = match result["dry_run"].as_bool() {
        Some(true) => "nothing was changed: a dry run".to_owned(),
        _ => format!("{} go by version {} now", counts["migrated"], text(result, "to_version")),
    };
    console.line(&format!("{classes}; {done}"))
}
