//! Credentials of the requests of the command line: a token, or a key that signs each request.

use std::path::Path;

use orlog_model::Clock as _;
use orlog_signature::{SignError, SigningKey};
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderValue};

use super::exit::CommandError;
use super::key_store;
use orlog_node::clock::SystemClock;
use orlog_node::http_client;

/// Credentials of requests.
pub(super) enum Credentials {
    None,
    Token(HeaderValue),
    Key(Box<SigningKey>),
}

impl Credentials {
    /// Reads the named key, else the token, else the key that the user selected.
    pub(super) fn read(
        key: Option<&Path>,
        token_file: Option<&Path>,
    ) -> Result<Self, CommandError> {
        // A named key is the intent of this call, so that it wins over a token of the environment.
        if let Some(key) = key.filter(|key| !key.as_os_str().is_empty()) {
            return Ok(Self::Key(Box::new(key_store::of_argument(key)?)));
        }
        if let Some(token) = token(token_file)? {
            return Ok(Self::Token(token));
        }
        // Last: a key that was selected once must not replace a token that is set now.
        Ok(key_store::selected()?.map_or(Self::None, |key| Self::Key(Box::new(key))))
    }

    /// Returns the key that signs the requests.
    pub(super) fn key(&self) -> Option<&SigningKey> {
        match self {
            Self::Key(key) => Some(key),
            Self::None | Self::Token(_) => None,
        }
    }

    /// Adds the credentials to a complete request. A signature covers the request as it is sent.
    pub(super) fn add_to(&self, request: &mut Request) -> Result<(), SignError> {
        match self {
            Self::None => Ok(()),
            Self::Token(token) => {
                request.headers_mut().insert(AUTHORIZATION, token.clone());
                Ok(())
            }
            // Signed for each request: a signature is valid for a short time and has a nonce.
            Self::Key(key) => http_client::sign(key, request, SystemClock.now()),
        }
    }
}

/// Returns the access token, if set. It is never an argument, because other users can read
/// arguments.
fn token(token_file: Option<&Path>) -> Result<Option<HeaderValue>, CommandError> {
    // An empty ORLOG_TOKEN_FILE counts as unset.
    let token_file = token_file.filter(|file| !file.as_os_str().is_empty());
    let (token, location) = match token_file {
        Some(file) => {
            let unreadable = |error: std::io::Error| {
                let advice = if error.kind() == std::io::ErrorKind::NotFound {
                    "; `orlog dev` creates data/session-token and removes it when it stops: start \
                     the node, or set another file"
                } else {
                    ""
                };
                let file = file.display();

                CommandError::usage(format!(
                    "cannot read the token file {file} (--token-file, ORLOG_TOKEN_FILE): \
                     {error}{advice}"
                ))
            };
            (
                std::fs::read_to_string(file).map_err(unreadable)?,
                file.display().to_string(),
            )
        }
        None => (
            std::env::var("ORLOG_TOKEN").unwrap_or_default(),
            "ORLOG_TOKEN".to_owned(),
        ),
    };

    if token.trim().is_empty() {
        // A named file without a token must not turn the call into an unauthenticated one.
        let is_configured = token_file.is_some();
        return if is_configured {
            Err(CommandError::usage(format!("{location} holds no token")))
        } else {
            Ok(None)
        };
    }

    let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut header =
        header.map_err(|_| CommandError::usage(format!("{location} holds no token")))?;
    // Debug output of requests then hides the value.
    header.set_sensitive(true);
    Ok(Some(header))
}
