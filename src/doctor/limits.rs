//! What the system lets a process have. (Address space and mappings are no limit here: a store is one mapping.)

use rustix::process::{Resource, getrlimit};

use super::check::Finding;

const CHECK: &str = "open files";
/// Connections of the API, connections to upstreams, and the files of stores.
const WANTED: u64 = 8192;

pub(super) fn open_files() -> Finding {
    // `None` is no limit.
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < WANTED => Finding::warn(
            CHECK,
            format!("at most {limit}; the API alone takes up to 4096 connections"),
            format!("raise it to {WANTED}: LimitNOFILE= in systemd, `ulimit -n` in a shell"),
        ),
        Some(limit) => Finding::ok(CHECK, format!("at most {limit}")),
        None => Finding::ok(CHECK, "no limit"),
    }
}
