//! Check of process limits. Address space and mappings need no check: a store is one mapping.

use rustix::process::{Resource, getrlimit};

use super::check::CheckResult;

const CHECK: &str = "open files";
/// Recommended limit of open files: API connections, upstream connections and store files.
const RECOMMENDED: u64 = 8192;

/// Checks the hard limit: a node raises its soft limit to it.
pub(super) fn check_open_files() -> CheckResult {
    // `None` means unlimited.
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < RECOMMENDED => CheckResult::warn(
            CHECK,
            format!(
                "at most {limit}; the number of API connections is reduced to fit \
                 (http.max_connections)"
            ),
            format!("raise it to {RECOMMENDED}: LimitNOFILE= in systemd, `ulimit -Hn` in a shell"),
        ),
        Some(limit) => CheckResult::ok(CHECK, format!("at most {limit}")),
        None => CheckResult::ok(CHECK, "no limit"),
    }
}
