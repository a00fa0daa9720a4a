//! `cargo xtask` runs the chores of this repository that are not worth a shell script.
//!
//! `tidy` checks the house rules that no compiler checks; `deny` checks what the dependencies bring in. Both print one
//! finding a block, as `file:line`, reason and remedy, and exit with 1 if there is any, with 2 if they could not run.

mod deny;
mod error;
mod rules;
mod source;
mod tidy;
mod tree;
mod violation;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <command>

commands:
  tidy    check the house rules (sizes, floors, circles, walls, texts, docs)
  deny    check licences, banned and doubled crates, and sources against deny.toml";

fn main() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root of the checkout");
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy::run(root),
        Some("deny") => deny::run(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
