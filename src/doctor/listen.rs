//! Where the API is served: whether the address can be had.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::check::Finding;
use crate::config::Config;

const CHECK: &str = "listen";

/// `runs`: a node has the data folder open, and then the address too.
pub(super) fn examine(config: &Config, runs: bool) -> Finding {
    let address = config.listen;
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(CHECK, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && runs => {
            Finding::ok(CHECK, format!("{address} is taken, as it is while the node runs"))
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => {
                    let port = address.port();
                    format!(
                        "`ss -ltnp sport = :{port}` names who has it; end that, or set `listen` to another port"
                    )
                }
                ErrorKind::AddrNotAvailable => "set `listen` to an address of this machine".to_owned(),
                ErrorKind::PermissionDenied => {
                    "set `listen` to a port above 1023, or give the process CAP_NET_BIND_SERVICE".to_owned()
                }
                _ => "set `listen` to another address".to_owned(),
            };
            Finding::bad(CHECK, format!("{address} cannot be had: {error}"), remedy)
        }
    }
}
