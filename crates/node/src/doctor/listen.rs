//! Check of the listen address of the API.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::check::CheckResult;
use crate::config::Config;

const CHECK: &str = "listen";

/// Checks the listen address. `runs`: a node uses the data directory, and therefore also the
/// address.
pub(super) fn check_listen(config: &Config, runs: bool) -> CheckResult {
    let address = config.listen;
    // The listener closes at once, so that a node can use the address.
    match TcpListener::bind(address) {
        Ok(_) => CheckResult::ok(CHECK, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && runs => {
            CheckResult::ok(CHECK, format!("{address} is in use by the running node"))
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    let port = address.port();
                    format!(
                        "find the process with `ss -ltnp sport = :{port}` and stop it, or set \
                         `listen` to another port"
                    )
                }
                ErrorKind::AddrNotAvailable => {
                    "set `listen` to an address of this machine".to_owned()
                }
                ErrorKind::PermissionDenied => {
                    "set `listen` to a port above 1023, or give the process CAP_NET_BIND_SERVICE"
                        .to_owned()
                }
                _ => "set `listen` to another address".to_owned(),
            };
            CheckResult::error(CHECK, format!("cannot bind {address}: {error}"), remedy)
        }
    }
}
