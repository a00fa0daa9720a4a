//! `orlog audit`: who did what.

use serde_json::{Value, json};

use super::client::{Client, Server};
use super::console::{Console, items, remark, text};
use super::exit::Failure;

/// Records of one request.
const PAGE: usize = 200;

/// Which records.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Those about every tenant and about the node, not only about --tenant
    #[arg(long)]
    all: bool,
    /// By whom
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Whose route contains this text, for example /admin/
    #[arg(long, value_name = "TEXT")]
    route: Option<String>,
    /// done, refused, failed or unknown
    #[arg(long)]
    outcome: Option<String>,
    /// Not older than this, RFC 3339
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let client = Client::new(&args.server)?;
    let (records, more) = ask(&client, &args).await?;
    if console.is_json() {
        return console.json(&json!({ "items": records, "more": more }));
    }
    let row = |record: &Value| {
        let outcome = match text(record, "code") {
            code if code.is_empty() => text(record, "outcome"),
            code => format!("{} {code}", text(record, "outcome")),
        };
        let method = text(record, "route").split(' ').next().unwrap_or_default().to_owned();
        let what = format!("{method} {}", text(record, "target"));
        let [at, who, role, tenant, source] =
            ["at", "who", "role", "tenant", "source"].map(|field| text(record, field));
        vec![at, who, role, tenant, what, outcome, source]
    };
    let rows: Vec<_> = records.iter().map(row).collect();
    console.table(&["AT", "WHO", "ROLE", "TENANT", "WHAT", "OUTCOME", "FROM"], &rows, "no records")?;
    if more {
        remark("there are more: raise --limit");
    }
    Ok(())
}

async fn ask(client: &Client, args: &Args) -> Result<(Vec<Value>, bool), Failure> {
    let given =
        [("who", &args.who), ("route", &args.route), ("outcome", &args.outcome), ("from", &args.from)];
    let given = given.map(|(name, value)| value.as_ref().map(|value| (name, value.clone())));
    let mut fixed: Vec<_> = given.into_iter().flatten().collect();
    fixed.push(("all", args.all.to_string()));
    let (mut records, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut query = fixed.clone();
        query.push(("limit", PAGE.min(args.limit - records.len()).to_string()));
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page = client.get("/v1/audit", &query).await?;
        records.extend(items(&page, "items").iter().cloned());
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() || records.len() >= args.limit {
            return Ok((records, cursor.is_some()));
        }
    }
}
