//! The command `orlog`: parses its arguments, executes the command and returns an exit code.

use std::process::ExitCode;

/// Replaces glibc's allocator, which used a third of the CPU time under load: many small,
/// short-lived allocations that change threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Helper processes of scripts are this program with a hidden first argument. They must not
    // reach the parser of the command line, and start no threads before they restrict themselves.
    #[cfg(feature = "script")]
    if let Some(code) = orlog_effect::script::run_if_helper() {
        return code;
    }
    orlog::cli::run()
}
