//! `orlog timers`: lists timers by due time.

use crate::cli::console::{Console, text};
use crate::cli::exit::CommandError;
use crate::cli::list::PageArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    page: PageArgs,
}

pub(crate) async fn run(args: Args, console: &Console) -> Result<(), CommandError> {
    let found = args.page.fetch("/v1/timers", &[]).await?;
    let row = |timer: &_| {
        ["due", "name", "saga", "correlation"]
            .map(|field| text(timer, field))
            .to_vec()
    };

    found.print(
        &["DUE", "NAME", "SAGA", "CORRELATION"],
        row,
        "no timers",
        console,
    )
}
