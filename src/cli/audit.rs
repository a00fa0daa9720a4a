//! `orlog audit`: lists the audit trail.

use serde_json::{Value, json};

use super::client::{ApiClient, ServerArgs};
use super::console::{Console, items, note, text};
use super::exit::CommandError;

/// Records per request.
const PAGE: usize = 200;

/// Filter of audit records.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Include all tenants and node-wide records
    #[arg(long)]
    all: bool,
    /// Filter by user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Filter by text in the route, for example /admin/
    #[arg(long, value_name = "TEXT")]
    route: Option<String>,
    /// Filter by outcome: succeeded, rejected, failed or unknown
    #[arg(long)]
    outcome: Option<String>,
    /// Records at or after this time (RFC 3339)
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Maximum number of results
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let (records, more) = fetch(&client, &args).await?;
    if console.is_json() {
        return console.json(&json!({ "items": records, "has_more": more }));
    }
    let row = |record: &Value| {
        let outcome = match text(record, "code") {
            code if code.is_empty() => text(record, "outcome"),
            code => format!("{} {code}", text(record, "outcome")),
        };
        let method = text(record, "route").split(' ').next().unwrap_or_default().to_owned();
        let action = format!("{method} {}", text(record, "target"));
        let [at, user, role, tenant, source] =
            ["at", "user", "role", "tenant", "source"].map(|field| text(record, field));
        vec![at, user, role, tenant, action, outcome, source]
    };
    let rows: Vec<_> = records.iter().map(row).collect();
    console.table(&["TIME", "USER", "ROLE", "TENANT", "ROUTE", "OUTCOME", "SOURCE"], &rows, "no records")?;
    if more {
        note("more results available; raise --limit");
    }
    Ok(())
}

async fn fetch(client: &ApiClient, args: &Args) -> Result<(Vec<Value>, bool), CommandError> {
    let filters =
        [("user", &args.user), ("route", &args.route), ("outcome", &args.outcome), ("from", &args.from)];
    let filters = filters.map(|(name, value)| value.as_ref().map(|value| (name, value.clone())));
    let mut fixed: Vec<_> = filters.into_iter().flatten().collect();
    fixed.push(("all", args.all.to_string()));
    let (mut records, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut query = fixed.clone();
        query.push(("limit", PAGE.min(args.limit - records.len()).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/audit", &query).await?;
        records.extend(items(&page, "items").iter().cloned());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || records.len() >= args.limit {
            return Ok((records, cursor.is_some()));
        }
    }
}
