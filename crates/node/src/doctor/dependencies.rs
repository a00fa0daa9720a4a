//! Checks of external dependencies: NATS, secrets, the hosts of upstreams.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_effect::secret::SecretRef;
use orlog_model::Clock as _;
use toml::Value;

use super::check::CheckResult;
use super::clock;
use crate::auth;
use crate::clock::SystemClock;
use crate::config::{AuthMode, Config};
use crate::effects;
use crate::transport;
use crate::upstreams::RemoteDependencies;

/// Timeout per host. Default: 3s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);
const BUS: &str = "bus";

/// Checks the NATS servers. Returns the effects that are reachable through them.
pub(super) async fn check_bus(
    config: &Config,
    findings: &mut Vec<CheckResult>,
) -> Option<RemoteDependencies> {
    let result = tokio::time::timeout(CHECK_TIMEOUT * 3, transport::connect(config)).await;
    let connection = match result {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            findings.push(CheckResult::error(
                BUS,
                format!("{error:#}"),
                "start it, or check [nats]: servers, credentials, tls",
            ));
            return None;
        }
        Err(_) => {
            findings.push(CheckResult::error(
                BUS,
                "NATS does not respond",
                "start it, or check nats.servers",
            ));
            return None;
        }
    };

    findings.push(CheckResult::ok(
        BUS,
        format!("NATS {} answers", connection.server_version()),
    ));

    // Only compares: the doctor changes nothing.
    match transport::streams(&connection, config, SystemClock.now(), false).await {
        Ok(differences) => findings.extend(differences.iter().map(|difference| {
            let remedy = match &difference.rejected {
                Some(_) => "recreate the stream or change the configuration (docs/nats.md)",
                None => "apply the change with `orlog streams apply`",
            };
            CheckResult::warn("streams", difference.to_string(), remedy)
        })),
        Err(error) => {
            findings.push(CheckResult::error(
                "streams",
                error.to_string(),
                "check the permissions of this user",
            ));
        }
    }

    effects::probe_dependencies(config, &connection).await
}

/// Checks that every secret in the configuration and in the upstream files is readable.
pub(super) fn check_secrets(config: &Config) -> Vec<CheckResult> {
    let mut named = BTreeMap::new();
    if let Ok(table) = Value::try_from(config) {
        collect(&table, "the configuration", &mut named);
    }

    for entry in config
        .upstreams_dir
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten()
    {
        let path = entry.path();
        // The check of the upstreams reports a file that cannot be read or parsed.
        let text = std::fs::read_to_string(&path).unwrap_or_default();

        if let Ok(table) = text.parse::<toml::Table>() {
            collect(
                &Value::Table(table),
                &path.display().to_string(),
                &mut named,
            );
        }
    }

    let mut findings = Vec::new();
    for (reference, origin) in &named {
        if let Err(error) = reference
            .parse::<SecretRef>()
            .map_err(|error| error.to_string())
            .and_then(|secret| secret.resolve().map_err(|error| error.to_string()))
        {
            findings.push(CheckResult::error(
                "secrets",
                format!("{error} (referenced in {origin})"),
                "create it, readable by the node",
            ));
        }
    }

    findings.extend(check_admin_token(config));
    if findings.is_empty() && !named.is_empty() {
        findings.push(CheckResult::ok(
            "secrets",
            format!("{} readable", named.len()),
        ));
    }

    findings
}

/// Checks the file with the token of the administrator. A node creates a missing one in its data
/// directory.
fn check_admin_token(config: &Config) -> Option<CheckResult> {
    let file = auth::admin_token_file(config);
    if config.auth.mode != AuthMode::Token || (config.auth.token.file.is_none() && !file.exists()) {
        return None;
    }

    let error = auth::check_admin_token(&file).err()?;
    let remedy =
        "a file with at least 32 random characters, readable by the node and not by other users";

    Some(CheckResult::error(
        "secrets",
        format!("auth.token.file: {error:#}"),
        remedy,
    ))
}

/// Collects secret references and their locations.
fn collect(value: &Value, origin: &str, named: &mut BTreeMap<String, String>) {
    match value {
        Value::String(text) if text.parse::<SecretRef>().is_ok() => {
            named
                .entry(text.clone())
                .or_insert_with(|| origin.to_owned());
        }
        Value::Table(table) => table
            .values()
            .for_each(|value| collect(value, origin, named)),
        Value::Array(items) => items.iter().for_each(|value| collect(value, origin, named)),
        _ => {}
    }
}

/// Checks that the hosts of upstreams respond, and compares clocks. A missing response is not an
/// error of the node.
pub(super) async fn check_hosts(config: &Config) -> Vec<CheckResult> {
    let mut urls = BTreeSet::new();
    if let Ok(table) = Value::try_from(config) {
        bases(&table, &mut urls);
    }

    for entry in config
        .upstreams_dir
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten()
    {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        text.parse::<toml::Table>()
            .iter()
            .for_each(|table| bases(&Value::Table(table.clone()), &mut urls));
    }

    let Ok(client) = orlog_effect::http::client().timeout(CHECK_TIMEOUT).build() else {
        return Vec::new();
    };

    // At the same time: hosts that do not respond would each take the whole timeout.
    futures::future::join_all(urls.into_iter().map(|url| {
        let client = client.clone();
        async move {
            // HEAD has no effect at the upstream.
            match client.head(&url).send().await {
                Ok(response) => {
                    let date = response
                        .headers()
                        .get("date")
                        .and_then(|date| date.to_str().ok());
                    date.and_then(|date| clock::compare(&url, date))
                        .map_or_else(
                            || vec![CheckResult::ok("hosts", format!("{url} answers"))],
                            |apart| vec![apart],
                        )
                }
                Err(error) => {
                    let found = format!("{url} does not respond: {}", innermost(&error));
                    vec![CheckResult::warn(
                        "hosts",
                        found,
                        "its effects wait and are retried until their deadline",
                    )]
                }
            }
        }
    }))
    .await
    .into_iter()
    .flatten()
    .collect()
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
