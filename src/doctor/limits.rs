//! Check of process limits. Address space and mappings need no check: a store is one mapping.

use rustix::process::{Resource, getrlimit};

use super::check::CheckResult;

const CHECK: &str = "open files";
/// Recommended limit of open files: API connections, upstream connections and store files.
const RECOMMENDED: u64 = 8192;

pub(super) fn check_open_files() -> CheckResult {
    // `None` means unlimited.
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < RECOMMENDED => CheckResult::warn(
            CHECK,
            format!("at most {limit}; the API alone uses up to 4096 connections"),
            format!("raise it to {RECOMMENDED}: LimitNOFILE= in systemd, `ulimit -n` in a shell"),
        ),
        Some(limit) => CheckResult::ok(CHECK, format!("at most {limit}")),
        None => CheckResult::ok(CHECK, "no limit"),
    }
}
