//! `orlog actor`: lists, creates, invites and enrolls actors, and changes their keys.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::{Value, json};

use super::{joined, print_changes};
use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;
use crate::cli::key::possession_proof;
use crate::cli::key_store::holder;
use crate::cli::list::PageArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List actors
    List(ListArgs),
    /// Show an actor: its keys, its addresses and its last changes
    Show(ActorArgs),
    /// Create an actor
    Create(CreateArgs),
    /// Add or revoke a key of an actor
    #[command(subcommand)]
    Key(KeyCommand),
    /// Invite an actor: prints a token that enrolls one key
    Invite(InviteArgs),
    /// Enroll a key with the token of an invitation
    Enroll(EnrollArgs),
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
pub(crate) struct ActorArgs {
    /// Id of the actor
    actor: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    which: ActorArgs,
    /// Key: the name or the file of the private key, or the public key of a key of yours
    #[arg(long = "public-key", value_name = "KEY")]
    public_keys: Vec<String>,
    /// Address at which the actor receives messages, for example a URL
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
}

/// Properties of a key.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct NewKeyArgs {
    /// Start of its validity (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    valid_from: Option<String>,
    /// End of its validity (RFC 3339)
    #[arg(long, value_name = "TIME")]
    valid_until: Option<String>,
    /// Proof of the holder of the private key, for a public key: see `orlog key prove`
    #[arg(long, value_name = "PROOF")]
    proof: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AddKeyArgs {
    #[command(flatten)]
    which: ActorArgs,
    /// Key: the name or the file of the private key, or the public key (ed25519:…)
    #[arg(value_name = "KEY")]
    added: String,
    #[command(flatten)]
    key: NewKeyArgs,
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
    which: ActorArgs,
    /// Id of the key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key_id: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InviteArgs {
    #[command(flatten)]
    which: ActorArgs,
    /// Validity of the invitation [default: 24h]
    #[arg(long, value_name = "DURATION")]
    expires_in: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EnrollArgs {
    #[command(flatten)]
    which: ActorArgs,
    /// Key: the name or the file of the private key, or the public key (ed25519:…)
    #[arg(value_name = "KEY")]
    added: String,
    #[command(flatten)]
    key: NewKeyArgs,
    /// File with the token of the invitation [default: value of `ORLOG_INVITATION`]
    #[arg(long, value_name = "FILE")]
    invitation_file: Option<PathBuf>,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::List(args) => list(args, console).await,
        Command::Show(args) => print(&args.client()?.get(&args.path(&[]), &[]).await?, console),
        Command::Create(CreateArgs {
            which,
            public_keys,
            addresses,
        }) => {
            // Each key needs its proof of possession: a public key alone can be copied from another
            // actor.
            let keys = public_keys
                .iter()
                .map(|added: &String| NewKeyArgs::default().body(&which.actor, added))
                .collect::<Result<Vec<_>, _>>()?;
            let body = json!({ "id": which.actor, "keys": keys, "addresses": addresses });
            print(
                &which.client()?.post("/v1/actors", Some(&body)).await?,
                console,
            )
        }
        Command::Key(KeyCommand::Add(AddKeyArgs {
            which,
            added,
            key,
            replaces,
            overlap,
        })) => {
            let body = fields([
                // The proof contains the id of the actor, so that it cannot be used for another
                // one.
                ("key", key.body(&which.actor, &added)?),
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
        Command::Invite(InviteArgs { which, expires_in }) => {
            let body = fields([("expires_in", json!(expires_in))]);
            let invited = which
                .client()?
                .post(&which.path(&["invitation"]), Some(&body.into()))
                .await?;
            if console.is_json() {
                return console.json(&invited);
            }

            let until = text(&invited, "expires_at");
            console.line(&format!(
                "{}: invited until {until}; token of the invitation:",
                which.actor
            ))?;
            console.line(&text(&invited, "token"))
        }
        Command::Enroll(EnrollArgs {
            which,
            added,
            key,
            invitation_file,
        }) => {
            let token = invitation(invitation_file.as_deref())?;
            let body = json!({ "token": token, "key": key.body(&which.actor, &added)? });
            print(
                &which
                    .client()?
                    .post(&which.path(&["enroll"]), Some(&body))
                    .await?,
                console,
            )
        }
    }
}

impl ActorArgs {
    fn client(&self) -> Result<ApiClient, CommandError> {
        ApiClient::new(&self.server)
    }

    fn path(&self, rest: &[&str]) -> String {
        path(&[&["v1", "actors", &self.actor], rest].concat())
    }
}

impl NewKeyArgs {
    /// Returns the key in a request, with the proof that the actor holds its private key.
    fn body(self, actor: &str, added: &str) -> Result<Value, CommandError> {
        let Self {
            valid_from,
            valid_until,
            proof,
        } = self;
        // With a proof, the private key may be on the machine of its holder. Without one, this
        // command creates the proof and needs the private key.
        let (public_key, proof) = if let Some(proof) = proof {
            (added.to_owned(), proof)
        } else {
            let key = holder(added)?;
            (key.public_key().to_string(), possession_proof(&key, actor))
        };

        let body = fields([
            ("public_key", json!(public_key)),
            ("proof", json!(proof)),
            ("valid_from", json!(valid_from)),
            ("valid_until", json!(valid_until)),
        ]);

        Ok(body.into())
    }
}

/// Returns the token of an invitation. It is never an argument, because other users can read
/// arguments.
fn invitation(file: Option<&Path>) -> Result<String, CommandError> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            CommandError::usage(format!(
                "cannot read --invitation-file {}: {error}",
                file.display()
            ))
        })?,
        None => std::env::var("ORLOG_INVITATION").unwrap_or_default(),
    };

    let token = text.trim().to_owned();
    if token.is_empty() {
        return Err(CommandError::usage(
            "no invitation; write its token into a file and state --invitation-file, or set \
             ORLOG_INVITATION",
        ));
    }
    Ok(token)
}

async fn list(args: ListArgs, console: &Console) -> Result<(), CommandError> {
    let found = args.page.fetch("/v1/actors", &[]).await?;
    found.print(
        &["ID", "VALID KEYS", "ADDRESSES", "INVITED UNTIL"],
        actor_row,
        "no actors",
        console,
    )
}

fn actor_row(item: &Value) -> Vec<String> {
    let valid = items(item, "keys")
        .iter()
        .filter(|key| key["valid"] == true)
        .count();
    vec![
        text(item, "id"),
        valid.to_string(),
        joined(item, "addresses"),
        text(item, "invited_until"),
    ]
}

fn print(actor: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(actor);
    }

    console.line(&format!("actor {}", text(actor, "id")))?;
    for (name, value) in [
        ("addresses", joined(actor, "addresses")),
        ("invited until", text(actor, "invited_until")),
    ] {
        if !value.is_empty() {
            console.field(&format!("  {name}"), 16, &value)?;
        }
    }

    let rows: Vec<Vec<String>> = items(actor, "keys").iter().map(key_row).collect();
    console.line("")?;
    console.table(
        &["KEY", "VALID", "FROM", "UNTIL", "REVOKED", "PUBLIC KEY"],
        &rows,
        "no keys",
    )?;
    print_changes(actor, console)
}

fn key_row(key: &Value) -> Vec<String> {
    let valid = if key["valid"] == true { "yes" } else { "no" };
    let times =
        ["valid_from", "valid_until", "revoked_at", "public_key"].map(|field| text(key, field));
    [text(key, "id"), valid.to_owned()]
        .into_iter()
        .chain(times)
        .collect()
}
