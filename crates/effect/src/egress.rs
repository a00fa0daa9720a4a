//! Where requests may go whose address a payload or a redirect names.
//!
//! What the configuration writes out is the operator's decision and is not questioned. Anything else must be in the
//! allow-list, where there is one, and must not lead to a private, loopback, link-local or otherwise special address.
//! Names are judged by what they resolve to, and the connection is made to exactly the addresses that were judged, so a
//! name that resolves differently the second time gains nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use orlog_model::TenantId;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The rules of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Hosts; any public one where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Host>>,
    /// Hosts for single tenants, in place of `allow`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<TenantId, Vec<Host>>,
    /// Whether private addresses may be reached.
    pub private: bool,
}

/// A host of the allow-list: `hooks.acme.com`, `*.acme.com` (any name below it), `10.1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

/// An address that may not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not in the list.
    #[error("the host {0:?} is not in the allow-list (egress.allow)")]
    NotAllowed(String),
    /// A special address.
    #[error("{host} is {address}, which is not a public address (egress.private = true allows it)")]
    Private {
        /// What was asked for.
        host: String,
        /// What it is.
        address: IpAddr,
    },
    /// The URL has no host.
    #[error("the address has no host")]
    NoHost,
}

impl Egress {
    /// Judges a URL before a connection is made. What its name resolves to is judged by the resolver of the client.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, tenant: &TenantId, url: &Url) -> Result<(), Refused> {
        self.judge_url(self.tenants.get(tenant).or(self.allow.as_ref()), url)
    }

    /// The same where no tenant is meant.
    pub(crate) fn check_for_all(&self, url: &Url) -> Result<(), Refused> {
        self.judge_url(self.allow.as_ref(), url)
    }

    fn judge_url(&self, allowed: Option<&Vec<Host>>, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().ok_or(Refused::NoHost)?.trim_matches(['[', ']']);
        if allowed.is_some_and(|allowed| !allowed.iter().any(|pattern| pattern.covers(host))) {
            return Err(Refused::NotAllowed(host.to_owned()));
        }
        match host.parse() {
            Ok(address) if !self.private && !is_public(address) => {
                Err(Refused::Private { host: host.to_owned(), address })
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Host {
    fn covers(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match self.0.strip_prefix('*') {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => host == self.0,
        }
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':');
        if name.is_empty()
            || !name.bytes().all(fits)
            || (name.contains(':') && name.parse::<Ipv6Addr>().is_err())
        {
            return Err(format!("{text:?} is no host; write for example hooks.acme.com or *.acme.com"));
        }
        Ok(Self(lower))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Resolves names for a client and refuses those that lead to special addresses, in part too.
pub(crate) struct Guard;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            judge(name.as_str(), &found)?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Judges what a name resolved to.
pub(crate) fn judge(host: &str, found: &[SocketAddr]) -> Result<(), Refused> {
    match found.iter().find(|found| !is_public(found.ip())) {
        Some(bad) => Err(Refused::Private { host: host.to_owned(), address: bad.ip() }),
        None => Ok(()),
    }
}

/// The refusal behind an error of a client with a [`Guard`].
pub(crate) fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Refused> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}

/// Whether an address is one of the public internet: none of the IANA special-purpose registries.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !special
}

/// Only global unicast is public, and what carries an IPv4 address is judged by that.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Teredo, benchmarking, ORCHID and the like; documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public_however_they_are_written() {
        for text in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "::127.0.0.1",
            "fec0::1",
            "100::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in
            ["1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
        {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[track_caller]
    fn check(egress: &Egress, tenant: &str, url: &str, expected: &str) {
        let found = egress.check(&TenantId::new(tenant).unwrap(), &Url::parse(url).unwrap());
        let found = found.map_or_else(|refused| refused.to_string(), |()| "allowed".to_owned());
        assert!(found.contains(expected), "{url}: {found}");
    }

    #[test]
    fn urls_are_judged_by_list_and_by_literal_address() {
        let open = Egress::default();
        check(&open, "a", "https://hooks.example.com/x", "allowed");
        for url in ["http://2130706433/", "http://0x7f.1/", "http://[::1]:80/", "http://127.1/", "http://0/"]
        {
            check(&open, "a", url, "not a public address");
        }
        let text = r#"{"allow": ["*.acme.com", "api.example.com"], "tenants": {"beta": ["hooks.beta.io"]}}"#;
        let listed: Egress = serde_json::from_str(text).unwrap();
        check(&listed, "a", "https://x.acme.com/", "allowed");
        check(&listed, "a", "https://API.example.com./", "allowed");
        for url in [
            "https://acme.com/",
            "https://evilacme.com/",
            "https://acme.com.evil.io/",
            "https://hooks.beta.io/",
        ] {
            check(&listed, "a", url, "not in the allow-list");
        }
        check(&listed, "beta", "https://hooks.beta.io/", "allowed");
        check(&listed, "beta", "https://x.acme.com/", "not in the allow-list");
    }

    #[tokio::test]
    async fn a_name_is_judged_by_what_it_resolves_to() {
        let error = Guard.resolve("localhost".parse().unwrap()).await.err().unwrap();
        let refused = refusal(error.as_ref()).cloned();
        assert!(matches!(refused, Some(Refused::Private { .. })), "{refused:?}");
    }
}
