//! Secrets by reference: `env:NAME` or `file:/path`, read when they are used, never shown.
//!
//! A reference is no secret and may be shown. What it leads to is a [`Secret`], which shows itself as `[secret]` to
//! whatever formats or serializes it. A file is read anew when it has changed, so a secret can be rotated without a reload.

use std::env::VarError;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

const HIDDEN: &str = "[secret]";

/// What must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Keeps it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// Where a secret is. Clones share what was read.
#[derive(Clone)]
pub struct SecretRef {
    source: Source,
    read: Arc<Mutex<Option<(Stamp, Secret)>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Env(String),
    File(PathBuf),
}

/// Which state of a file was read. A file that is replaced has another inode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// A reference that is none. The text is not repeated: somebody may have written the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is given by reference: write env:NAME or file:/absolute/path")]
pub struct NoReference;

/// A secret that is not where its reference says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret {reference} cannot be read: {reason}")]
pub struct Unavailable {
    reference: String,
    reason: String,
}

impl SecretRef {
    /// Reads it, or takes what was read where the file has not changed.
    ///
    /// # Errors
    /// When the variable is not set, the file cannot be read, or there is nothing in it.
    pub fn resolve(&self) -> Result<Secret, Unavailable> {
        let found = match &self.source {
            // The error's own text repeats what is no text.
            Source::Env(name) => std::env::var(name).map(Secret::new).map_err(|error| match error {
                VarError::NotPresent => "it is not set".to_owned(),
                VarError::NotUnicode(_) => "it is no UTF-8".to_owned(),
            }),
            Source::File(path) => self.file(path).map_err(|error| error.to_string()),
        };
        let found = found.and_then(|secret| {
            if secret.expose().is_empty() { Err("it is empty".to_owned()) } else { Ok(secret) }
        });
        found.map_err(|reason| Unavailable { reference: self.to_string(), reason })
    }

    fn file(&self, path: &PathBuf) -> std::io::Result<Secret> {
        let stamp = stamp(path)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, secret)) = read.as_ref().filter(|(known, _)| *known == stamp) {
            return Ok(secret.clone());
        }
        let text = std::fs::read_to_string(path)?;
        let secret = Secret::new(text.trim_end_matches(['\n', '\r']));
        *read = Some((stamp, secret.clone()));
        Ok(secret)
    }
}

fn stamp(path: &PathBuf) -> std::io::Result<Stamp> {
    let data = std::fs::metadata(path)?;
    Ok(Stamp { inode: data.ino(), size: data.len(), modified: (data.mtime(), data.mtime_nsec()) })
}

impl FromStr for SecretRef {
    type Err = NoReference;

    fn from_str(text: &str) -> Result<Self, NoReference> {
        let source = match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Source::Env(name.to_owned()),
            Some(("file", path)) if path.starts_with('/') => Source::File(PathBuf::from(path)),
            Some(_) | None => return Err(NoReference),
        };
        Ok(Self { source, read: Arc::default() })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Env(name) => write!(f, "env:{name}"),
            Source::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for SecretRef {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for SecretRef {}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Takes secrets out of what comes back: an upstream may repeat what it was sent.
#[derive(Debug, Default)]
pub struct Scrub(Vec<Secret>);

impl Scrub {
    /// Shorter ones are no secrets, and taking them out would only make texts unreadable.
    const SHORTEST: usize = 4;

    /// Of the URL of a database, and of the password in it.
    #[must_use]
    pub fn of_url(url: &Secret) -> Self {
        let mut scrub = Self::default();
        scrub.add(url);
        if let Ok(parsed) = reqwest::Url::parse(url.expose())
            && let Some(password) = parsed.password()
        {
            scrub.add(&Secret::new(password));
            let decoded = percent_encoding::percent_decode_str(password).decode_utf8_lossy();
            scrub.add(&Secret::new(decoded.as_ref()));
        }
        scrub
    }

    pub(crate) fn add(&mut self, secret: &Secret) {
        let text = secret.expose();
        if text.len() < Self::SHORTEST {
            return;
        }
        self.0.push(secret.clone());
        let quoted = serde_json::Value::from(text).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        if escaped != text {
            self.0.push(Secret::new(escaped));
        }
    }

    /// A text without them.
    #[must_use]
    pub fn text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(secret.expose()) { text.replace(secret.expose(), HIDDEN) } else { text }
        })
    }

    /// Every text in it; keys too.
    pub(crate) fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(key, value)| (self.text(key), self.value(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    pub(crate) fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        self.0.iter().fold(bytes, |bytes, secret| replaced(bytes, secret.expose().as_bytes()))
    }
}

fn replaced(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    if !bytes.windows(secret.len()).any(|window| window == secret) {
        return bytes;
    }
    let (mut clean, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(secret) {
            clean.extend_from_slice(HIDDEN.as_bytes());
            at += secret.len();
        } else {
            clean.push(bytes[at]);
            at += 1;
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_itself() {
        let secret = Secret::new("canary-7f3a");
        let shown = format!("{secret} {secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert_eq!(shown, r#"[secret] [secret] "[secret]""#);
    }

    #[test]
    fn what_is_no_reference_is_refused_and_not_repeated() {
        for text in ["canary-7f3a", "env:", "env:a b", "file:relative", "vault:x", ""] {
            let quoted = serde_json::to_string(text).unwrap();
            let error = serde_json::from_str::<SecretRef>(&quoted).unwrap_err().to_string();
            assert!(error.contains("write env:NAME or file:") && !error.contains("canary"), "{error}");
        }
        let read: SecretRef = serde_json::from_str(r#""file:/run/secrets/pay""#).unwrap();
        assert_eq!((read.to_string(), format!("{read:?}")), {
            ("file:/run/secrets/pay".to_owned(), "file:/run/secrets/pay".to_owned())
        });
    }

    #[test]
    fn a_file_is_read_anew_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let reference: SecretRef = format!("file:{}", path.display()).parse().unwrap();
        let missing = reference.resolve().unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "first\n").unwrap();
        assert_eq!(reference.resolve().unwrap().expose(), "first");
        std::fs::write(folder.path().join("next"), "again\n").unwrap();
        std::fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(reference.resolve().unwrap().expose(), "again");
        std::fs::write(&path, "\n").unwrap();
        assert!(reference.resolve().unwrap_err().to_string().contains("it is empty"));
    }

    #[test]
    fn what_comes_back_is_cleared_of_secrets_however_they_are_written() {
        let mut scrub = Scrub::default();
        scrub.add(&Secret::new("pa\"ss"));
        scrub.add(&Secret::new("abc"));
        assert_eq!(scrub.text(r#"pa"ss and pa\"ss and abc"#.to_owned()), "[secret] and [secret] and abc");
        assert_eq!(scrub.bytes(b"\xffpa\"ss\xfe".to_vec()), b"\xff[secret]\xfe");
    }
}
