//! URLs of token issuers: the network must not be able to change their responses.

use std::net::IpAddr;

/// Returns whether other machines cannot change the response to a request: https, or http to this machine.
pub(crate) fn is_protected(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_local = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        match url.scheme() {
            "https" => true,
            "http" => is_local,
            _ => false,
        }
    })
}
