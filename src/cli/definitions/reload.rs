//! `orlog reload`: a node reads its configuration, definitions and upstreams again.

use crate::cli::client::{ApiClient, ServerArgs};
use crate::cli::console::Console;
use crate::cli::exit::CommandError;

use super::deploy::{rejection, report};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User name recorded in the deployment
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    user: Option<String>,
    /// Activate definitions with a lower version than the active ones
    #[arg(long)]
    allow_downgrade: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let client = ApiClient::new(&args.server)?;
    let mut query = vec![("allow_downgrade", args.allow_downgrade.to_string())];
    query.extend(args.user.map(|user| ("user", user)));
    match client.send_query("/admin/reload", &query).await {
        Ok(plan) if console.is_json() => console.json(&plan),
        Ok(plan) => report(&plan, console),
        Err(trouble) => Err(rejection(&client, trouble, None, console)?),
    }
}
