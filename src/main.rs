//! The command `orlog`: reads its arguments, does what they say, answers with an exit code.

use std::process::ExitCode;

/// A third of the processor time under load was glibc's allocator: many small, short-lived allocations that change threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = orlog_effect::script::helper() {
        return code;
    }
    orlog::cli::main()
}
