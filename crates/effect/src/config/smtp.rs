//! Configuration of an SMTP upstream.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orlog_model::EffectName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, origin, upstream_config};
use crate::egress::Egress;
use crate::http::TlsConfig;
use crate::placeholders::{JsonTemplate, TextTemplate};
use crate::policy::Policy;
use crate::secret::SecretRef;
use crate::smtp::{
    AttachmentStore, EmailFields, EmailTemplate, SmtpConnectionPool, SmtpEndpoint, SmtpProvider, TlsMode,
    mailbox,
};
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16>,
        /// TLS mode of the connection.
        #[serde(default)]
        pub tls: TlsMode,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub certificates: Option<TlsConfig>,
        /// User name for authentication.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub user: Option<SecretRef>,
        /// Password for authentication.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub password: Option<SecretRef>,
        /// Sender: `Shop <shop@example.com>`.
        pub from: String,
        /// Domain of every `Message-ID`. Default: the domain of `from`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub domain: Option<String>,
        /// Permitted sources of attachments.
        #[serde(default)]
        pub attachments: AttachmentsConfig,
        /// Maximum size of an email, in bytes. Default: 10485760.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_message_bytes: Option<NonZeroUsize>,
        /// Minimum delay after the status 450 or 451. Default: 1min.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub greylist_pause: Option<Duration>,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, EmailEffectConfig>,
    }
}

/// Permitted sources of attachments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachmentsConfig {
    /// Directory of attachment files; relative to the directory of the configuration file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Hosts that URLs may name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
}

/// Email of one effect. Absent keys are read from the arguments of the effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmailEffectConfig {
    /// Recipients, one or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// Recipients of a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<Value>,
    /// Recipients of a blind copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bcc: Option<Value>,
    /// Reply address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Value>,
    /// Subject of the email.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Body as plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Body as HTML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Body as Markdown, converted to HTML and plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    /// List of attachments: `{ name, type, file | url | base64 }`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Value>,
}

impl SmtpConfig {
    /// Builds the upstream. Paths of files are relative to `base_dir`.
    ///
    /// # Errors
    /// If the sender, the encryption or a template is invalid.
    pub fn upstream(&self, name: &str, base_dir: &Path) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let from = mailbox("from", &self.from).map_err(invalid)?;
        let domain = self.domain.clone().unwrap_or_else(|| from.email.domain().to_owned());
        if !is_domain(&domain) {
            return Err(invalid(format!("invalid domain {domain:?}; example: example.com")));
        }
        let policy = self.policy(Policy::default());
        let smtp_endpoint = self.smtp_endpoint(&domain, policy.max_concurrency).map_err(invalid)?;
        let mut forms = BTreeMap::new();
        for (effect, config) in &self.effects {
            let form = config.form().map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            forms.insert(effect.clone(), form);
        }
        let max_bytes = self.max_message_bytes.map_or(MAX_MAIL, NonZeroUsize::get);
        let cabinet = AttachmentStore {
            dir: self.attachments.dir.as_ref().map(|path| base_dir.join(path)),
            egress: self.attachments.egress.clone().unwrap_or_default(),
            max_bytes,
            clients: OnceLock::new(),
        };
        let delay = self.greylist_pause.unwrap_or(RETRY_DELAY);
        let upstream = name.to_owned();
        let smtp = SmtpProvider {
            upstream,
            post: SmtpConnectionPool::new(smtp_endpoint),
            cabinet,
            from,
            domain,
            max_size: max_bytes,
            delay,
            forms,
        };
        let upstream = Upstream::effects(name, smtp.effects(), Arc::new(smtp), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).with_origin(origin(self)))
    }

    fn smtp_endpoint(&self, domain: &str, max_idle: usize) -> Result<SmtpEndpoint, String> {
        if self.host.is_empty()
            || self.host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
        {
            return Err(format!("invalid host {:?}; example: smtp.example.com", self.host));
        }
        let tls = self.certificates.clone().unwrap_or_default();
        tls.check().map_err(|reason| reason.replace("tls.", "certificates."))?;
        let user = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            _ => return Err("user and password require each other".to_owned()),
        };
        let is_encrypted = matches!(self.tls, TlsMode::Required | TlsMode::Wrapper);
        if user.is_some() && !is_encrypted && !is_loopback(&self.host) {
            return Err("a password requires TLS; set tls = \"required\" or \"wrapper\"".to_owned());
        }
        let port = self.port.unwrap_or(match self.tls {
            TlsMode::Required | TlsMode::Opportunistic => 587,
            TlsMode::Wrapper => 465,
            TlsMode::None => 25,
        });
        let (host, hello) = (self.host.clone(), domain.to_owned());
        Ok(SmtpEndpoint { host, port, mode: self.tls, tls, user, hello, kept: max_idle })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_domain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

impl EmailEffectConfig {
    fn form(&self) -> Result<EmailTemplate, String> {
        let lists = [
            ("to", &self.to),
            ("cc", &self.cc),
            ("bcc", &self.bcc),
            ("reply_to", &self.reply_to),
            ("attachments", &self.attachments),
        ];
        let lists = lists.into_iter().filter_map(|(name, value)| {
            let template = value.as_ref().map(JsonTemplate::parse)?;
            Some(template.map(|template| (name, template)).map_err(|reason| format!("{name}: {reason}")))
        });
        let lists = lists.collect::<Result<Vec<_>, String>>()?;
        let templates = EmailFields {
            subject: text("subject", self.subject.as_ref())?,
            text: text("text", self.text.as_ref())?,
            html: text("html", self.html.as_ref())?,
            markdown: text("markdown", self.markdown.as_ref())?,
            lists,
        };
        if templates.is_empty() {
            return Ok(EmailTemplate::Arguments);
        }
        if !templates.lists.iter().any(|(name, _)| ["to", "cc", "bcc"].contains(name)) {
            return Err("recipient is missing; set to, cc or bcc".to_owned());
        }
        match (&templates.text, &templates.html, &templates.markdown) {
            (None, None, None) => Err("body is missing; set text, html or markdown".to_owned()),
            (_, Some(_), Some(_)) => Err("html and markdown are mutually exclusive; remove one".to_owned()),
            _ => Ok(EmailTemplate::Templates(Box::new(templates))),
        }
    }
}

fn text(name: &str, template: Option<&String>) -> Result<Option<TextTemplate>, String> {
    let Some(template) = template else { return Ok(None) };
    let text = TextTemplate::parse(template).map_err(|reason| format!("{name}: {reason}"))?;
    if text.has_secrets() {
        return Err(format!("{name}: a secret is not allowed in an email"));
    }
    Ok(Some(text))
}
