//! `orlog key`: creates, shows and selects the keys that sign the requests of the command line.

use orlog_model::Clock as _;
use orlog_signature::SigningKey;
use serde_json::{Value, json};

use super::console::{Console, text};
use super::exit::CommandError;
use super::key_store::{KeyStore, holder};
use orlog_node::clock::SystemClock;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create a key, and print its public key for the configuration of a node
    New(New),
    /// Show the public keys
    Show(Show),
    /// Sign all requests with a key
    Use(Use),
    /// Prove that you hold a key, for an administrator who adds it to an actor
    Prove(Prove),
}

#[derive(Debug, clap::Args)]
pub(crate) struct New {
    /// Name of the key
    #[arg(long, default_value = "default")]
    name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Name of the key; all keys if omitted
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Use {
    /// Name of the key
    #[arg(required_unless_present = "none")]
    name: Option<String>,
    /// Sign no requests
    #[arg(long, conflicts_with = "name")]
    none: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Prove {
    /// Name or file of the key
    #[arg(default_value = "default")]
    key: String,
    /// Id of the actor
    #[arg(long, value_name = "ID")]
    actor: String,
}

pub(crate) fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    let store = KeyStore::of_user()?;
    match command {
        Command::New(args) => create(&store, &args.name, console),
        Command::Show(args) => show(&store, args.name, console),
        Command::Prove(args) => prove(&args, console),
        Command::Use(args) => {
            store.set_active(args.name.as_deref())?;
            if console.is_json() {
                return console.json(&json!({ "used": args.name }));
            }
            let Some(name) = args.name else {
                return console.line("requests are not signed");
            };
            console.line(&format!(
                "requests are signed with the key {name}, unless a token is set"
            ))
        }
    }
}

fn create(store: &KeyStore, name: &str, console: &Console) -> Result<(), CommandError> {
    let key = store.create(name)?;
    // Not used yet: requests are signed with it only after `orlog key use`.
    let view = view(store, name, &key, false);
    if console.is_json() {
        return console.json(&view);
    }

    console.line(&format!("key {name} created: {}", text(&view, "file")))?;
    console.line(&format!(
        "\n  id          {}\n  public key  {}",
        key.key_id(),
        key.public_key()
    ))?;

    console.line(&format!(
        "\nEnroll the key with an invitation, `orlog actor enroll`, or add the actor to the \
         configuration of the node, with its\n\
         roles and tenants, and reload it:\n\n  \
         [auth.actors.<id>]\n  keys = [\"{}\"]\n  roles = [\"operator\"]\n  tenants = [\"*\"]\n\n\
         `orlog key use {name}` signs all requests with this key.",
        key.public_key()
    ))
}

fn show(store: &KeyStore, name: Option<String>, console: &Console) -> Result<(), CommandError> {
    let active = store.active()?;
    let names = name.map_or_else(|| store.names(), |name| Ok(vec![name]))?;
    let view = |name: &String| {
        Ok(view(
            store,
            name,
            &store.get(name)?,
            active.as_ref() == Some(name),
        ))
    };

    let views = names
        .iter()
        .map(view)
        .collect::<Result<Vec<Value>, CommandError>>()?;
    if console.is_json() {
        return console.json(&Value::from(views));
    }

    let rows: Vec<_> = views.iter().map(key_row).collect();
    console.table(
        &["NAME", "USED", "ID", "PUBLIC KEY"],
        &rows,
        "no keys; `orlog key new` creates one",
    )
}

fn key_row(view: &Value) -> Vec<String> {
    let used = if view["used"] == true { "yes" } else { "" };
    vec![
        text(view, "name"),
        used.to_owned(),
        text(view, "id"),
        text(view, "public_key"),
    ]
}

fn prove(args: &Prove, console: &Console) -> Result<(), CommandError> {
    let key = holder(&args.key)?;
    let public = key.public_key().to_string();
    let proof = possession_proof(&key, &args.actor);
    if console.is_json() {
        return console.json(&json!({ "actor": args.actor, "public_key": public, "proof": proof }));
    }

    console.line(&format!(
        "orlog actor key add {} {public} --proof {proof}",
        args.actor
    ))
}

/// Returns the proof that an actor holds a key, as of now.
pub(crate) fn possession_proof(key: &SigningKey, actor: &str) -> String {
    // The time is signed too, so that the node can reject an old proof.
    key.prove_possession(actor, SystemClock.now().as_millis().div_euclid(1000))
        .to_string()
}

fn view(store: &KeyStore, name: &str, key: &SigningKey, used: bool) -> Value {
    json!({
        "name": name,
        "id": key.key_id().to_string(),
        "public_key": key.public_key().to_string(),
        "file": store.file(name).display().to_string(),
        "used": used,
    })
}
