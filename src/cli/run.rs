//! `orlog run`: a node as the configuration says, until SIGTERM or SIGINT.

use crate::app::Seams;

use super::config_flags::Flags;
use super::exit::Failure;
use super::serve::serve;

/// A configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn perform(args: Args) -> Result<(), Failure> {
    serve(args.flags.load()?, Seams::default(), |_, _| Ok(())).await
}
