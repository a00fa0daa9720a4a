//! `[auth]` and `[audit]`: who may call the API, and what is kept of what they did. What a key means stands in
//! `config/default.toml`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use orlog_effect::secret::SecretRef;
use serde::{Deserialize, Serialize};

use super::units;

/// The routes that can be made public.
const CAN_BE_PUBLIC: [&str; 2] = ["/metrics", "/info"];

/// `[auth]`: who may call the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// How callers show who they are.
    pub mode: AuthMode,
    /// Whether everybody is let in although the address is not loopback.
    pub open: bool,
    /// Routes that need nobody.
    pub public: Vec<String>,
    /// Bearer tokens.
    pub jwt: Jwt,
    /// Headers of a gateway.
    pub gateway: TrustedGateway,
}

/// How callers show who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// Not at all.
    #[default]
    Off,
    /// By a signed token.
    Jwt,
    /// A gateway in front says it.
    Gateway,
}

impl AuthMode {
    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AuthMode::Off => "off",
            AuthMode::Jwt => "jwt",
            AuthMode::Gateway => "gateway",
        }
    }
}

/// `[auth.jwt]`: tokens, and the keys that sign them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jwt {
    /// Where the issuer publishes its keys; nowhere where it is empty.
    pub jwks_url: String,
    /// A file with keys, as a JSON Web Key Set.
    #[serde(with = "units::optional")]
    pub jwks_file: Option<PathBuf>,
    /// Keys, each a JSON Web Key.
    pub keys: Vec<BTreeMap<String, String>>,
    /// Who must have issued a token.
    pub issuer: String,
    /// For whom a token must be: one of these.
    pub audience: Vec<String>,
    /// How far clocks may be apart.
    #[serde(with = "units::duration")]
    pub leeway: Duration,
    /// Keys are fetched anew when they are this old.
    #[serde(with = "units::duration")]
    pub refresh: Duration,
    /// Between two tries to fetch keys passes at least this.
    #[serde(with = "units::duration")]
    pub refetch_pause: Duration,
    /// The claim with the tenant, or the list of tenants.
    pub tenant_claim: String,
    /// The claim with the role, or the list of roles.
    pub role_claim: String,
    /// The claim with the roles that tasks for people name.
    pub groups_claim: String,
}

impl Default for Jwt {
    fn default() -> Self {
        Self {
            jwks_url: String::new(),
            jwks_file: None,
            keys: Vec::new(),
            issuer: String::new(),
            audience: Vec::new(),
            leeway: Duration::from_secs(30),
            refresh: Duration::from_mins(10),
            refetch_pause: Duration::from_secs(10),
            tenant_claim: "tenant".to_owned(),
            role_claim: "role".to_owned(),
            groups_claim: "groups".to_owned(),
        }
    }
}

/// `[auth.gateway]`: whose headers are believed, and which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustedGateway {
    /// Where it calls from: addresses and networks.
    pub sources: Vec<String>,
    /// What it shows in `secret_header`.
    #[serde(with = "units::secret")]
    pub secret: Option<SecretRef>,
    /// The header with the secret.
    pub secret_header: String,
    /// The header with the caller's name.
    pub user_header: String,
    /// The header with the caller's role.
    pub role_header: String,
    /// The header with the caller's tenants.
    pub tenants_header: String,
    /// The header with the roles that tasks for people name.
    pub groups_header: String,
}

impl Default for TrustedGateway {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            secret: None,
            secret_header: "x-orlog-gateway-secret".to_owned(),
            user_header: "x-orlog-user".to_owned(),
            role_header: "x-orlog-role".to_owned(),
            tenants_header: "x-orlog-tenants".to_owned(),
            groups_header: "x-orlog-groups".to_owned(),
        }
    }
}

impl TrustedGateway {
    /// The networks that it calls from.
    ///
    /// # Errors
    /// The first text that is none.
    pub fn networks(&self) -> Result<Vec<IpNet>, String> {
        let network = |text: &String| {
            let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.map_err(|_| format!("{text:?} is no address or network such as 10.0.0.7 or 10.0.0.0/8"))
        };
        self.sources.iter().map(network).collect()
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            mode: AuthMode::Off,
            open: false,
            public: vec!["/metrics".to_owned()],
            jwt: Jwt::default(),
            gateway: TrustedGateway::default(),
        }
    }
}

impl Auth {
    /// What does not go together: the key, and why.
    pub(super) fn mistakes(&self, listen: SocketAddr, many_pods: bool) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if let Some(other) = self.public.iter().find(|route| !CAN_BE_PUBLIC.contains(&route.as_str())) {
            let what = format!("{other:?} cannot be public; only {} can", CAN_BE_PUBLIC.join(" and "));
            found.push(("auth.public", what));
        }
        match self.mode {
            AuthMode::Off if !listen.ip().is_loopback() && !self.open => {
                let what = format!(
                    "everybody who reaches {listen} could do everything; write auth.mode = \"jwt\" or \"gateway\", listen on \
                     127.0.0.1, or say with auth.open = true that something else keeps strangers away"
                );
                found.push(("auth.mode", what));
            }
            AuthMode::Off => {}
            AuthMode::Jwt => found.extend(self.jwt.mistakes()),
            AuthMode::Gateway => found.extend(self.gateway.mistake(many_pods)),
        }
        found
    }
}

impl Jwt {
    fn mistakes(&self) -> Vec<(&'static str, String)> {
        let checks = [
            (
                self.jwks_url.is_empty() && self.jwks_file.is_none() && self.keys.is_empty(),
                "auth.jwt.jwks_url",
                "there are no keys; give jwks_url, jwks_file or keys",
            ),
            (
                !["", "http://", "https://"].iter().any(|start| {
                    if start.is_empty() { self.jwks_url.is_empty() } else { self.jwks_url.starts_with(start) }
                }),
                "auth.jwt.jwks_url",
                "it is no URL that begins with https:// or http://",
            ),
            (self.issuer.is_empty(), "auth.jwt.issuer", "say who issues tokens: their claim iss"),
            (
                self.audience.is_empty(),
                "auth.jwt.audience",
                "say for whom tokens are: their claim aud; otherwise those for any other service were accepted",
            ),
            (self.tenant_claim.is_empty(), "auth.jwt.tenant_claim", "name the claim"),
            (self.role_claim.is_empty(), "auth.jwt.role_claim", "name the claim"),
            (self.groups_claim.is_empty(), "auth.jwt.groups_claim", "name the claim"),
        ];
        let wrong = checks.into_iter().filter(|(wrong, ..)| *wrong);
        wrong.map(|(_, place, what)| (place, what.to_owned())).collect()
    }
}

impl TrustedGateway {
    fn mistake(&self, many_pods: bool) -> Option<(&'static str, String)> {
        if let Err(what) = self.networks() {
            return Some(("auth.gateway.sources", what));
        }
        if self.sources.is_empty() && self.secret.is_none() {
            let what = "anybody could say what the gateway says; give sources, a secret, or both".to_owned();
            return Some(("auth.gateway.sources", what));
        }
        let Self { secret_header, user_header, role_header, tenants_header, groups_header, .. } = self;
        let headers = [secret_header, user_header, role_header, tenants_header, groups_header];
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if let Some(name) = headers.into_iter().find(|name| !is_name(name)) {
            let what = format!("{name:?} is no name of a header: lowercase letters, digits and - only");
            return Some(("auth.gateway", what));
        }
        (many_pods && self.secret.is_none()).then(|| {
            let what = "pods send requests on to each other, from addresses that are not the gateway's; they know each \
                        other by the secret";
            ("auth.gateway.secret", what.to_owned())
        })
    }
}

/// `[audit]`: what is kept of calls that change something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// The folder of the records; `audit` in the data folder where it is empty.
    #[serde(with = "units::optional")]
    pub folder: Option<PathBuf>,
    /// A file is followed by the next one when it has this many bytes.
    #[serde(with = "units::size")]
    pub max_size: u64,
    /// So many files are kept.
    pub keep: u32,
    /// Routes that leave a record only where they are refused.
    pub except: Vec<String>,
    /// Whether records are logged too.
    pub log: bool,
}

impl Default for Audit {
    fn default() -> Self {
        Self { folder: None, max_size: 16 << 20, keep: 16, except: Vec::new(), log: false }
    }
}

impl Audit {
    /// What cannot be: the key, and why.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let is_route = |text: &&String| text.split_once(' ').is_some_and(|(_, path)| path.starts_with('/'));
        if let Some(other) = self.except.iter().find(|text| !is_route(text)) {
            let what = format!("{other:?} is no route such as \"POST /v1/work/claim\"");
            return Some(("audit.except", what));
        }
        (self.keep == 0).then(|| ("audit.keep", "at least 1 file is kept".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(auth: &Auth, listen: &str, many: bool, expected: &[&str]) {
        let found = auth.mistakes(listen.parse().unwrap(), many);
        assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), expected, "{found:?}");
    }

    #[test]
    fn nobody_is_let_in_unseen_unless_somebody_says_so() {
        let off = Auth::default();
        check(&off, "127.0.0.1:7070", false, &[]);
        check(&off, "[::1]:7070", false, &[]);
        check(&off, "0.0.0.0:7070", false, &["auth.mode"]);
        check(&Auth { open: true, ..off.clone() }, "0.0.0.0:7070", false, &[]);
        check(&Auth { public: vec!["/admin/drain".to_owned()], ..off }, "[::1]:1", false, &["auth.public"]);
    }

    #[test]
    fn every_mistake_about_tokens_is_found() {
        let auth = Auth { mode: AuthMode::Jwt, ..Auth::default() };
        check(&auth, "0.0.0.0:1", false, &["auth.jwt.jwks_url", "auth.jwt.issuer", "auth.jwt.audience"]);
    }

    #[test]
    fn a_gateway_is_known_by_something() {
        let mut auth = Auth { mode: AuthMode::Gateway, ..Auth::default() };
        check(&auth, "0.0.0.0:1", false, &["auth.gateway.sources"]);
        auth.gateway.sources = vec!["10.0.0.0/8".to_owned(), "::1".to_owned()];
        check(&auth, "0.0.0.0:1", false, &[]);
        check(&auth, "0.0.0.0:1", true, &["auth.gateway.secret"]);
        auth.gateway.sources.push("gateway".to_owned());
        check(&auth, "0.0.0.0:1", false, &["auth.gateway.sources"]);
    }
}
