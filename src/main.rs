//! The command `orlog`: reads its arguments, does what they say, answers with an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    orlog::cli::main()
}
