//! Node for which a request is signed: the authority that the signature covers, or the name of the
//! node.
//!
//! A name in the DNS leads to one node or cluster. An IP address or a loopback name can be the
//! address of many nodes, so that one of them could send a recorded request to another one that
//! knows the same key. Such a request needs the signed name of this node, or the address of its own
//! connection.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header;
use axum::http::uri::Authority;
use orlog_signature::NODE_HEADER;

use super::allowed_hosts::AllowedHosts;
use super::context::ApiState;
use super::request_info::{LocalAddress, is_over_nats};

/// Checks whether a request with a valid signature is signed for this node.
///
/// # Errors
/// The reason why it is not, and the remedy.
pub(super) fn check(api: &ApiState, request: &Request) -> Result<(), String> {
    let own = api.shared.app.config.identity_name();
    let own = own
        .as_ref()
        .map(orlog_model::NodeName::as_str)
        .unwrap_or_default();

    // A signature must cover this header, so that it decides without the address.
    if let Some(named) = request.headers().get(NODE_HEADER) {
        return if named.as_bytes() == own.as_bytes() {
            Ok(())
        } else {
            Err(format!(
                "the request is signed for another node: {NODE_HEADER} is not {own:?}"
            ))
        };
    }

    let local = request.extensions().get::<LocalAddress>().map(|it| it.0);
    // Over NATS, the signed authority is the name of this node already.
    let Some(local) = local.filter(|_| !is_over_nats(request)) else {
        return Ok(());
    };

    let host = || {
        let host = request.headers().get(header::HOST)?;
        host.to_str().ok()?.parse::<Authority>().ok()
    };
    let authority = request.uri().authority().cloned().or_else(host);

    match authority {
        Some(authority) if is_unique(&authority, local, &api.shared.hosts) => Ok(()),
        _ => Err(format!(
            "the signed address can be that of several nodes, and the connection arrived at \
             {local}; sign the header {NODE_HEADER} with the name of this node ({own:?}), use its \
             name in the DNS, or add the address to http.allowed_hosts"
        )),
    }
}

/// Returns whether an authority is the address of this node alone.
fn is_unique(authority: &Authority, local: SocketAddr, hosts: &AllowedHosts) -> bool {
    let host = authority.host().to_ascii_lowercase();
    let name = host.trim_matches(['[', ']']);
    let is_loopback_name = name == "localhost" || name.ends_with(".localhost");
    let address = name.parse::<IpAddr>().ok();
    if address.is_none() && !is_loopback_name {
        return true;
    }
    if hosts.is_configured(&host, authority.port_u16()) {
        return true;
    }

    let own = local.ip().to_canonical();
    let is_own = address.map_or(own.is_loopback(), |address| address.to_canonical() == own);

    let own_port = local.port();
    // An authority without a port has that of its scheme.
    let is_own_port = authority
        .port_u16()
        .map_or(matches!(own_port, 80 | 443), |port| port == own_port);
    is_own && is_own_port
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlog_node::config::Config;

    #[test]
    fn address_is_that_of_one_node_if_the_connection_arrived_there() {
        let mut config = Config::default();
        config.cluster.advertise_url = "http://10.0.0.9:7070".to_owned();
        config.http.allowed_hosts = vec!["10.9.9.9".parse().unwrap()];
        let hosts = AllowedHosts::new(&config);
        let check = |authority: &str, local: &str| {
            is_unique(&authority.parse().unwrap(), local.parse().unwrap(), &hosts)
        };
        for (authority, local) in [
            ("orlog.example.com", "10.0.0.5:7070"),
            ("127.0.0.1:7070", "127.0.0.1:7070"),
            ("localhost:7070", "[::ffff:127.0.0.1]:7070"),
            ("[::1]:7070", "[::1]:7070"),
            ("10.0.0.5:7070", "10.0.0.5:7070"),
            ("10.0.0.5", "10.0.0.5:443"),
            ("10.0.0.9:7070", "10.0.0.5:7070"),
            ("10.9.9.9", "10.0.0.5:7070"),
        ] {
            assert!(check(authority, local), "{authority} at {local}");
        }
        for (authority, local) in [
            ("127.0.0.1:7070", "127.0.0.1:7071"),
            ("127.0.0.1:7070", "10.0.0.5:7070"),
            ("localhost:7070", "10.0.0.5:7070"),
            ("localhost", "127.0.0.1:7070"),
            ("10.0.0.5:7070", "10.0.0.6:7070"),
            ("10.0.0.9:7071", "10.0.0.5:7071"),
            ("node.localhost:7070", "127.0.0.1:7071"),
        ] {
            assert!(!check(authority, local), "{authority} at {local}");
        }
    }
}
