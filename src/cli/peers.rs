//! `orlog peer`: shows this node as others see it, and adds, refreshes, checks and removes peers.

use std::io::{IsTerminal as _, Write as _};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::access::print_changes;
use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List peers
    List(ListArgs),
    /// Show a peer, or the identity of the node itself
    Show(ShowArgs),
    /// Add a peer: from its published document, or with its public keys
    Add(AddArgs),
    /// Read the keys of a peer again, after it has announced another key
    Refresh(PeerArgs),
    /// Send a signed request to a peer, which must know this node
    Check(PeerArgs),
    /// Remove a peer
    Remove(PeerArgs),
    /// Add or revoke a key of a peer
    #[command(subcommand)]
    Key(KeyCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Add a key, or rotate one with --replaces
    Add(AddKeyArgs),
    /// Revoke a key at once
    Revoke(RevokeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Name of the peer; the node itself if omitted
    peer: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PeerArgs {
    /// Name of the peer
    peer: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// Name of the peer; the name in its document if omitted
    #[arg(required_unless_present = "from")]
    peer: Option<String>,
    /// Address of a node, whose document the node reads and verifies: https://…, or nats: and its
    /// subject
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["address", "public_keys"])]
    from: Option<String>,
    /// Expected id of the key in the document; adds the peer without a question
    #[arg(long, value_name = "ID", requires = "from", allow_hyphen_values = true)]
    fingerprint: Option<String>,
    /// Address of its API, or nats: and its subject
    #[arg(long, value_name = "ADDRESS", required_unless_present = "from")]
    address: Option<String>,
    /// Ed25519 public key: ed25519: and base64url
    #[arg(
        long = "public-key",
        value_name = "PUBLIC_KEY",
        required_unless_present = "from"
    )]
    public_keys: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddKeyArgs {
    #[command(flatten)]
    which: PeerArgs,
    /// Ed25519 public key: ed25519: and base64url
    public_key: String,
    /// Id of the key that this one replaces
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    replaces: Option<String>,
    /// Time for which the replaced key stays valid [default: 1h]
    #[arg(long, value_name = "DURATION", requires = "replaces")]
    overlap: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    which: PeerArgs,
    /// Id of the key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key_id: String,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => show(args, console).await,
        Command::Add(args) => add(args, console).await,
        Command::Refresh(args) => print(
            &args.client()?.post(&args.path(&["refresh"]), None).await?,
            console,
        ),
        Command::Check(args) => {
            // The node sends the request: only its key shows whether the peer accepts it.
            let found = args.client()?.post(&args.path(&["check"]), None).await?;
            if console.is_json() {
                return console.json(&found);
            }

            let known_as = text(&found, "known_as");
            let version = text(&found, "version");
            console.line(&format!(
                "{}: OK; version {version}, knows this node as {known_as}",
                args.peer
            ))
        }
        Command::Remove(args) => {
            let response = args.client()?.delete(&args.path(&[]), &[]).await?;
            if console.is_json() {
                return console.json(&response);
            }
            console.line(&format!("peer {} removed", args.peer))
        }
        Command::Key(KeyCommand::Add(AddKeyArgs {
            which,
            public_key,
            replaces,
            overlap,
        })) => {
            let body = fields([
                ("key", json!({ "public_key": public_key })),
                ("replaces", json!(replaces)),
                ("overlap", json!(overlap)),
            ]);
            print(
                &which
                    .client()?
                    .post(&which.path(&["keys"]), Some(&body.into()))
                    .await?,
                console,
            )
        }
        Command::Key(KeyCommand::Revoke(RevokeArgs { which, key_id })) => print(
            &which
                .client()?
                .post(&which.path(&["keys", &key_id, "revoke"]), None)
                .await?,
            console,
        ),
    }
}

impl PeerArgs {
    fn client(&self) -> Result<ApiClient, CommandError> {
        ApiClient::new(&self.server)
    }

    fn path(&self, rest: &[&str]) -> String {
        path(&[&["v1", "peers", &self.peer], rest].concat())
    }
}

async fn list(args: ListArgs, console: &Console) -> Result<(), CommandError> {
    let found = args.page.fetch("/v1/peers", &[]).await?;
    found.print(
        &["NAME", "ADDRESS", "VALID KEYS", "SOURCE"],
        peer_row,
        "no peers",
        console,
    )
}

fn peer_row(item: &Value) -> Vec<String> {
    let valid = items(item, "keys")
        .iter()
        .filter(|key| key["valid"] == true)
        .count();
    let source = if item["configured"] == true {
        "configuration"
    } else {
        "registry"
    };

    vec![
        text(item, "name"),
        text(item, "address"),
        valid.to_string(),
        source.to_owned(),
    ]
}

async fn show(args: ShowArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    if let Some(peer) = args.peer {
        return print(
            &client.get(&path(&["v1", "peers", &peer]), &[]).await?,
            console,
        );
    }

    let own = client.get("/info", &[]).await?["identity"].take();
    if console.is_json() {
        return console.json(&own);
    }
    // JSON prints null instead, so that scripts can read it without an error.
    if own.is_null() {
        let message =
            "the node has no identity; set identity.name and identity.key_file (docs/peers.md)";
        return Err(CommandError::failed(message));
    }

    console.line(&format!("node {}", text(&own, "name")))?;
    for (name, field) in [
        ("address", "address"),
        ("NATS subject", "nats_subject"),
        ("fingerprint", "key"),
        ("public key", "public_key"),
        ("next key", "next_key"),
    ] {
        let value = text(&own, field);
        if !value.is_empty() {
            console.field(&format!("  {name}"), 14, &value)?;
        }
    }

    Ok(())
}

/// Adds a peer. Without `--fingerprint`, a user confirms the key of a document.
async fn add(args: AddArgs, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    // The node reads the document: it reaches the peer in the same way as later requests.
    let body = match &args.from {
        Some(from) => {
            let document = client
                .post("/v1/node-documents", Some(&json!({ "address": from })))
                .await?;
            from_document(&args, &document)?
        }
        None => peer_body(
            args.peer.as_deref(),
            args.address.as_deref(),
            &args.public_keys,
        ),
    };

    print(&client.post("/v1/peers", Some(&body)).await?, console)
}

fn peer_body(name: Option<&str>, address: Option<&str>, public_keys: &[String]) -> Value {
    let keys: Vec<_> = public_keys
        .iter()
        .map(|key| json!({ "public_key": key }))
        .collect();
    json!({ "name": name, "address": address, "keys": keys })
}

/// Returns the peer of a verified document whose key is the expected one, or which the user
/// confirms.
fn from_document(args: &AddArgs, document: &Value) -> Result<Value, CommandError> {
    let name = text(document, "name");
    let address = text(document, "address");
    // A verified document proves only that its keys are of one node, not of the intended one.
    if let Some(expected) = args.peer.as_ref().filter(|expected| **expected != name) {
        let message =
            format!("the document is of {name}, not of {expected}; correct the name or --from");
        return Err(CommandError::usage(message));
    }

    let keys = items(document, "keys");
    // The first key is the current one. A next key is announced by it, and needs no confirmation.
    let current = keys.first().map(|key| text(key, "id")).unwrap_or_default();
    match &args.fingerprint {
        // No question: a script must not accept another key than the stated one.
        Some(expected) if *expected != current => {
            let message = format!(
                "the key of {name} is {current}, not {expected}; compare it with the administrator \
                 of the node"
            );
            return Err(CommandError::failed(message));
        }
        Some(_) => {}
        None => confirm(&name, &address, &current)?,
    }

    // All keys of the document, so that the peer can change to its next key without a refresh.
    let keys: Vec<_> = keys.iter().map(|key| text(key, "public_key")).collect();
    Ok(peer_body(Some(&name), Some(&address), &keys))
}

/// Asks the user on the terminal.
fn confirm(name: &str, address: &str, fingerprint: &str) -> Result<(), CommandError> {
    // Without a terminal, an input from a pipe would confirm a key that no person has compared.
    if !std::io::stdin().is_terminal() {
        let message = format!(
            "the key of {name} at {address} is {fingerprint}; compare it with the administrator of \
             the node, then add --fingerprint {fingerprint}"
        );
        return Err(CommandError::usage(message));
    }

    // Standard error, because standard output has the result of the command.
    let mut terminal = std::io::stderr();
    write!(
        terminal,
        "node         {name}\naddress      {address}\nfingerprint  {fingerprint}\n\
         Compare the fingerprint with the administrator of the node (`orlog peer show` there). Add \
         this peer? [y/N] "
    )?;
    terminal.flush()?;

    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if matches!(line.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }

    Err(CommandError::failed(
        "not confirmed; the peer was not added",
    ))
}

fn print(peer: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(peer);
    }

    console.line(&format!("peer {}", text(peer, "name")))?;
    console.field("  address", 10, &text(peer, "address"))?;
    let rows: Vec<Vec<String>> = items(peer, "keys").iter().map(key_row).collect();
    console.line("")?;
    console.table(
        &["KEY", "VALID", "FROM", "UNTIL", "REVOKED", "PUBLIC KEY"],
        &rows,
        "no keys",
    )?;
    print_changes(peer, console)
}

fn key_row(key: &Value) -> Vec<String> {
    let valid = if key["valid"] == true { "yes" } else { "no" };
    let revoked = if key["revoked"] == true { "yes" } else { "no" };
    let [from, until] = ["valid_from", "valid_until"].map(|field| text(key, field));
    vec![
        text(key, "id"),
        valid.to_owned(),
        from,
        until,
        revoked.to_owned(),
        text(key, "public_key"),
    ]
}
