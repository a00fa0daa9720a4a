//! `orlog run`: runs a node with its configuration until SIGTERM or SIGINT.

use orlog_node::app::AppOverrides;

use super::config_flags::ConfigFlags;
use super::exit::CommandError;
use super::serve::serve;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Continue without durable data that is missing from the data directory or from a stream
    /// (OR0061)
    #[arg(long)]
    accept_data_loss: bool,
}

pub(crate) async fn run(args: Args) -> Result<(), CommandError> {
    let Args {
        flags,
        accept_data_loss,
    } = args;
    let config = flags.load()?;
    let config_source = Some(flags.source(&config));
    let overrides = AppOverrides {
        accept_data_loss,
        config_source,
        ..AppOverrides::default()
    };

    Box::pin(serve(config, overrides, |_, _| Ok(()))).await
}
