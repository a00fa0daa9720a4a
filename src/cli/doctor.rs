//! `orlog doctor`: looks at everything that a node needs, or at a running node, and says what is wrong and what to do.

use serde_json::{Value, json};

use super::client::{Client, Server};
use super::config_flags::Flags;
use super::console::{Console, items, text};
use super::exit::{Exit, Failure};
use crate::doctor::{self, Finding, Level};

/// Letters and stuck instances that are counted.
const COUNTED: usize = 1000;

/// What to look at.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
    /// Ask the running node at --url, too
    #[arg(long)]
    node: bool,
    /// Ask the running node only, and look at nothing on this machine
    #[arg(long)]
    node_only: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn perform(args: Args, console: &Console) -> Result<(), Failure> {
    let mut findings = Vec::new();
    if !args.node_only {
        findings.extend(here(&args.flags).await);
    }
    if args.node || args.node_only {
        findings.extend(there(&args.server).await?);
    }
    report(&findings, console)?;
    let bad = findings.iter().filter(|finding| finding.level == Level::Bad).count();
    match bad {
        0 => Ok(()),
        1 => Err(Failure::failed("1 thing is bad")),
        bad => Err(Failure::failed(format!("{bad} things are bad"))),
    }
}

fn report(findings: &[Finding], console: &Console) -> Result<(), Failure> {
    if console.is_json() {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        return console.json(&json!({ "worst": worst, "findings": findings }));
    }
    let row = |finding: &Finding| {
        let Finding { check, level, found, remedy } = finding;
        let remedy = if remedy.is_empty() { String::new() } else { format!("-> {remedy}") };
        vec![level.as_str().to_owned(), check.clone(), found.replace('\n', "; "), remedy]
    };
    let rows: Vec<_> = findings.iter().map(row).collect();
    console.table(&["", "CHECK", "FOUND", "WHAT TO DO"], &rows, "nothing was looked at")
}

/// This machine, as a node with this configuration would find it.
async fn here(flags: &Flags) -> Vec<Finding> {
    let layers = match flags.layers() {
        Ok(layers) => layers,
        Err(error) => {
            return vec![Finding::bad("configuration", error.to_string(), "name a file that can be read")];
        }
    };
    let mistakes = layers.mistakes();
    if !mistakes.is_empty() {
        let finding = |mistake: &crate::config::Error| {
            Finding::bad("configuration", mistake.to_string(), "config/default.toml lists every key")
        };
        return mistakes.iter().map(finding).collect();
    }
    match layers.load() {
        Ok(config) => {
            let mut findings = vec![Finding::ok("configuration", format!("node {:?}", config.node_name()))];
            findings.extend(doctor::examine(&config).await);
            findings
        }
        Err(error) => {
            vec![Finding::bad("configuration", error.to_string(), "config/default.toml lists every key")]
        }
    }
}

/// A running node, as it sees itself, and what waits for a person.
async fn there(server: &Server) -> Result<Vec<Finding>, Failure> {
    let client = Client::new(server)?;
    let found = client.get("/admin/diagnosis", &[]).await;
    let answer = match found {
        Ok(answer) => answer,
        Err(failure) if failure.exit() == Exit::Unavailable => {
            return Ok(vec![Finding::bad(
                "node",
                failure.to_string(),
                "start it, or name another with --url",
            )]);
        }
        Err(failure) => return Err(failure),
    };
    let read = |finding: &Value| serde_json::from_value::<Finding>(finding.clone()).ok();
    let mut findings: Vec<_> = items(&answer, "findings").iter().filter_map(read).collect();
    findings.push(stuck(&client).await?);
    findings.push(letters(&client).await?);
    Ok(findings)
}

async fn stuck(client: &Client) -> Result<Finding, Failure> {
    let query = [("status", "stuck".to_owned()), ("limit", COUNTED.to_string())];
    let page = client.get("/v1/sagas", &query).await?;
    let found = items(&page, "items");
    let more = if page["next"].is_null() { "" } else { " at least" };
    Ok(match found.first() {
        None => Finding::ok(
            "stuck",
            format!(
                "no instance of this tenant{}",
                if more.is_empty() { "" } else { " among those that were looked at" }
            ),
        ),
        Some(first) => {
            let found = format!(
                "{}{more} wait for a person, such as {}/{}",
                found.len(),
                text(first, "saga"),
                text(first, "correlation")
            );
            Finding::bad(
                "stuck",
                found,
                "`orlog saga show` says why; then `orlog saga retry`, `skip` or `force-complete`",
            )
        }
    })
}

async fn letters(client: &Client) -> Result<Finding, Failure> {
    let page = client.get("/v1/dead-letters", &[("limit", COUNTED.to_string())]).await?;
    let found = items(&page, "items");
    let more = if page["next"].is_null() { "" } else { " at least" };
    Ok(match found.last() {
        None => Finding::ok("dead letters", "none of this tenant"),
        Some(last) => {
            let found = format!("{}{more}; the last: {}", found.len(), text(last, "message"));
            Finding::warn(
                "dead letters",
                found,
                "`orlog dlq list` shows them; mend the cause, then `orlog dlq redrive`",
            )
        }
    })
}
