//! `orlog message`: sends messages to other contexts, and reads and ends those that this context
//! received.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::client::{ApiClient, ServerArgs, fields, path};
use crate::cli::console::{Console, items, text};
use crate::cli::exit::{CommandError, CommandExit};
use crate::cli::list::PageArgs;
use crate::cli::wait::{WAIT_TIMEOUT, WaitArgs, not_ended};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a message to a context of this node or of another one
    Send(SendArgs),
    /// List the messages of the inbox or of the outbox, or of a conversation
    List(ListArgs),
    /// Show a message with its body, lines and result
    Show(MessageArgs),
    /// Acknowledge a received message
    Acknowledge(ControlArgs),
    /// End a received message with a result for its sender
    Process(ProcessArgs),
    /// End a received message with an error for its sender
    Reject(RejectArgs),
    /// Cancel a sent message
    Cancel(ControlArgs),
}

/// Received or sent messages.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MessageBox {
    In,
    Out,
}

/// Type of a message without a flow.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BodyKind {
    Chat,
    Mail,
}

/// Status of a message.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum MessageStatus {
    Dispatched,
    Acknowledged,
    Processed,
    Error,
}

/// Type of a message.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    Chat,
    Mail,
    Job,
}

/// Format of a body.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Md,
    Html,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Receiver: CONTEXT@NODE, or CONTEXT on this node
    to: String,
    /// Text of the message; `-` reads standard input
    #[arg(required_unless_present = "flow")]
    body: Option<String>,
    /// File of a flow, which the receiver executes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["body", "kind", "format"])]
    flow: Option<PathBuf>,
    /// Type of a message without a flow
    #[arg(long = "type", value_enum, default_value = "chat")]
    kind: BodyKind,
    /// Format of the text
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Subject
    #[arg(long)]
    subject: Option<String>,
    /// Id of the conversation [default: the id of the message]
    #[arg(long)]
    thread: Option<String>,
    /// Maximum time until the delivery [default: 7d]
    #[arg(long, value_name = "DURATION")]
    delivery_timeout: Option<String>,
    /// Maximum time from the delivery to the acknowledgement [default: 1d]
    #[arg(long, value_name = "DURATION")]
    acknowledgement_timeout: Option<String>,
    /// Maximum time from the acknowledgement to the result [default: 7d for a flow]
    #[arg(long, value_name = "DURATION")]
    result_timeout: Option<String>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Id of the message and idempotency key of the request [default: a new id]
    #[arg(long, visible_alias = "idempotency-key")]
    id: Option<String>,
    /// User name recorded in the message
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Received or sent messages [default: received; with --thread, both]
    #[arg(long = "box", value_enum)]
    mailbox: Option<MessageBox>,
    /// Filter by status
    #[arg(long, value_enum)]
    status: Option<MessageStatus>,
    /// Filter by type
    #[arg(long = "type", value_enum)]
    kind: Option<Kind>,
    /// Conversation: its messages with their bodies, oldest first
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MessageArgs {
    /// Id of the message; that of a received one starts with `in-`
    message: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    which: MessageArgs,
    /// Idempotency key of the request
    #[arg(long)]
    id: Option<String>,
    /// Reason recorded in the history
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    user: UserArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArgs {
    #[command(flatten)]
    which: MessageArgs,
    /// Result in JSON
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    #[command(flatten)]
    user: UserArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    which: MessageArgs,
    /// Reason for the sender
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    user: UserArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UserArgs {
    /// User name recorded in the history
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
}

pub(crate) async fn run(command: Command, console: &Console) -> Result<(), CommandError> {
    match command {
        Command::Send(args) => send(args, console).await,
        Command::List(args) => list(args, console).await,
        Command::Show(args) => print(&args.client()?.get(&args.path(&[]), &[]).await?, console),
        Command::Acknowledge(args) => control(args, "acknowledge", console).await,
        Command::Cancel(args) => control(args, "cancel", console).await,
        Command::Process(ProcessArgs {
            which,
            result,
            user,
        }) => {
            let invalid = |error| {
                CommandError::usage(format!("--result: {error}; a text needs quotes in JSON"))
            };
            let result = result
                .map(|result| serde_json::from_str::<Value>(&result))
                .transpose();
            let body = fields([
                ("result", json!(result.map_err(invalid)?)),
                ("user", json!(user.user)),
            ]);

            change(&which, "process", body.into(), console).await
        }
        Command::Reject(RejectArgs {
            which,
            reason,
            user,
        }) => {
            let body = fields([("reason", json!(reason)), ("user", json!(user.user))]);
            change(&which, "reject", body.into(), console).await
        }
    }
}

impl MessageArgs {
    fn client(&self) -> Result<ApiClient, CommandError> {
        ApiClient::new(&self.server)
    }

    fn path(&self, rest: &[&str]) -> String {
        path(&[&["v1", "messages", &self.message], rest].concat())
    }
}

async fn send(args: SendArgs, console: &Console) -> Result<(), CommandError> {
    let body = message(&args)?;
    // A repetition of the request must not send a second message.
    let id = args.id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let client = ApiClient::new(&args.server)?.with_idempotency_key(Some(&id))?;
    let waiting = args.wait.begin();
    let sent = async {
        loop {
            // The same request again: its key makes it the same message, and it waits for the next
            // part.
            let query: Vec<_> = waiting
                .map(|waiting| waiting.next_part())
                .into_iter()
                .collect();
            let sent = client
                .post_query("/v1/messages", &query, &body, WAIT_TIMEOUT)
                .await?;

            if has_ended(&sent) || waiting.is_none_or(|waiting| waiting.is_over()) {
                return Ok(sent);
            }
        }
    };

    // Without a response, the id is the only way to find out whether the message was sent.
    let advice = format!(
        "the message may be sent; repeat the command with --id {id}, which sends it only once"
    );
    let sent = sent
        .await
        .map_err(|error: CommandError| error.advise_if_unavailable(&advice))?;
    print(&sent, console)?;

    // A cancelled message also has the status `error`.
    match sent["status"].as_str() {
        Some("error") if sent["cancelled"] == true => Err(CommandError::new(
            CommandExit::Rejected,
            "the message was cancelled",
        )),
        Some("error") => Err(CommandError::failed(format!(
            "the message failed: {}",
            failure(&sent)
        ))),
        _ if waiting.is_some() && !has_ended(&sent) => {
            let status = format!("the message is {}", text(&sent, "status"));
            Err(not_ended(
                &status,
                &format!("wait longer, or `orlog message show {id}`"),
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the body of the request that sends a message.
fn message(args: &SendArgs) -> Result<Value, CommandError> {
    let timeouts = fields([
        ("delivery", json!(args.delivery_timeout)),
        ("acknowledgement", json!(args.acknowledgement_timeout)),
        ("result", json!(args.result_timeout)),
    ]);
    let mut body = fields([
        ("to", json!(args.to)),
        ("subject", json!(args.subject)),
        ("thread", json!(args.thread)),
        ("timeouts", Value::Object(timeouts)),
        ("user", json!(args.user)),
    ]);
    if let Some(file) = &args.flow {
        body.extend(fields([
            ("type", json!("job")),
            // Checked here, as in `orlog flow submit`: errors have the lines of the file.
            ("flow", super::flows::read(file)?),
        ]));
        return Ok(body.into());
    }

    let text = match args.body.as_deref() {
        Some("-") => std::io::read_to_string(std::io::stdin())?,
        text => text.unwrap_or_default().to_owned(),
    };
    body.extend(fields([
        ("type", json!(name(&args.kind))),
        ("format", json!(name(&args.format))),
        ("body", json!(text)),
    ]));

    Ok(body.into())
}

/// Returns the name of an option in the API.
fn name(value: &impl clap::ValueEnum) -> Option<String> {
    value
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
}

fn has_ended(message: &Value) -> bool {
    matches!(message["status"].as_str(), Some("processed" | "error"))
}

fn failure(message: &Value) -> String {
    let failure = &message["failure"];
    if failure.is_null() {
        return String::new();
    }
    format!("{}: {}", text(failure, "code"), text(failure, "message"))
}

async fn list(args: ListArgs, console: &Console) -> Result<(), CommandError> {
    let is_conversation = args.thread.is_some();
    let is_outbox = matches!(args.mailbox, Some(MessageBox::Out));
    let query = [
        ("box", args.mailbox.as_ref().and_then(name)),
        ("status", args.status.as_ref().and_then(name)),
        ("type", args.kind.as_ref().and_then(name)),
        ("thread", args.thread),
    ];
    let found = args.page.fetch("/v1/messages", &query).await?;

    let (head, fields) = match (is_conversation, is_outbox) {
        (true, _) => (
            ["SENT", "FROM", "USER", "STATUS", "ID", "BODY"],
            ["sent_at", "from", "user", "status", "id", "body"],
        ),
        (false, false) => (
            ["ID", "TYPE", "FROM", "STATUS", "SENT", "SUBJECT"],
            ["id", "type", "from", "status", "sent_at", "subject"],
        ),
        (false, true) => (
            ["ID", "TYPE", "TO", "STATUS", "SENT", "SUBJECT"],
            ["id", "type", "to", "status", "sent_at", "subject"],
        ),
    };
    let row = |item: &Value| fields.map(|field| text(item, field)).into();

    found.print(&head, row, "no messages", console)
}

async fn control(args: ControlArgs, verb: &str, console: &Console) -> Result<(), CommandError> {
    let ControlArgs {
        which,
        id,
        reason,
        user,
    } = args;
    let body = fields([
        ("id", json!(id)),
        ("user", json!(user.user)),
        ("reason", json!(reason)),
    ]);

    change(&which, verb, body.into(), console).await
}

async fn change(
    which: &MessageArgs,
    verb: &str,
    body: Value,
    console: &Console,
) -> Result<(), CommandError> {
    print(
        &which
            .client()?
            .post(&which.path(&[verb]), Some(&body))
            .await?,
        console,
    )
}

fn print(message: &Value, console: &Console) -> Result<(), CommandError> {
    if console.is_json() {
        return console.json(message);
    }

    console.status(
        &format!("{}: ", text(message, "id")),
        &text(message, "status"),
        "",
    )?;

    let times = ["delivered_at", "acknowledged_at", "ended_at"].map(|field| text(message, field));
    let [delivered, acknowledged, ended] = times;
    for (name, value) in [
        ("type", text(message, "type")),
        ("from", text(message, "from")),
        ("to", text(message, "to")),
        ("subject", text(message, "subject")),
        ("thread", text(message, "thread")),
        ("user", text(message, "user")),
        ("sent", text(message, "sent_at")),
        ("delivered", delivered),
        ("acknowledged", acknowledged),
        ("ended", ended),
        ("changed by", text(message, "by")),
        ("failure", failure(message)),
        ("result", text(message, "result")),
        ("flow", text(message, "flow")),
    ] {
        if !value.is_empty() {
            console.field(&format!("  {name}"), 15, &value)?;
        }
    }

    let body = text(message, "body");
    if !body.is_empty() {
        console.line("")?;
        console.line(&body)?;
    }

    for line in items(message, "lines") {
        console.line(&format!("{}  {}", text(line, "at"), text(line, "text")))?;
    }
    Ok(())
}
