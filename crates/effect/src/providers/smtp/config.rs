//! Configuration of an SMTP upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SmtpProvider;
use super::address;
use super::attachment::AttachmentStore;
use super::connection::{Login, SmtpConnectionPool, SmtpEndpoint, TlsMode};
use super::message::{EmailFields, EmailSender, check_body};
use super::probe::SmtpProbeConfig;
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
use crate::egress::Egress;
use crate::http::TlsConfig;
use crate::operations::Operations;
use crate::policy::Policy;
use crate::secret::SecretRef;
use crate::template::{JsonTemplate, TextTemplate};
use crate::upstream::Upstream;

/// Default maximum size of an email, in bytes.
const MAX_MAIL: usize = 10 << 20;

/// Delay after a server defers an email.
const RETRY_DELAY: Duration = Duration::from_mins(1);

upstream_config! {
    /// Configuration of an SMTP server.
    SmtpConfig {
        /// Host name or address.
        pub host: String,
        /// Port. Default: 587; 465 with `tls = "wrapper"`, 25 with `tls = "none"`.
        pub port: Option<u16>,
        /// TLS mode of the connection.
        #[serde(default)]
        pub tls: TlsMode,
        /// Certificates.
        pub certificates: Option<TlsConfig>,
        /// User name for authentication.
        pub user: Option<SecretRef>,
        /// Password for authentication.
        pub password: Option<SecretRef>,
        /// Sender: `Shop <shop@example.com>`.
        pub from: String,
        /// Domain of every `Message-ID`. Default: the domain of `from`.
        pub domain: Option<String>,
        /// Permitted sources of attachments.
        #[serde(default)]
        pub attachments: AttachmentsConfig,
        /// Maximum size of an email, in bytes. Default: 10485760.
        pub max_message_bytes: Option<NonZeroUsize>,
        /// Minimum delay after the status 450 or 451. Default: 1min.
        #[serde(default, with = "crate::duration::option")]
        pub greylist_pause: Option<Duration>,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, EmailEffectConfig>,
        /// HTTP API that returns whether the server has received an email.
        pub probe: Option<SmtpProbeConfig>,
    }
}

/// Permitted sources of attachments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachmentsConfig {
    /// Directory of attachment files; relative to the directory of the configuration file.
    pub dir: Option<PathBuf>,
    /// Hosts that URLs may name.
    pub egress: Option<Egress>,
}

/// Email of one effect. Absent keys are read from the arguments of the effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmailEffectConfig {
    /// Recipients, one or a list.
    pub to: Option<Value>,
    /// Recipients of a copy.
    pub cc: Option<Value>,
    /// Recipients of a blind copy.
    pub bcc: Option<Value>,
    /// Reply address.
    pub reply_to: Option<Value>,
    /// Subject of the email.
    pub subject: Option<String>,
    /// Body as plain text.
    pub text: Option<String>,
    /// Body as HTML.
    pub html: Option<String>,
    /// Body as Markdown, converted to HTML and plain text.
    pub markdown: Option<String>,
    /// List of attachments: `{ name, type, file | url | base64 }`.
    pub attachments: Option<Value>,
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

impl UpstreamConfig for SmtpConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::upstream(site.name, reason);
        let from = address::sender(&self.from).map_err(invalid)?;
        let domain = self
            .domain
            .clone()
            .unwrap_or_else(|| from.email.domain().to_owned());

        if !is_domain(&domain) {
            return Err(invalid(format!(
                "invalid domain {domain:?}; example: example.com"
            )));
        }

        let policy = self.policy(Policy::default());
        let endpoint = self
            .smtp_endpoint(&domain, policy.max_concurrency)
            .map_err(invalid)?;

        let compile = |_: &EffectName, config: &EmailEffectConfig| config.template();
        let templates = Operations::new(site.name, "email", &self.effects, compile)?;

        let max_size = self.max_message_bytes.map_or(MAX_MAIL, NonZeroUsize::get);
        let attachments = AttachmentStore {
            dir: self
                .attachments
                .dir
                .as_ref()
                .map(|path| site.dir.join(path)),
            egress: self.attachments.egress.clone().unwrap_or_default(),
            max_bytes: max_size,
            clients: OnceLock::new(),
        };

        let effects = templates.effects();
        let smtp = SmtpProvider {
            connections: SmtpConnectionPool::new(endpoint),
            attachments,
            sender: Arc::new(EmailSender { from, domain }),
            max_size,
            delay: self.greylist_pause.unwrap_or(RETRY_DELAY),
            templates,
            probe: self
                .probe
                .as_ref()
                .map(|probe| probe.compile(site.name))
                .transpose()?,
        };

        let upstream = self.finish(Upstream::effects(
            site.name,
            effects,
            Arc::new(smtp),
            policy,
        ));
        narrow(
            upstream,
            self.effects
                .iter()
                .map(|(effect, config)| (effect, &config.contexts)),
        )
    }
}

impl SmtpConfig {
    fn smtp_endpoint(&self, domain: &str, max_idle: usize) -> Result<SmtpEndpoint, String> {
        if self.host.is_empty()
            || self
                .host
                .contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
        {
            return Err(format!(
                "invalid host {:?}; example: smtp.example.com",
                self.host
            ));
        }

        let tls = self.certificates.clone().unwrap_or_default();
        tls.check()
            .map_err(|reason| reason.replace("tls.", "certificates."))?;

        let user = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some(Login {
                user: user.clone(),
                password: password.clone(),
            }),
            (None, None) => None,
            _ => return Err("user and password require each other".to_owned()),
        };
        // With opportunistic TLS, an attacker can remove the offer of the server and read the
        // password.
        let is_encrypted = matches!(self.tls, TlsMode::Required | TlsMode::Wrapper);
        if user.is_some() && !is_encrypted && !is_loopback(&self.host) {
            return Err(
                "a password requires TLS; set tls = \"required\" or \"wrapper\"".to_owned(),
            );
        }

        let port = self.port.unwrap_or(match self.tls {
            TlsMode::Required | TlsMode::Opportunistic => 587,
            TlsMode::Wrapper => 465,
            TlsMode::None => 25,
        });

        Ok(SmtpEndpoint {
            host: self.host.clone(),
            port,
            mode: self.tls,
            tls,
            user,
            hello: domain.to_owned(),
            // More attempts are never concurrent, so more idle connections would never be used.
            kept: max_idle,
        })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn is_domain(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

impl EmailEffectConfig {
    fn template(&self) -> Result<EmailFields, String> {
        let mut lists = Vec::new();
        for (name, value) in [
            ("to", &self.to),
            ("cc", &self.cc),
            ("bcc", &self.bcc),
            ("reply_to", &self.reply_to),
            ("attachments", &self.attachments),
        ] {
            let Some(value) = value else { continue };
            let template =
                JsonTemplate::parse(value).map_err(|reason| format!("{name}: {reason}"))?;
            lists.push((name, template));
        }

        let templates = EmailFields {
            subject: text("subject", self.subject.as_ref())?,
            text: text("text", self.text.as_ref())?,
            html: text("html", self.html.as_ref())?,
            markdown: text("markdown", self.markdown.as_ref())?,
            lists,
        };

        // Without any template, the payload is the email.
        if templates.is_empty() {
            return Ok(templates);
        }

        if !templates
            .lists
            .iter()
            .any(|(name, _)| ["to", "cc", "bcc"].contains(name))
        {
            return Err("recipient is missing; set to, cc or bcc".to_owned());
        }

        check_body(
            templates.text.is_some(),
            templates.html.is_some(),
            templates.markdown.is_some(),
        )?;
        Ok(templates)
    }
}

fn text(name: &str, template: Option<&String>) -> Result<Option<TextTemplate>, String> {
    let Some(template) = template else {
        return Ok(None);
    };
    let text = TextTemplate::parse(template).map_err(|reason| format!("{name}: {reason}"))?;

    if text.has_secrets() {
        return Err(format!("{name}: a secret is not allowed in an email"));
    }
    Ok(Some(text))
}
