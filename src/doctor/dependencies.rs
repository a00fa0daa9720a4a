//! What lies outside: NATS, secrets, the hosts of upstreams.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_effect::secret::SecretRef;
use orlog_model::Clock as _;
use toml::Value;

use super::check::Finding;
use super::clock;
use crate::app;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::upstreams::Outside;

/// The time that a host may take.
const PATIENCE: Duration = Duration::from_secs(3);
const BUS: &str = "bus";

/// Asks the servers of NATS; what reaches others through them is the answer.
pub(super) async fn bus(config: &Config, findings: &mut Vec<Finding>) -> Option<Outside> {
    let asked = tokio::time::timeout(PATIENCE * 3, app::connect(config)).await;
    let connection = match asked {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            findings.push(Finding::bad(
                BUS,
                format!("{error:#}"),
                "start it, or see to [nats]: servers, credentials, tls",
            ));
            return None;
        }
        Err(_) => {
            findings.push(Finding::bad(BUS, "NATS does not answer", "start it, or see to nats.servers"));
            return None;
        }
    };
    findings.push(Finding::ok(BUS, format!("NATS {} answers", connection.server_version())));
    match app::streams(&connection, config, SystemClock.now(), false).await {
        Ok(differences) => findings.extend(differences.iter().map(|difference| {
            let remedy = match &difference.refused {
                Some(_) => "make the stream anew or change the configuration (docs/nats.md)",
                None => "`orlog streams apply` changes it",
            };
            Finding::warn("streams", difference.to_string(), remedy)
        })),
        Err(error) => {
            findings.push(Finding::bad("streams", error.to_string(), "see to the rights of this user"));
        }
    }
    app::reach(config, &connection).await
}

/// Whether every secret that the configuration and the files of upstreams name can be read.
pub(super) fn secrets(config: &Config) -> Vec<Finding> {
    let mut named = BTreeMap::new();
    if let Ok(table) = Value::try_from(config) {
        collect(&table, "the configuration", &mut named);
    }
    for entry in config.effects.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let path = entry.path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(table) = text.parse::<toml::Table>() {
            collect(&Value::Table(table), &path.display().to_string(), &mut named);
        }
    }
    let mut findings = Vec::new();
    for (reference, place) in &named {
        if let Err(error) = reference
            .parse::<SecretRef>()
            .map_err(|error| error.to_string())
            .and_then(|secret| secret.resolve().map_err(|error| error.to_string()))
        {
            findings.push(Finding::bad(
                "secrets",
                format!("{error} (named in {place})"),
                "put it there, readable for the node",
            ));
        }
    }
    if findings.is_empty() && !named.is_empty() {
        findings.push(Finding::ok("secrets", format!("{} can be read", named.len())));
    }
    findings
}

/// References to secrets, and where they stand.
fn collect(value: &Value, place: &str, named: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) if text.parse::<SecretRef>().is_ok() => {
            named.entry(text.clone()).or_insert_with(|| place.to_owned());
        }
        Value::Table(table) => table.values().for_each(|value| collect(value, place, named)),
        Value::Array(items) => items.iter().for_each(|value| collect(value, place, named)),
        _ => {}
    }
}

/// Whether the hosts of upstreams answer, and what time they have. That one does not is no fault of the node.
pub(super) async fn hosts(config: &Config) -> Vec<Finding> {
    let mut urls = BTreeSet::new();
    if let Ok(table) = Value::try_from(config) {
        bases(&table, &mut urls);
    }
    for entry in config.effects.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        text.parse::<toml::Table>().iter().for_each(|table| bases(&Value::Table(table.clone()), &mut urls));
    }
    let Ok(client) = orlog_effect::http::client().timeout(PATIENCE).build() else { return Vec::new() };
    let ask = |url: String| {
        let client = client.clone();
        async move {
            match client.head(&url).send().await {
                Ok(answer) => {
                    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
                    date.and_then(|date| clock::compare(&url, date)).map_or_else(
                        || vec![Finding::ok("hosts", format!("{url} answers"))],
                        |apart| vec![apart],
                    )
                }
                Err(error) => {
                    let found = format!("{url} does not answer: {}", innermost(&error));
                    vec![Finding::warn(
                        "hosts",
                        found,
                        "its effects wait, and are tried until their deadline",
                    )]
                }
            }
        }
    };
    futures::future::join_all(urls.into_iter().map(ask)).await.into_iter().flatten().collect()
}

fn bases(value: &Value, urls: &mut BTreeSet<String>) {
    let Value::Table(table) = value else { return };
    for (key, value) in table {
        match value.as_str() {
            Some(url) if key == "base_url" && url.starts_with("http") => {
                urls.insert(url.to_owned());
            }
            _ => bases(value, urls),
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
