//! Configuration of `[webhooks.<name>]`: received webhooks. `docs/webhooks.md` describes the keys.

use std::time::Duration;

use orlog_effect::secret::SecretRef;
use orlog_effect::webhook_signature::{SVIX_ID, WEBHOOK_ID};
use orlog_model::TenantId;
use orlog_program::{MessageTemplate, TemplateError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::units;
use super::violations::Violations;

/// Maximum length of a name, which is part of the event id.
const MAX_NAME_BYTES: usize = 64;
/// Part of [`WebhookSignatureConfig::payload`] that stands for the body.
const BODY: &str = "{body}";
/// Part that stands for the value of the timestamp header.
const TIMESTAMP: &str = "{timestamp}";

/// Configuration of one webhook: the signature of its requests, and their mapping to an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Signature scheme of the sender.
    pub scheme: WebhookScheme,
    /// Secrets; a signature by any of them is valid.
    pub secrets: Vec<SecretRef>,
    /// Header and format of the signature, for the schemes without a preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<WebhookSignatureConfig>,
    /// Maximum difference between the timestamp of a request and the clock.
    #[serde(default = "default_replay_window", with = "units::text")]
    pub replay_window: Duration,
    /// Tenant of the events.
    #[serde(default)]
    pub tenant: TenantId,
    /// Event type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Delivery id, equal for all attempts of the sender. Default: that of the scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Correlation id; absent or null: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
    /// Subject; absent or null: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Data. Default: the body.
    #[serde(default = "default_data")]
    pub data: Value,
}

/// Signature scheme of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookScheme {
    /// `Stripe-Signature: t=…,v1=…`.
    Stripe,
    /// `X-Hub-Signature-256: sha256=…`.
    Github,
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`; or `svix-id` and so on.
    StandardWebhooks,
    /// HMAC-SHA256 in a configured header.
    HmacSha256,
    /// The secret itself in a configured header.
    Token,
}

/// Header and format of a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSignatureConfig {
    /// Header with the signature or token.
    pub header: String,
    /// Text before the signature in the header.
    #[serde(default)]
    pub prefix: String,
    /// Encoding of the signature.
    #[serde(default)]
    pub encoding: SignatureEncoding,
    /// Header with the time of the request, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// Signed text. Default: `{timestamp}.{body}` with a timestamp header, else `{body}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
}

/// Encoding of a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureEncoding {
    /// Hexadecimal digits.
    #[default]
    Hex,
    /// Base64 with padding.
    Base64,
}

/// Compiled templates of a webhook.
#[derive(Debug)]
pub struct WebhookTemplates {
    pub kind: MessageTemplate,
    pub id: MessageTemplate,
    pub correlation: Option<MessageTemplate>,
    pub subject: Option<MessageTemplate>,
    pub data: MessageTemplate,
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn default_replay_window() -> Duration {
    Duration::from_mins(5)
}

fn default_data() -> Value {
    Value::from("= body")
}

impl WebhookScheme {
    /// Returns the template of the delivery id, if requests of the scheme have one.
    fn delivery_id(self) -> Option<String> {
        match self {
            WebhookScheme::Stripe => Some("= body.id".to_owned()),
            WebhookScheme::Github => Some("= headers['x-github-delivery']".to_owned()),
            WebhookScheme::StandardWebhooks => Some(format!(
                "= '{WEBHOOK_ID}' in headers ? headers['{WEBHOOK_ID}'] : headers['{SVIX_ID}']"
            )),
            WebhookScheme::HmacSha256 | WebhookScheme::Token => None,
        }
    }

    fn is_preset(self) -> bool {
        !matches!(self, WebhookScheme::HmacSha256 | WebhookScheme::Token)
    }
}

impl WebhookSignatureConfig {
    /// Returns the signed text before the body. `{timestamp}` stands for the value of the timestamp
    /// header.
    ///
    /// # Errors
    /// If the payload does not end with the body, or has no timestamp although a header has one.
    pub(crate) fn payload_prefix(&self) -> Result<&str, String> {
        let Some(payload) = &self.payload else {
            return Ok(if self.timestamp_header.is_some() {
                "{timestamp}."
            } else {
                ""
            });
        };

        let prefix = payload
            .strip_suffix(BODY)
            .filter(|prefix| !prefix.contains(BODY));
        let prefix = prefix.ok_or_else(|| {
            format!("{payload:?} must end with {BODY}, for example \"v0:{TIMESTAMP}:{BODY}\"")
        })?;

        // Such a text would be signed as it is, so that no signature is valid.
        let rest = prefix.replace(TIMESTAMP, "");
        if rest.contains(['{', '}']) {
            return Err(format!(
                "{payload:?} has an unknown placeholder; known: {TIMESTAMP}, {BODY}"
            ));
        }

        // The replay window depends on the timestamp, so that the signature must cover it.
        match (prefix.contains(TIMESTAMP), self.timestamp_header.is_some()) {
            (true, false) => Err(format!("{payload:?} requires timestamp_header")),
            (false, true) => Err(format!(
                "{payload:?} has no {TIMESTAMP}, so anyone could change the timestamp; add it, or \
                 remove timestamp_header"
            )),
            (true, true) | (false, false) => Ok(prefix),
        }
    }

    /// Returns the signed text before the body, with the timestamp of a request.
    pub(crate) fn signed_prefix(&self, timestamp: &str) -> Result<String, String> {
        Ok(self.payload_prefix()?.replace(TIMESTAMP, timestamp))
    }

    fn validate(&self, scheme: WebhookScheme, key: &str, found: &mut Violations) {
        let headers = [
            ("header", Some(&self.header)),
            ("timestamp_header", self.timestamp_header.as_ref()),
        ];
        for (field, name) in headers
            .into_iter()
            .filter_map(|(field, name)| Some((field, name?)))
        {
            let message = format_args!("invalid header name {name:?}");
            found.require(is_header_name(name), format_args!("{key}.{field}"), message);
        }

        if scheme == WebhookScheme::Token {
            // An unsigned timestamp can be changed, so that it would not limit the replay of a
            // request.
            let message = "a token signs nothing; remove timestamp_header and payload";
            found.require(
                self.timestamp_header.is_none() && self.payload.is_none(),
                key,
                message,
            );
        } else if let Err(message) = self.payload_prefix() {
            found.report(format_args!("{key}.payload"), message);
        }
    }
}

impl WebhookConfig {
    /// Returns whether the signature covers neither a header nor a time, so that a recorded request
    /// stays valid with other headers.
    #[must_use]
    pub fn signs_body_only(&self) -> bool {
        match self.scheme {
            WebhookScheme::Github => true,
            WebhookScheme::HmacSha256 => self
                .signature
                .as_ref()
                .is_some_and(|format| format.timestamp_header.is_none()),
            WebhookScheme::Stripe | WebhookScheme::StandardWebhooks | WebhookScheme::Token => false,
        }
    }

    /// Compiles the templates.
    ///
    /// # Errors
    /// All errors, each with the key below the webhook.
    pub(crate) fn templates(&self) -> Result<WebhookTemplates, Vec<TemplateError>> {
        let mut errors = Vec::new();
        let mut compile =
            |template: &Value, path: &str| match MessageTemplate::compile(template, path) {
                Ok(template) => Some(template),
                Err(found) => {
                    errors.extend(found);
                    None
                }
            };

        // Without a template, `validate` reports the missing key.
        let id = self
            .id
            .clone()
            .or_else(|| self.scheme.delivery_id())
            .unwrap_or_default();
        let optional = [
            (&self.correlation, "correlation"),
            (&self.subject, "subject"),
        ];

        let kind = compile(&self.kind.as_str().into(), "type");
        let id = compile(&id.into(), "id");
        let data = compile(&self.data, "data");
        let [correlation, subject] = optional.map(|(template, path)| {
            template
                .as_ref()
                .and_then(|text| compile(&text.as_str().into(), path))
        });

        match (kind, id, data) {
            (Some(kind), Some(id), Some(data)) if errors.is_empty() => Ok(WebhookTemplates {
                kind,
                id,
                correlation,
                subject,
                data,
            }),
            _ => Err(errors),
        }
    }

    /// Validates the keys of the webhook with this name.
    pub(super) fn validate(&self, name: &str, found: &mut Violations) {
        let key = format!("webhooks.{name}");

        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len())
            && name.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
            });
        let message = format_args!(
            "invalid name {name:?}; use 1 to {MAX_NAME_BYTES} of the characters a-z, 0-9, - and _"
        );

        found.require(is_name, &key, message);
        let message = "the list is empty; example: secrets = [\"env:WEBHOOK_SECRET\"]";
        found.require(
            !self.secrets.is_empty(),
            format_args!("{key}.secrets"),
            message,
        );

        let signature = format!("{key}.signature");
        match (&self.signature, self.scheme.is_preset()) {
            (Some(_), true) => {
                found.report(&signature, "the scheme determines the signature; remove it");
            }
            (None, false) => found.report(
                &signature,
                "the scheme requires the header of the signature; example: \
                 { header = \"x-signature\" }",
            ),
            (Some(config), false) => config.validate(self.scheme, &signature, found),
            (None, true) => {}
        }

        let has_id = self.id.is_some() || self.scheme.delivery_id().is_some();
        let message = "requests of the scheme have no delivery id; set an expression that is equal \
            for all attempts";
        found.require(has_id, format_args!("{key}.id"), message);

        for error in self.templates().err().into_iter().flatten() {
            found.report(format_args!("{key}.{}", error.path), &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(text: &str) -> WebhookConfig {
        toml::from_str(text).unwrap()
    }

    #[track_caller]
    fn check(text: &str, key: &str, message: &str) {
        let mut found = Violations::default();
        webhook(text).validate("shop", &mut found);
        let found = found.into_inner();
        assert!(
            found
                .iter()
                .any(|(at, why)| at == key && why.contains(message)),
            "{found:?}"
        );
    }

    #[test]
    fn valid_webhooks_are_accepted() {
        for text in [
            "scheme = \"stripe\"\nsecrets = [\"env:A\"]\ntype = \"= 'stripe.' + body.type\"",
            "scheme = \"github\"\nsecrets = [\"env:A\", \"env:B\"]\ntype = \"Pushed\"\ndata = \
             { of = \"= body.ref\" }",
            "scheme = \"standard-webhooks\"\nsecrets = [\"env:A\"]\ntype = \"= \
             body.type\"\ncorrelation = \"= body.id\"",
            "scheme = \"hmac-sha256\"\nsecrets = [\"env:A\"]\ntype = \"A\"\nid = \"= body.id\"\n\
             [signature]\nheader = \"x-slack-signature\"\nprefix = \"v0=\"\n\
             timestamp_header = \"x-slack-request-timestamp\"\npayload = \"v0:{timestamp}:{body}\"",
            "scheme = \"token\"\nsecrets = [\"env:A\"]\ntype = \"A\"\nid = \"= body.id\"\n\
             signature = { header = \"x-gitlab-token\" }",
        ] {
            assert_eq!(
                Violations::keys(|found| webhook(text).validate("shop", found)),
                [""; 0],
                "{text}"
            );
        }
    }

    #[test]
    fn documented_webhooks_are_valid() {
        let page = include_str!("../../../../docs/webhooks.md");
        let examples = page
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next());
        let mut names = Vec::new();
        for example in examples {
            let table: toml::Table = example.parse().unwrap();
            let webhooks = table["webhooks"].as_table().unwrap();
            for (name, webhook) in webhooks {
                let webhook: WebhookConfig = webhook.clone().try_into().unwrap();
                assert_eq!(
                    Violations::keys(|found| webhook.validate(name, found)),
                    [""; 0],
                    "{name}"
                );
                names.push(name.clone());
            }
        }
        assert_eq!(names, ["stripe", "github", "billing", "slack", "gitlab"]);
    }

    #[test]
    fn invalid_webhook_names_its_key() {
        let stripe = "scheme = \"stripe\"\nsecrets = [\"env:A\"]\n";
        check(
            &format!("{stripe}type = \"= bdy.type\""),
            "webhooks.shop.type",
            "line 1, column 2 of the expression: unknown name `bdy`; available: `body` and \
             `headers`",
        );
        check(
            &format!("{stripe}type = \"A\"\ndata = {{ lines = [\"= body.\"] }}"),
            "webhooks.shop.data.lines[0]",
            "",
        );
        check(
            "scheme = \"stripe\"\nsecrets = []\ntype = \"A\"",
            "webhooks.shop.secrets",
            "the list is empty",
        );
        check(
            &format!("{stripe}type = \"A\"\nsignature = {{ header = \"x\" }}"),
            "webhooks.shop.signature",
            "the scheme determines",
        );
        let hmac = "scheme = \"hmac-sha256\"\nsecrets = [\"env:A\"]\ntype = \"A\"\n";
        check(hmac, "webhooks.shop.signature", "requires the header");
        check(hmac, "webhooks.shop.id", "no delivery id");
        let header = |rest: &str| format!("{hmac}signature = {{ header = \"x\", {rest} }}");
        check(
            &header("payload = \"{body}.\""),
            "webhooks.shop.signature.payload",
            "must end with {body}",
        );
        check(
            &header("payload = \"v0:{id}.{body}\""),
            "webhooks.shop.signature.payload",
            "unknown placeholder",
        );
        check(
            &header("payload = \"{timestamp}{body}\""),
            "webhooks.shop.signature.payload",
            "timestamp_header",
        );
        check(
            &header("timestamp_header = \"t\", payload = \"{body}\""),
            "webhooks.shop.signature.payload",
            "anyone could change the timestamp",
        );
        check(
            &header("timestamp_header = \"a b\""),
            "webhooks.shop.signature.timestamp_header",
            "a b",
        );
    }
}
