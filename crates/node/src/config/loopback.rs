//! Loopback addresses: connections to them stay on this machine and need no encryption.

use std::net::IpAddr;

/// Returns whether the host of a URL is loopback. A malformed URL is not.
#[must_use]
pub fn is_loopback_url(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(is_loopback_host))
}

/// Returns whether other machines cannot change the response to a request: https, or http to this
/// machine.
#[must_use]
pub fn is_protected(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|parsed| match parsed.scheme() {
        "https" => true,
        "http" => is_loopback_url(url),
        _ => false,
    })
}

/// Returns whether a host name or address is loopback.
fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        for url in [
            "http://localhost:1/a",
            "nats://127.0.0.1:4222",
            "tls://[::1]:4222",
            "http://127.8.0.1",
        ] {
            assert!(is_loopback_url(url), "{url}");
        }
        for url in [
            "http://localhost.example.com",
            "nats://nats:4222",
            "http://127.0.0.1@evil.example",
            "localhost",
            "",
        ] {
            assert!(!is_loopback_url(url), "{url}");
        }
    }
}
