//! `orlog doctor`: checks the dependencies and settings of a node, or a running node, and prints
//! remedies.

pub(crate) mod check_tables;

use std::fmt::Display;

use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::config_flags::ConfigFlags;
use crate::cli::console::{Console, items, text};
use crate::cli::exit::{CommandError, CommandExit};
use orlog_node::doctor::{self, CheckResult, CheckStatus};

/// Maximum number of dead letters and stuck instances to count.
const COUNTED: usize = 1000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Also check the running node at --url
    #[arg(long)]
    node: bool,
    /// Also read every row of the tables, in a child process; takes minutes for large stores
    #[arg(long, conflicts_with = "node_only")]
    deep: bool,
    /// Check only the running node, not this machine
    #[arg(long)]
    node_only: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let mut findings = Vec::new();
    if !args.node_only {
        findings.extend(Box::pin(here(&args.flags, args.deep)).await);
    }

    if args.node || args.node_only {
        findings.extend(there(&args.server).await?);
    }
    report(&findings, console)?;

    // Warnings do not fail the command: the node works.
    let bad = findings
        .iter()
        .filter(|finding| finding.status == CheckStatus::Error)
        .count();

    match bad {
        0 => Ok(()),
        1 => Err(CommandError::failed("1 check failed")),
        bad => Err(CommandError::failed(format!("{bad} checks failed"))),
    }
}

fn report(checks: &[CheckResult], console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        let severity = checks
            .iter()
            .map(|finding| finding.status)
            .max()
            .unwrap_or(CheckStatus::Ok);
        return console.json(&json!({ "severity": severity, "checks": checks }));
    }

    let rows: Vec<_> = checks.iter().map(finding_row).collect();
    console.table(
        &["STATUS", "CHECK", "MESSAGE", "REMEDY"],
        &rows,
        "no checks were run",
    )
}

fn finding_row(finding: &CheckResult) -> Vec<String> {
    let CheckResult {
        name: check,
        status: level,
        message: found,
        remedy,
    } = finding;
    let remedy = if remedy.is_empty() {
        String::new()
    } else {
        format!("-> {remedy}")
    };

    vec![
        level.as_str().to_owned(),
        check.clone(),
        found.replace('\n', "; "),
        remedy,
    ]
}

/// Checks this machine with this configuration.
async fn here(flags: &ConfigFlags, deep: bool) -> Vec<CheckResult> {
    let invalid = |error: &dyn Display, remedy| {
        CheckResult::error("configuration", error.to_string(), remedy)
    };
    let reference = "config/default.toml lists every key";
    let layers = match flags.layers() {
        Ok(layers) => layers,
        Err(error) => return vec![invalid(&error, "set a readable configuration file")],
    };
    // All errors at once: `load` would stop at the first one.
    let errors = layers.errors();
    if !errors.is_empty() {
        return errors
            .iter()
            .map(|error| invalid(error, reference))
            .collect();
    }

    match layers.load() {
        Ok(config) => {
            let mut findings = vec![CheckResult::ok(
                "configuration",
                format!("node {:?}", config.node_name()),
            )];
            findings.extend(doctor::run_checks(&config, deep).await);
            findings
        }
        Err(error) => vec![invalid(&error, reference)],
    }
}

/// Checks a running node through its API, and counts instances and dead letters that need an
/// operator.
async fn there(server: &ServerArgs) -> Result<Vec<CheckResult>, CommandError> {
    let client = ApiClient::new(server)?;
    let found = client.get("/admin/diagnostics", &[]).await;
    // A node that does not respond is a finding, so that the findings of this machine are printed
    // too.
    let response = match found {
        Ok(response) => response,
        Err(failure) if failure.exit() == CommandExit::Unavailable => {
            return Ok(vec![CheckResult::error(
                "node",
                failure.to_string(),
                "start the node, or set another URL with --url",
            )]);
        }
        Err(failure) => return Err(failure),
    };

    let mut findings: Vec<_> = items(&response, "checks").iter().map(read_check).collect();
    // The diagnostics of a node count all tenants. These two name instances of the tenant of the
    // user.
    findings.push(or_unavailable("stuck", stuck(&client).await)?);
    findings.push(or_unavailable("dead letters", dead_letters(&client).await)?);
    if let Err(incomplete) = client.check_complete() {
        findings.push(CheckResult::warn(
            "pods",
            incomplete.to_string(),
            "run `orlog doctor --node` with the --url of each pod",
        ));
    }

    Ok(findings)
}

/// Reads a check of a node. One that this release cannot read, of a newer node, becomes a warning:
/// it can be an error.
fn read_check(found: &Value) -> CheckResult {
    serde_json::from_value(found.clone()).unwrap_or_else(|error| {
        let name = text(found, "name");
        let name = if name.is_empty() {
            "unknown check"
        } else {
            &name
        };
        CheckResult::warn(
            name,
            format!("this release cannot read the check ({error}): {found}"),
            "use the release of the node for `orlog doctor`",
        )
    })
}

/// Turns the failure of a check into its result if the owner of the shard does not respond, so that
/// the other results are printed.
fn or_unavailable(
    check: &str,
    result: Result<CheckResult, CommandError>,
) -> Result<CheckResult, CommandError> {
    match result {
        Err(failure) if failure.exit() == CommandExit::Unavailable => Ok(CheckResult::error(
            check,
            failure.to_string(),
            "restore the shard of the tenant, then retry",
        )),
        result => result,
    }
}

async fn stuck(client: &ApiClient) -> Result<CheckResult, CommandError> {
    let query = [
        ("status", "stuck".to_owned()),
        ("limit", COUNTED.to_string()),
    ];
    let page = client.get("/v1/sagas", &query).await?;
    let found = items(&page, "items");
    // A page with a cursor can be empty, because the node scans a bounded number of rows.
    let more = if page["next_cursor"].is_null() {
        ""
    } else {
        " at least"
    };

    Ok(match found.first() {
        None => CheckResult::ok(
            "stuck",
            format!(
                "no instance of this tenant{}",
                if more.is_empty() {
                    ""
                } else {
                    " among the scanned ones"
                }
            ),
        ),
        Some(first) => {
            let found = format!(
                "{}{more} need an operator, such as {}/{}",
                found.len(),
                text(first, "saga"),
                text(first, "correlation")
            );
            CheckResult::error(
                "stuck",
                found,
                "see the reason with `orlog saga show`; then use `orlog saga retry`, `skip` or \
                 `force-complete`",
            )
        }
    })
}

async fn dead_letters(client: &ApiClient) -> Result<CheckResult, CommandError> {
    let page = client
        .get("/v1/dead-letters", &[("limit", COUNTED.to_string())])
        .await?;
    let found = items(&page, "items");
    // The list starts with the oldest one, so that only a complete one ends with the latest.
    let is_complete = page["next_cursor"].is_null();
    let example = if is_complete {
        found.last()
    } else {
        found.first()
    };
    let Some(example) = example else {
        return Ok(CheckResult::ok("dead letters", "none for this tenant"));
    };

    let message = text(example, "message");
    let count = found.len();
    let found = if is_complete {
        format!("{count}; latest: {message}")
    } else {
        format!("{count} at least; oldest: {message}")
    };
    Ok(CheckResult::warn(
        "dead letters",
        found,
        "list them with `orlog dlq list`; fix the cause, then use `orlog dlq redrive`",
    ))
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router};

    use super::*;
    use crate::cli::client::tests::{client_of, serve};

    #[test]
    fn check_of_a_newer_release_becomes_a_warning() {
        let newer = json!({ "name": "quorum", "status": "critical", "message": "lost" });
        let check = read_check(&newer);
        assert_eq!(
            (check.name.as_str(), check.status),
            ("quorum", CheckStatus::Warn)
        );
        assert!(check.message.contains("lost"), "{}", check.message);
    }

    #[tokio::test]
    async fn incomplete_list_of_dead_letters_names_the_oldest_one() {
        for (cursor, expected) in [
            (json!("c"), "2 at least; oldest: first"),
            (Value::Null, "2; latest: last"),
        ] {
            let page = json!({
                "items": [{ "message": "first" }, { "message": "last" }], "next_cursor": cursor,
            });
            let router = Router::new().fallback(move || std::future::ready(Json(page)));
            let check = dead_letters(&client_of(&serve(router).await))
                .await
                .unwrap();
            assert_eq!(check.message, expected);
        }
    }
}
