//! What a mail says, and the bytes that it becomes.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use lettre::address::Envelope;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};
use lettre::{Address, Message};
use orlog_model::WorkItem;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::attachment::{AttachmentRef, Enclosed};
use super::markdown;
use crate::placeholders::{Json, Scope, Text, Unfilled};
use crate::secret::Scrub;

/// Where a mail comes from.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// The arguments are the mail.
    Arguments,
    /// Templates.
    Templates(Box<Templates>),
}

/// Templates of what a mail says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    /// `to`, `cc`, `bcc`, `reply_to`, `attachments`.
    pub(crate) lists: Vec<(&'static str, Json)>,
    pub(crate) subject: Option<Text>,
    pub(crate) text: Option<Text>,
    pub(crate) html: Option<Text>,
    pub(crate) markdown: Option<Text>,
}

/// What a mail says.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Letter {
    to: Many,
    cc: Many,
    bcc: Many,
    reply_to: Many,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    markdown: Option<String>,
    /// What `body` is.
    format: Option<Format>,
    body: Option<String>,
    pub(crate) attachments: Vec<AttachmentRef>,
}

/// The formats of messages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    Html,
    Text,
    Md,
}

/// One text or several.
#[derive(Debug, Default)]
struct Many(Vec<String>);

impl<'de> Deserialize<'de> for Many {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = match Value::deserialize(deserializer)? {
            Value::Null => Vec::new(),
            Value::String(text) if text.is_empty() => Vec::new(),
            Value::Array(items) => items,
            other => vec![other],
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            other => Err(serde::de::Error::custom(format!("{other} is no address"))),
        };
        texts.into_iter().map(text).collect::<Result<_, _>>().map(Self)
    }
}

/// A mail as it goes over the wire.
pub(crate) struct Mail {
    pub(crate) id: String,
    pub(crate) envelope: Envelope,
    pub(crate) bytes: Vec<u8>,
}

impl Form {
    pub(crate) fn fill(&self, scope: Scope<'_>) -> Result<Letter, Unfilled> {
        let value = match self {
            Self::Arguments => scope.payload.clone(),
            Self::Templates(templates) => Value::Object(templates.fill(scope)?),
        };
        let mut track = serde_path_to_error::Track::new();
        let read = Letter::deserialize(serde_path_to_error::Deserializer::new(&value, &mut track));
        read.map_err(|error| match track.path().to_string().as_str() {
            "." => Unfilled::Payload(error.to_string()),
            place => Unfilled::Payload(format!("the field {place:?}: {error}")),
        })
    }
}

impl Templates {
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
            && [&self.subject, &self.text, &self.html, &self.markdown].iter().all(|text| text.is_none())
    }

    fn fill(&self, scope: Scope<'_>) -> Result<Map<String, Value>, Unfilled> {
        let mut fields = Map::new();
        for (name, template) in &self.lists {
            fields.insert((*name).to_owned(), template.fill(scope)?);
        }
        let plain: fn(String) -> String = |text| text;
        let texts = [
            ("subject", &self.subject, plain),
            ("text", &self.text, plain),
            ("html", &self.html, |text| escaped(&text)),
            ("markdown", &self.markdown, |text| markdown::escaped(&text)),
        ];
        for (name, template, encode) in texts {
            let Some(template) = template else { continue };
            // A template that is nothing but one field takes it as it is: the saga wrote the whole text.
            let encode = if template.is_whole() { plain } else { encode };
            let text = template.fill(scope, &mut Scrub::default(), |_, text| encode(text))?;
            fields.insert(name.to_owned(), Value::String(text));
        }
        Ok(fields)
    }
}

impl Letter {
    /// The mail, the same bytes for the same item and the same words.
    pub(crate) fn mail(
        mut self,
        from: &Mailbox,
        domain: &str,
        item: &WorkItem,
        enclosed: Vec<Enclosed>,
    ) -> Result<Mail, String> {
        self.settle_body()?;
        let id = format!("<{}@{domain}>", item.id);
        let millis = u64::try_from(item.created_at.millis()).unwrap_or_default();
        let mut builder = Message::builder()
            .from(from.clone())
            .date(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
            .message_id(Some(id.clone()))
            .subject(line("subject", &self.subject)?)
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        let mut receivers: Vec<Address> = Vec::new();
        for (name, list) in
            [("to", &self.to), ("cc", &self.cc), ("bcc", &self.bcc), ("reply_to", &self.reply_to)]
        {
            for text in &list.0 {
                let mailbox = mailbox(name, text)?;
                if name != "reply_to" && !receivers.contains(&mailbox.email) {
                    receivers.push(mailbox.email.clone());
                }
                builder = match name {
                    "to" => builder.to(mailbox),
                    "cc" => builder.cc(mailbox),
                    "reply_to" => builder.reply_to(mailbox),
                    // Nobody reads in the mail who else got it.
                    _ => builder,
                };
            }
        }
        if receivers.is_empty() {
            return Err("it has no receiver; write to, cc or bcc".to_owned());
        }
        let envelope =
            Envelope::new(Some(from.email.clone()), receivers).map_err(|error| error.to_string())?;
        let builder = builder.envelope(envelope.clone());
        let boundary = self.boundary(item, &enclosed);
        let message = match (self.part(&boundary)?, enclosed.is_empty()) {
            (Part::Single(part), true) => builder.singlepart(part),
            (Part::Multi(part), true) => builder.multipart(part),
            (part, false) => builder.multipart(mixed(part, &boundary, enclosed)?),
        };
        let bytes = message.map_err(|error| error.to_string())?.formatted();
        Ok(Mail { id, envelope, bytes })
    }

    /// `format` and `body` say the same as `text`, `html` or `markdown`.
    fn settle_body(&mut self) -> Result<(), String> {
        match (self.format, self.body.take()) {
            (None, None) => {}
            (Some(_), None) => return Err("it has a format and no body".to_owned()),
            (format, Some(body)) => {
                let place = match format.unwrap_or(Format::Text) {
                    Format::Text => &mut self.text,
                    Format::Html => &mut self.html,
                    Format::Md => &mut self.markdown,
                };
                if place.replace(body).is_some() {
                    return Err("its body is there twice".to_owned());
                }
            }
        }
        match (&self.text, &self.html, &self.markdown) {
            (None, None, None) => Err("it has no words; write text, html or markdown".to_owned()),
            (_, Some(_), Some(_)) => Err("it has html and markdown; keep one".to_owned()),
            _ => Ok(()),
        }
    }

    fn part(&self, boundary: &str) -> Result<Part, String> {
        let html = self.html.clone().or_else(|| self.markdown.as_deref().map(markdown::html));
        let text = self.text.clone().or_else(|| self.markdown.as_deref().map(markdown::text));
        Ok(match (text, html) {
            (Some(text), None) => Part::Single(SinglePart::plain(text)),
            (None, Some(html)) => Part::Single(SinglePart::html(html)),
            (Some(text), Some(html)) => {
                let parts = MultiPart::alternative().boundary(format!("{boundary}-a"));
                Part::Multi(parts.singlepart(SinglePart::plain(text)).singlepart(SinglePart::html(html)))
            }
            (None, None) => return Err("it has no words".to_owned()),
        })
    }

    /// The same at every attempt, and of all that lies between the boundaries, so that nothing there can hold it.
    fn boundary(&self, item: &WorkItem, enclosed: &[Enclosed]) -> String {
        let mut digest = Sha256::new();
        digest.update(item.id.as_bytes());
        for text in [&self.text, &self.html, &self.markdown].into_iter().flatten() {
            digest.update(text);
        }
        for enclosed in enclosed {
            digest.update(&enclosed.bytes);
        }
        let mut boundary = "orlog-".to_owned();
        for byte in &digest.finalize()[..16] {
            write!(boundary, "{byte:02x}").expect("a text takes everything");
        }
        boundary
    }
}

enum Part {
    Single(SinglePart),
    Multi(MultiPart),
}

fn mixed(part: Part, boundary: &str, enclosed: Vec<Enclosed>) -> Result<MultiPart, String> {
    let parts = MultiPart::mixed().boundary(format!("{boundary}-m"));
    let mut parts = match part {
        Part::Single(part) => parts.singlepart(part),
        Part::Multi(part) => parts.multipart(part),
    };
    for Enclosed { name, kind, bytes } in enclosed {
        let kind = line("the type of an attachment", &kind)?;
        let kind = ContentType::parse(&kind).map_err(|_| format!("{kind:?} is no content type"))?;
        let name = line("the name of an attachment", &name)?;
        let encoded = lettre::message::Body::new_with_encoding(bytes, ContentTransferEncoding::Base64);
        let body = encoded.map_err(|_| "an attachment cannot be encoded".to_owned())?;
        parts = parts.singlepart(Attachment::new(name).body(body, kind));
    }
    Ok(parts)
}

/// Exactly one mailbox, `Ada <ada@example.org>`, on one line.
pub(crate) fn mailbox(place: &str, text: &str) -> Result<Mailbox, String> {
    let text = line(place, text)?;
    text.parse().map_err(|_| {
        format!(
            "{place}: {text:?} is no mail address; write for example Ada <ada@example.org>, one in each text"
        )
    })
}

/// What begins a header must not end it.
fn line(place: &str, text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{place} holds a line break or another control character"));
    }
    Ok(text.to_owned())
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
