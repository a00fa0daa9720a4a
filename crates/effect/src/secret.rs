//! Secrets by reference: `env:NAME`, `file:/path` or `command:…`, read on use and never displayed.
//!
//! A reference is not secret and may be displayed to operators. It resolves to a [`Secret`], which
//! is formatted and serialized as `[secret]`. A changed file is read again, and a command runs
//! again before its lease ends, so a secret can be rotated without a reload.

mod command;
mod value;

use std::env::VarError;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use command::SecretCommand;
use orlog_model::parse_foreign_json;
use parking_lot::Mutex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use value::HIDDEN;
pub use value::{InvalidSecretRef, Secret};

/// Reference to a secret. Clones share the loaded value.
#[derive(Clone)]
pub struct SecretRef {
    source: SecretSource,
    read: Arc<Mutex<Option<(FileVersion, Secret)>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum SecretSource {
    Env(String),
    File(PathBuf),
    Command(SecretCommand),
}

/// Version of a file that was read. A replaced file has another inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// Error for a secret that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read secret {reference}: {reason}")]
pub struct SecretUnavailable {
    reference: String,
    reason: String,
}

impl SecretRef {
    /// Creates a reference to a file; relative paths depend on the working directory.
    #[must_use]
    pub fn of_file(path: PathBuf) -> Self {
        Self {
            source: SecretSource::File(path),
            read: Arc::default(),
        }
    }

    /// Reads the secret, or returns the loaded value if the file has not changed.
    ///
    /// # Errors
    /// If the variable is not set, if the file cannot be read, if the command fails, or if the
    /// secret is empty.
    pub fn resolve(&self) -> Result<Secret, SecretUnavailable> {
        let found = match &self.source {
            // The text of the error would contain the value.
            SecretSource::Env(name) => {
                std::env::var(name)
                    .map(Secret::new)
                    .map_err(|error| match error {
                        VarError::NotPresent => "it is not set".to_owned(),
                        VarError::NotUnicode(_) => "it is not valid UTF-8".to_owned(),
                    })
            }
            SecretSource::File(path) => self.file(path).map_err(|error| error.to_string()),
            SecretSource::Command(command) => command.secret(),
        };

        // An empty variable or file is an error of the deployment, never a secret.
        let found = found.and_then(|secret| {
            if secret.expose().is_empty() {
                Err("it is empty".to_owned())
            } else {
                Ok(secret)
            }
        });

        found.map_err(|reason| SecretUnavailable {
            reference: self.to_string(),
            reason,
        })
    }

    fn file(&self, path: &PathBuf) -> std::io::Result<Secret> {
        // The version before the content: a file that is replaced in between is read again at the
        // next use.
        let version = FileVersion::of(&std::fs::metadata(path)?);
        let mut read = self.read.lock();
        if let Some((_, secret)) = read.as_ref().filter(|(known, _)| *known == version) {
            return Ok(secret.clone());
        }

        let text = std::fs::read_to_string(path)?;

        // Most tools end a file with a line break.
        let secret = Secret::new(text.trim_end_matches(['\n', '\r']));
        *read = Some((version, secret.clone()));
        Ok(secret)
    }
}

impl FileVersion {
    /// Returns the version of the file with this metadata.
    #[must_use]
    pub fn of(data: &Metadata) -> Self {
        Self {
            inode: data.ino(),
            size: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
        }
    }
}

impl FromStr for SecretRef {
    type Err = InvalidSecretRef;

    fn from_str(text: &str) -> Result<Self, InvalidSecretRef> {
        let source = match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => SecretSource::Env(name.to_owned()),
            Some(("file", path)) if path.starts_with('/') => {
                SecretSource::File(PathBuf::from(path))
            }
            Some(("command", command)) => SecretSource::Command(command.parse()?),
            Some(_) | None => return Err(InvalidSecretRef),
        };

        Ok(Self {
            source,
            read: Arc::default(),
        })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            SecretSource::Env(name) => write!(f, "env:{name}"),
            SecretSource::File(path) => write!(f, "file:{}", path.display()),
            SecretSource::Command(command) => fmt::Display::fmt(command, f),
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
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl SecretUnavailable {
    /// Logs the error, and returns a text without the reference, for users who may not see the
    /// configuration.
    #[must_use]
    pub fn log(self) -> &'static str {
        tracing::error!(error = %self, "secret unavailable");
        "a credential is unavailable; the log of the node contains the reason"
    }
}

/// Removes secrets from responses: an upstream may return what was sent to it.
#[derive(Debug, Default)]
pub struct SecretScrubber(Vec<Secret>);

impl SecretScrubber {
    /// Shorter texts are not treated as secrets: their removal would only make texts unreadable.
    const SHORTEST: usize = 4;
    /// Shorter lines of a secret are not removed on their own.
    const SHORTEST_LINE: usize = 12;

    /// Creates a scrubber of a database URL and its password.
    #[must_use]
    pub fn of_url(url: &Secret) -> Self {
        let mut scrub = Self::default();
        scrub.add(url);

        // The URL and the password alone can be in messages of the driver, the latter also decoded.
        if let Ok(parsed) = reqwest::Url::parse(url.expose())
            && let Some(password) = parsed.password()
        {
            scrub.add(&Secret::new(password));
            let decoded = percent_encoding::percent_decode_str(password).decode_utf8_lossy();
            scrub.add(&Secret::new(decoded.as_ref()));
        }
        scrub
    }

    /// Returns whether there is no secret to remove.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, secret: &Secret) {
        let text = secret.expose();

        // A short text occurs by chance: removing it would make messages unreadable.
        if text.len() < Self::SHORTEST {
            return;
        }

        self.0.push(secret.clone());

        // In a JSON text, the secret has escapes.
        let quoted = serde_json::Value::from(text).to_string();
        let escaped = &quoted[1..quoted.len() - 1];
        if escaped != text {
            self.0.push(Secret::new(escaped));
        }

        // Logs are scrubbed line by line.
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| line.len() >= Self::SHORTEST_LINE && *line != text);
        self.0.extend(lines.map(Secret::new));
    }

    /// Returns a text without the secrets.
    #[must_use]
    pub fn scrub_text(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            if text.contains(secret.expose()) {
                text.replace(secret.expose(), HIDDEN)
            } else {
                text
            }
        })
    }

    /// Removes the secrets from all texts of a value, including keys.
    #[must_use]
    pub fn scrub_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.scrub_text(text)),
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.scrub_json(item))
                .collect(),
            Value::Object(fields) => fields
                .into_iter()
                .map(|(key, value)| (self.scrub_text(key), self.scrub_json(value)))
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }

    pub(crate) fn scrub_bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        let bytes = self.0.iter().fold(bytes, |bytes, secret| {
            replaced(bytes, secret.expose().as_bytes())
        });

        if self.is_empty() || !bytes.contains(&b'\\') {
            return bytes;
        }
        // JSON can escape any character: its texts are compared without escapes.
        // Read as the payload of the response is, or a secret in a repaired text would remain.
        let Ok(parsed) = parse_foreign_json::<Value>(&bytes) else {
            return bytes;
        };

        let value = parsed.value;
        let clean = self.scrub_json(value.clone());
        if clean == value {
            bytes
        } else {
            clean.to_string().into_bytes()
        }
    }
}

fn replaced(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    if !bytes.windows(secret.len()).any(|window| window == secret) {
        return bytes;
    }

    let mut clean = Vec::with_capacity(bytes.len());
    let mut at = 0;
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
    fn secret_is_never_printed() {
        let secret = Secret::new("canary-7f3a");
        let rendered = format!(
            "{secret} {secret:?} {}",
            serde_json::to_string(&secret).unwrap()
        );
        assert_eq!(rendered, r#"[secret] [secret] "[secret]""#);
    }

    #[test]
    fn invalid_secret_reference_is_rejected_without_echo() {
        for text in [
            "canary-7f3a",
            "env:",
            "env:a b",
            "file:relative",
            "vault:x",
            "",
        ] {
            let quoted = serde_json::to_string(text).unwrap();
            let error = serde_json::from_str::<SecretRef>(&quoted)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("use env:NAME, file:") && !error.contains("canary"),
                "{error}"
            );
        }
        let read: SecretRef = serde_json::from_str(r#""file:/run/secrets/pay""#).unwrap();
        assert_eq!((read.to_string(), format!("{read:?}")), {
            (
                "file:/run/secrets/pay".to_owned(),
                "file:/run/secrets/pay".to_owned(),
            )
        });
    }

    #[test]
    fn changed_secret_file_is_reloaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let reference: SecretRef = format!("file:{}", path.display()).parse().unwrap();
        let missing = reference.resolve().unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "first\n").unwrap();
        assert_eq!(reference.resolve().unwrap().expose(), "first");
        std::fs::write(dir.path().join("next"), "again\n").unwrap();
        std::fs::rename(dir.path().join("next"), &path).unwrap();
        assert_eq!(reference.resolve().unwrap().expose(), "again");
        std::fs::write(&path, "\n").unwrap();
        assert!(
            reference
                .resolve()
                .unwrap_err()
                .to_string()
                .contains("it is empty")
        );
    }

    #[test]
    fn responses_are_scrubbed_in_every_encoding() {
        let mut scrub = SecretScrubber::default();
        scrub.add(&Secret::new("pa\"ss"));
        scrub.add(&Secret::new("abc"));
        assert_eq!(
            scrub.scrub_text(r#"pa"ss and pa\"ss and abc"#.to_owned()),
            "[secret] and [secret] and abc"
        );
        assert_eq!(
            scrub.scrub_bytes(b"\xffpa\"ss\xfe".to_vec()),
            b"\xff[secret]\xfe"
        );
        scrub.add(&Secret::new("ab/cd&é"));
        let escaped = br#"{"error":"ab\/cd\u0026\u00e9","line":"a\nb"}"#;
        assert_eq!(
            scrub.scrub_bytes(escaped.to_vec()),
            br#"{"error":"[secret]","line":"a\nb"}"#
        );
        let marked = b"\xef\xbb\xbf{\"error\":\"ab\\/cd&\\u00e9\"}";
        assert_eq!(
            scrub.scrub_bytes(marked.to_vec()),
            br#"{"error":"[secret]"}"#,
            "with a byte order mark"
        );
        let lone = br#"{"error":"ab\/cd&\u00e9 \ud800"}"#;
        assert_eq!(
            scrub.scrub_bytes(lone.to_vec()),
            "{\"error\":\"[secret] \u{fffd}\"}".as_bytes(),
            "with half of a surrogate pair"
        );
        let other = br#"{"error":  "a\/b"}"#.to_vec();
        assert_eq!(
            scrub.scrub_bytes(other.clone()),
            other,
            "a response without secrets is unchanged"
        );
    }

    #[test]
    fn lines_of_a_secret_are_scrubbed() {
        let mut scrub = SecretScrubber::default();
        scrub.add(&Secret::new(
            "-----BEGIN KEY-----\r\nMC4CAQAwBQYDK2Vw\r\nab\r\n-----END KEY-----",
        ));
        assert_eq!(
            scrub.scrub_text("+ echo MC4CAQAwBQYDK2Vw".to_owned()),
            "+ echo [secret]"
        );
        assert_eq!(scrub.scrub_text("ab".to_owned()), "ab");
    }
}
