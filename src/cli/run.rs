//! `orlog run`: runs a node with its configuration until SIGTERM or SIGINT.

use crate::app::AppOverrides;

use super::config_flags::ConfigFlags;
use super::exit::CommandError;
use super::serve::serve;

/// Configuration of the node.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: ConfigFlags,
}

pub(super) async fn run(args: Args) -> Result<(), CommandError> {
    serve(args.flags.load()?, AppOverrides::default(), |_, _| Ok(())).await
}
