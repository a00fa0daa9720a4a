//! `orlog run`: runs a node with its configuration until SIGTERM or SIGINT.

use crate::app::AppOverrides;

use super::config_flags::ConfigFlags;
use super::exit::CommandError;
use super::serve::serve;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Continue without durable data that is missing from the data directory or from a stream (OR0061)
    #[arg(long)]
    accept_data_loss: bool,
}

pub(crate) async fn run(args: Args) -> Result<(), CommandError> {
    let overrides = AppOverrides { accept_data_loss: args.accept_data_loss, ..AppOverrides::default() };
    serve(args.flags.load()?, overrides, |_, _| Ok(())).await
}
