//! Egress rules for addresses from a payload or a redirect.
//!
//! Static addresses in the configuration are trusted. Any other address must be in the allow-list,
//! if there is one, and must not resolve to a private, loopback, link-local or otherwise special
//! address. Names are checked by their resolved addresses, and the connection uses exactly the
//! checked addresses. This prevents DNS rebinding.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use orlog_model::TenantId;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Egress rules of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Allowed hosts. Default: all public hosts.
    pub allow: Option<Vec<Host>>,
    /// Allowed hosts of single tenants, instead of `allow`.
    pub tenants: BTreeMap<TenantId, Vec<Host>>,
    /// Whether private addresses are allowed.
    pub private: bool,
}

/// Host of the allow-list: `hooks.acme.com`, `*.acme.com` (any subdomain), `10.1.2.3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

/// Error for a denied address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressDenied {
    /// The host is not in the allow-list.
    #[error("host {0:?} is not allowed; add it to egress.allow")]
    NotAllowed(String),
    /// The address is not public.
    #[error(
        "{host} resolves to {address}, which is not a public address; set egress.private = true to \
        allow it"
    )]
    Private {
        /// Requested host.
        host: String,
        /// Resolved address.
        address: IpAddr,
    },
    /// The URL has no host.
    #[error("URL has no host")]
    NoHost,
}

impl Egress {
    /// Checks a URL before a connection is made. The resolver of the client checks the resolved
    /// addresses.
    ///
    /// # Errors
    /// The reason of the denial.
    pub fn check(&self, tenant: &TenantId, url: &Url) -> Result<(), EgressDenied> {
        self.check_url(self.tenants.get(tenant).or(self.allow.as_ref()), url)
    }

    /// Checks a URL without a tenant.
    ///
    /// # Errors
    /// The reason of the denial.
    pub fn check_any_tenant(&self, url: &Url) -> Result<(), EgressDenied> {
        self.check_url(self.allow.as_ref(), url)
    }

    fn check_url(&self, allowed: Option<&Vec<Host>>, url: &Url) -> Result<(), EgressDenied> {
        let host = url
            .host_str()
            .ok_or(EgressDenied::NoHost)?
            .trim_matches(['[', ']']);

        if allowed.is_some_and(|allowed| !allowed.iter().any(|pattern| pattern.covers(host))) {
            return Err(EgressDenied::NotAllowed(host.to_owned()));
        }

        // A name is checked by the resolver of the connection, because its addresses can change
        // until then.
        match host.parse() {
            Ok(address) if !self.private && !is_public(address) => Err(EgressDenied::Private {
                host: host.to_owned(),
                address,
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Host {
    fn covers(&self, host: &str) -> bool {
        // A name with a final dot is the same host.
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

        if name.is_empty()
            || !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':'))
            || (name.contains(':') && name.parse::<Ipv6Addr>().is_err())
        {
            return Err(format!(
                "{text:?} is not a valid host; examples: hooks.acme.com, *.acme.com"
            ));
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
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Resolver that rejects names with at least one special address.
pub(crate) struct GuardedResolver;

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            check_addresses(name.as_str(), &found)?;

            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Checks the resolved addresses of a name.
pub(crate) fn check_addresses(host: &str, found: &[SocketAddr]) -> Result<(), EgressDenied> {
    // One special address is sufficient for a rejection, because the client may connect to any of
    // them.
    match found.iter().find(|found| !is_public(found.ip())) {
        Some(private_address) => Err(EgressDenied::Private {
            host: host.to_owned(),
            address: private_address.ip(),
        }),
        None => Ok(()),
    }
}

/// Returns the egress denial behind an error of a client with a [`GuardedResolver`].
pub(crate) fn egress_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a EgressDenied> {
    causes(error).find_map(|error| error.downcast_ref())
}

/// Returns an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn StdError + 'static)| {
        (*error).source()
    })
}

/// Returns whether an address is public: not in the IANA special-purpose registries.
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

/// Returns whether an IPv6 address is public: only global unicast is. An embedded IPv4 address is
/// checked instead.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Teredo, benchmarking, ORCHID and similar; documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_blocked_in_every_notation() {
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
        for text in [
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[track_caller]
    fn check(egress: &Egress, tenant: &str, url: &str, expected: &str) {
        let found = egress.check(&TenantId::new(tenant).unwrap(), &Url::parse(url).unwrap());
        let found = found.map_or_else(|denied| denied.to_string(), |()| "allowed".to_owned());
        assert!(found.contains(expected), "{url}: {found}");
    }

    #[test]
    fn urls_are_checked_by_allowlist_and_address() {
        let open = Egress::default();
        check(&open, "a", "https://hooks.example.com/x", "allowed");
        for url in [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]:80/",
            "http://127.1/",
            "http://0/",
        ] {
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
            check(&listed, "a", url, "add it to egress.allow");
        }
        check(&listed, "beta", "https://hooks.beta.io/", "allowed");
        check(
            &listed,
            "beta",
            "https://x.acme.com/",
            "add it to egress.allow",
        );
    }

    #[tokio::test]
    async fn hostnames_are_checked_after_resolution() {
        let error = GuardedResolver
            .resolve("localhost".parse().unwrap())
            .await
            .err()
            .unwrap();
        let denied = egress_error(error.as_ref()).cloned();
        assert!(
            matches!(denied, Some(EgressDenied::Private { .. })),
            "{denied:?}"
        );
    }
}
