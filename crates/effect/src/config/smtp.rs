//! A mail server as the configuration describes it.

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
use crate::http::Tls;
use crate::placeholders::{Json, Text};
use crate::policy::Policy;
use crate::secret::SecretRef;
use crate::smtp::{Cabinet, Form, Place, Post, Smtp, Templates, TlsMode, mailbox};
use crate::upstream::Upstream;

/// The longest mail where nothing else is said, in bytes.
const MAX_MAIL: usize = 10 << 20;

/// The pause after a server that puts a mail off.
const PAUSE: Duration = Duration::from_mins(1);

upstream_config! {
    /// One mail server.
    SmtpConfig {
        /// Its name or address.
        pub host: String,
        /// Its port; 587 where absent, 465 with `tls = "wrapper"`, 25 with `tls = "none"`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub port: Option<u16>,
        /// Whether the connection is encrypted.
        #[serde(default)]
        pub tls: TlsMode,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub certificates: Option<Tls>,
        /// Who logs in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub user: Option<SecretRef>,
        /// The proof.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub password: Option<SecretRef>,
        /// Who sends: `Shop <shop@example.com>`.
        pub from: String,
        /// The right side of every `Message-ID`; the domain of `from` where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub domain: Option<String>,
        /// Where attachments may come from.
        #[serde(default)]
        pub attachments: CabinetConfig,
        /// The longest mail, in bytes; 10485760 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_message_bytes: Option<NonZeroUsize>,
        /// The least pause after 450 and 451; a minute where absent.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::duration::option")]
        pub greylist_pause: Option<Duration>,
        /// What it sends, by the effect's name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, LetterConfig>,
    }
}

/// Where attachments may come from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CabinetConfig {
    /// Files come from here; relative to the folder of the description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// Which hosts URLs may name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Egress>,
}

/// One mail. Where nothing is said, the effect's arguments are the mail.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LetterConfig {
    /// Receivers, one or a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
    /// Receivers of a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<Value>,
    /// Receivers whom nobody sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bcc: Option<Value>,
    /// Who gets the answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Value>,
    /// The subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// As plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As HTML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// As Markdown, which becomes HTML and plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    /// What is enclosed: `{ name, type, file | url | base64 }`, a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Value>,
}

impl SmtpConfig {
    /// The upstream it describes. Files that it names are in `folder`.
    ///
    /// # Errors
    /// When the sender, the encryption or a template is wrong.
    pub fn upstream(&self, name: &str, folder: &Path) -> Result<Upstream, Error> {
        let wrong = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let from = mailbox("from", &self.from).map_err(wrong)?;
        let domain = self.domain.clone().unwrap_or_else(|| from.email.domain().to_owned());
        if !is_domain(&domain) {
            return Err(wrong(format!("the domain {domain:?} is none; write for example example.com")));
        }
        let policy = self.policy(Policy::default());
        let place = self.place(&domain, policy.concurrency).map_err(wrong)?;
        let mut forms = BTreeMap::new();
        for (effect, config) in &self.effects {
            let form = config.form().map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            forms.insert(effect.clone(), form);
        }
        let most = self.max_message_bytes.map_or(MAX_MAIL, NonZeroUsize::get);
        let cabinet = Cabinet {
            folder: self.attachments.folder.as_ref().map(|path| folder.join(path)),
            egress: self.attachments.egress.clone().unwrap_or_default(),
            most,
            clients: OnceLock::new(),
        };
        let pause = self.greylist_pause.unwrap_or(PAUSE);
        let upstream = name.to_owned();
        let smtp = Smtp { upstream, post: Post::new(place), cabinet, from, domain, most, pause, forms };
        let upstream = Upstream::effects(name, smtp.effects(), Arc::new(smtp), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).made_from(origin(self)))
    }

    fn place(&self, domain: &str, kept: usize) -> Result<Place, String> {
        if self.host.is_empty()
            || self.host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
        {
            return Err(format!("the host {:?} is none; write for example smtp.example.com", self.host));
        }
        let tls = self.certificates.clone().unwrap_or_default();
        tls.check().map_err(|reason| reason.replace("tls.", "certificates."))?;
        let user = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some((user.clone(), password.clone())),
            (None, None) => None,
            _ => return Err("user and password go together".to_owned()),
        };
        let is_encrypted = matches!(self.tls, TlsMode::Required | TlsMode::Wrapper);
        if user.is_some() && !is_encrypted && !is_loopback(&self.host) {
            return Err(
                "a password is sent only over TLS; write tls = \"required\" or \"wrapper\"".to_owned()
            );
        }
        let port = self.port.unwrap_or(match self.tls {
            TlsMode::Required | TlsMode::Opportunistic => 587,
            TlsMode::Wrapper => 465,
            TlsMode::None => 25,
        });
        let (host, hello) = (self.host.clone(), domain.to_owned());
        Ok(Place { host, port, mode: self.tls, tls, user, hello, kept })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_domain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
}

impl LetterConfig {
    fn form(&self) -> Result<Form, String> {
        let lists = [
            ("to", &self.to),
            ("cc", &self.cc),
            ("bcc", &self.bcc),
            ("reply_to", &self.reply_to),
            ("attachments", &self.attachments),
        ];
        let lists = lists.into_iter().filter_map(|(name, value)| {
            let template = value.as_ref().map(Json::parse)?;
            Some(template.map(|template| (name, template)).map_err(|reason| format!("{name}: {reason}")))
        });
        let lists = lists.collect::<Result<Vec<_>, String>>()?;
        let templates = Templates {
            subject: text("subject", self.subject.as_ref())?,
            text: text("text", self.text.as_ref())?,
            html: text("html", self.html.as_ref())?,
            markdown: text("markdown", self.markdown.as_ref())?,
            lists,
        };
        if templates.is_empty() {
            return Ok(Form::Arguments);
        }
        if !templates.lists.iter().any(|(name, _)| ["to", "cc", "bcc"].contains(name)) {
            return Err("it has no receiver; write to, cc or bcc".to_owned());
        }
        match (&templates.text, &templates.html, &templates.markdown) {
            (None, None, None) => Err("it has no words; write text, html or markdown".to_owned()),
            (_, Some(_), Some(_)) => Err("it has html and markdown; keep one".to_owned()),
            _ => Ok(Form::Templates(Box::new(templates))),
        }
    }
}

fn text(name: &str, given: Option<&String>) -> Result<Option<Text>, String> {
    let Some(given) = given else { return Ok(None) };
    let text = Text::parse(given).map_err(|reason| format!("{name}: {reason}"))?;
    if text.has_secrets() {
        return Err(format!("{name}: a secret cannot stand in a mail"));
    }
    Ok(Some(text))
}
