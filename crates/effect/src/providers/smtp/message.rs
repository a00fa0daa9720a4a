//! Content of an email, and its encoding.

use std::time::{Duration, SystemTime};

use lettre::address::Envelope;
use lettre::message::header::{
    Cc, ContentTransferEncoding, ContentType, HeaderName, HeaderValue, ReplyTo, To,
};
use lettre::message::{Attachment, Body, Mailbox, Mailboxes, MultiPart, SinglePart};
use lettre::{Address, Message};
use orlog_model::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::address::{line, mailbox};
use super::attachment::{AttachmentRef, EmailAttachment};
use super::{html, markdown};
use crate::secret::SecretScrubber;
use crate::template::{FillError, JsonTemplate, PlaceholderScope, TextTemplate};

/// Templates of the fields of an email; without any, the arguments are the email.
#[derive(Clone, Debug, Default)]
pub(crate) struct EmailFields {
    /// Templates of `to`, `cc`, `bcc`, `reply_to`, `attachments`.
    pub(crate) lists: Vec<(&'static str, JsonTemplate)>,
    pub(crate) subject: Option<TextTemplate>,
    pub(crate) text: Option<TextTemplate>,
    pub(crate) html: Option<TextTemplate>,
    pub(crate) markdown: Option<TextTemplate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EmailContent {
    to: OneOrMany,
    cc: OneOrMany,
    bcc: OneOrMany,
    reply_to: OneOrMany,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    markdown: Option<String>,
    /// Format of `body`.
    format: Option<BodyFormat>,
    body: Option<String>,
    /// Whether HTML is reduced to harmless elements, because its author is not trusted.
    sanitize: bool,
    pub(crate) attachments: Vec<AttachmentRef>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BodyFormat {
    Html,
    Text,
    Md,
}

/// One text or several.
#[derive(Debug, Default)]
struct OneOrMany(Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = match Value::deserialize(deserializer)? {
            Value::Null => Vec::new(),
            Value::String(text) if text.is_empty() => Vec::new(),
            Value::Array(items) => items,
            other => vec![other],
        };

        texts
            .into_iter()
            .map(|value| match value {
                Value::String(text) => Ok(text),
                other => Err(serde::de::Error::custom(format!(
                    "{other} is not an address"
                ))),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Sender of all emails of an upstream.
pub(crate) struct EmailSender {
    pub(crate) from: Mailbox,
    /// Domain of every `Message-ID`.
    pub(crate) domain: String,
}

/// Origin of an email: the values of its work item that determine its bytes.
#[derive(Clone, Copy)]
pub(crate) struct EmailOrigin {
    pub(crate) id: Uuid,
    pub(crate) created_at: Timestamp,
}

pub(crate) struct EmailMessage {
    pub(crate) id: String,
    pub(crate) envelope: Envelope,
    pub(crate) bytes: Vec<u8>,
}

impl EmailFields {
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
            && [&self.subject, &self.text, &self.html, &self.markdown]
                .iter()
                .all(|text| text.is_none())
    }

    pub(crate) fn fill(&self, scope: PlaceholderScope<'_>) -> Result<EmailContent, FillError> {
        let value = if self.is_empty() {
            scope.payload.clone()
        } else {
            Value::Object(self.values(scope)?)
        };

        let mut track = serde_path_to_error::Track::new();

        // The path of the error names the field, which the text of serde does not.
        let read =
            EmailContent::deserialize(serde_path_to_error::Deserializer::new(&value, &mut track));
        read.map_err(|error| match track.path().to_string().as_str() {
            "." => FillError::Payload(error.to_string()),
            field => FillError::Payload(format!("invalid field {field:?}: {error}")),
        })
    }

    fn values(&self, scope: PlaceholderScope<'_>) -> Result<Map<String, Value>, FillError> {
        let mut fields = Map::new();
        for (name, template) in &self.lists {
            fields.insert((*name).to_owned(), template.fill(scope)?);
        }

        let identity: fn(String) -> String = |text| text;
        let texts = [
            ("subject", &self.subject, identity),
            ("text", &self.text, identity),
            ("html", &self.html, |text| html::escaped(&text)),
            ("markdown", &self.markdown, |text| markdown::escaped(&text)),
        ];

        for (name, template, encode) in texts {
            let Some(template) = template else { continue };
            // A template of a single field is not escaped: the saga wrote the whole text.
            let encode = if template.is_single_field() {
                identity
            } else {
                encode
            };

            let text = template.fill(scope, &mut SecretScrubber::default(), |_, text| {
                encode(text)
            })?;
            fields.insert(name.to_owned(), Value::String(text));
        }

        // The author of a value can be another one than that of the template.
        if let Some(sanitize) = scope.payload.get("sanitize").filter(|it| !it.is_null()) {
            fields.insert("sanitize".to_owned(), sanitize.clone());
        }
        Ok(fields)
    }
}

impl EmailContent {
    /// Builds the email; equal origins and contents result in equal bytes. The time grows with the
    /// size of the email, so async code calls it on a blocking thread.
    pub(crate) fn build(
        mut self,
        sender: &EmailSender,
        origin: EmailOrigin,
        enclosed: Vec<EmailAttachment>,
    ) -> Result<EmailMessage, String> {
        self.resolve_body()?;

        let from = &sender.from;
        let id = format!("<{}@{}>", origin.id, sender.domain);
        let millis = u64::try_from(origin.created_at.as_millis()).unwrap_or_default();
        let mut builder = Message::builder()
            .from(from.clone())
            .date(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
            .message_id(Some(id.clone()))
            .subject(line("subject", &self.subject)?.to_owned())
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));

        let mut receivers: Vec<Address> = Vec::new();
        for (name, list) in [
            ("to", &self.to),
            ("cc", &self.cc),
            ("bcc", &self.bcc),
            ("reply_to", &self.reply_to),
        ] {
            let mut mailboxes = Mailboxes::new();
            for text in &list.0 {
                let mailbox = mailbox(name, text)?;
                // A receiver that is in two lists gets the email once.
                if name != "reply_to" && !receivers.contains(&mailbox.email) {
                    receivers.push(mailbox.email.clone());
                }
                mailboxes.push(mailbox);
            }

            if list.0.is_empty() {
                continue;
            }
            // As one header: to add a mailbox, the builder would parse those before it, and drop
            // them if it cannot.
            builder = match name {
                "to" => builder.header(To::from(mailboxes)),
                "cc" => builder.header(Cc::from(mailboxes)),
                "reply_to" => builder.header(ReplyTo::from(mailboxes)),
                // Blind copies are not part of the headers.
                _ => builder,
            };
        }

        if receivers.is_empty() {
            return Err("recipient is missing; set to, cc or bcc".to_owned());
        }

        let envelope = Envelope::new(Some(from.email.clone()), receivers)
            .map_err(|error| error.to_string())?;
        let builder = builder.envelope(envelope.clone());

        // A random boundary, as of the library, would make each attempt another email.
        let boundary = self.boundary(origin, &enclosed);
        let message = match (self.part(&boundary)?, enclosed.is_empty()) {
            (Part::Single(part), true) => builder.singlepart(part),
            (Part::Multi(part), true) => builder.multipart(part),
            (part, false) => builder.multipart(mixed(part, &boundary, enclosed)?),
        };

        let bytes = message.map_err(|error| error.to_string())?.formatted();
        Ok(EmailMessage {
            id,
            envelope,
            bytes,
        })
    }

    /// Replaces `format` and `body` by `text`, `html` or `markdown`, and sanitizes the HTML.
    fn resolve_body(&mut self) -> Result<(), String> {
        match (self.format, self.body.take()) {
            (None, None) => {}
            (Some(_), None) => return Err("format requires a body".to_owned()),
            (format, Some(body)) => {
                let field = match format.unwrap_or(BodyFormat::Text) {
                    BodyFormat::Text => &mut self.text,
                    BodyFormat::Html => &mut self.html,
                    BodyFormat::Md => &mut self.markdown,
                };
                if field.replace(body).is_some() {
                    return Err("duplicate body".to_owned());
                }
            }
        }

        check_body(
            self.text.is_some(),
            self.html.is_some(),
            self.markdown.is_some(),
        )?;

        if self.sanitize {
            self.sanitize();
        }
        Ok(())
    }

    /// Reduces the HTML to harmless elements, and adds plain text if there is none.
    fn sanitize(&mut self) {
        if let Some(markdown) = self.markdown.take() {
            self.text.get_or_insert_with(|| markdown::text(&markdown));
            self.html = Some(markdown::html(&markdown));
        }

        if let Some(html) = &mut self.html {
            let cleaned = html::clean(html);
            *html = cleaned.html;
            self.text.get_or_insert(cleaned.text);
        }
    }

    fn part(&self, boundary: &str) -> Result<Part, String> {
        let html = self
            .html
            .clone()
            .or_else(|| self.markdown.as_deref().map(markdown::html));
        let text = self
            .text
            .clone()
            .or_else(|| self.markdown.as_deref().map(markdown::text));

        Ok(match (text, html) {
            (Some(text), None) => Part::Single(SinglePart::plain(text_body(&text))),
            (None, Some(html)) => Part::Single(SinglePart::html(text_body(&html))),
            (Some(text), Some(html)) => {
                let parts = MultiPart::alternative().boundary(format!("{boundary}-a"));
                Part::Multi(
                    parts
                        .singlepart(SinglePart::plain(text_body(&text)))
                        .singlepart(SinglePart::html(text_body(&html))),
                )
            }
            (None, None) => return Err("body is missing; set text, html or markdown".to_owned()),
        })
    }

    /// Returns the MIME boundary. It is equal for all attempts, and derived from all parts, so that
    /// no part contains it.
    fn boundary(&self, origin: EmailOrigin, enclosed: &[EmailAttachment]) -> String {
        let mut digest = Sha256::new();
        digest.update(origin.id.as_bytes());
        for text in [&self.text, &self.html, &self.markdown]
            .into_iter()
            .flatten()
        {
            digest.update(text);
        }

        for enclosed in enclosed {
            digest.update(&enclosed.bytes);
        }

        format!("orlog-{}", hex::encode(&digest.finalize()[..16]))
    }
}

/// Checks which forms of a body are present.
pub(crate) fn check_body(text: bool, html: bool, markdown: bool) -> Result<(), String> {
    match (text, html, markdown) {
        (false, false, false) => Err("body is missing; set text, html or markdown".to_owned()),
        (_, true, true) => Err("html and markdown are mutually exclusive; remove one".to_owned()),
        _ => Ok(()),
    }
}

enum Part {
    Single(SinglePart),
    Multi(MultiPart),
}

fn mixed(part: Part, boundary: &str, enclosed: Vec<EmailAttachment>) -> Result<MultiPart, String> {
    let parts = MultiPart::mixed().boundary(format!("{boundary}-m"));
    let mut parts = match part {
        Part::Single(part) => parts.singlepart(part),
        Part::Multi(part) => parts.multipart(part),
    };

    for EmailAttachment { name, kind, bytes } in enclosed {
        let kind = line("attachment type", &kind)?;
        let kind = ContentType::parse(kind)
            .map_err(|_| format!("{kind:?} is not a valid content type"))?;

        let name = line("attachment name", &name)?.to_owned();
        let encoded = Body::new_with_encoding(bytes, ContentTransferEncoding::Base64);

        let body = encoded.map_err(|_| "cannot encode an attachment".to_owned())?;
        parts = parts.singlepart(Attachment::new(name).body(body, kind));
    }
    Ok(parts)
}

/// Returns the encoded body of a text.
fn text_body(text: &str) -> Body {
    let text = with_crlf(text);
    let is_special = |c: char| c.is_ascii_control() && !matches!(c, '\r' | '\n' | '\t');
    if !text.contains(is_special) {
        return Body::new(text);
    }

    // Servers reject a NUL in plain bytes (RFC 5322, 4), and other control characters can end there.
    Body::new_with_encoding(text, ContentTransferEncoding::QuotedPrintable)
        .expect("quoted-printable encodes every text")
}

/// Ends each line with CRLF. Servers reject a CR or LF alone (RFC 5321, 2.3.8): other servers could
/// read it as the end of the email.
fn with_crlf(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + text.len() / 16);
    let mut rest = text;
    while let Some(end) = rest.find(['\r', '\n']) {
        lines.push_str(&rest[..end]);
        lines.push_str("\r\n");

        let line_break = &rest[end..];
        let length = if line_break.starts_with("\r\n") { 2 } else { 1 };
        rest = &line_break[length..];
    }

    lines.push_str(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_become_crlf() {
        assert_eq!(
            with_crlf("a\rb\nc\r\nd\n\re\r"),
            "a\r\nb\r\nc\r\nd\r\n\r\ne\r\n"
        );
    }

    #[test]
    fn control_characters_are_encoded() {
        assert_eq!(text_body("a\0b\tc\n").as_ref(), b"a=00b\tc\r\n");
        assert_eq!(text_body("a\tb\n").as_ref(), b"a\tb\r\n");
    }
}
