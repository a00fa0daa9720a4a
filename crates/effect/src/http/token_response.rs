//! Responses of an `OAuth2` token endpoint (RFC 6749, 5.1 and 5.2), as issuers send them.

use std::time::Duration;

use orlog_model::parse_foreign_json;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::quote::quote;
use crate::secret::SecretScrubber;

/// Token of an issuer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IssuedToken {
    pub(super) access_token: String,
    /// Lifetime, if the issuer states it.
    pub(super) lifetime: Option<Duration>,
}

#[derive(Deserialize)]
struct TokenBody {
    access_token: String,
    /// The specification says a number of seconds; issuers also send text and decimals.
    #[serde(default)]
    expires_in: Value,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
    error_description: Option<String>,
}

/// Returns the token of a successful response.
///
/// # Errors
/// What is missing, as the end of a sentence that starts with the endpoint.
pub(super) fn token(body: &[u8]) -> Result<IssuedToken, String> {
    let parsed =
        parse_foreign_json::<TokenBody>(body).map_err(|_| "returned no access_token".to_owned())?;
    let is_repaired = parsed.is_repaired;
    let body = parsed.value;

    if body.access_token.is_empty() {
        return Err("returned an empty access_token".to_owned());
    }
    // The upstream would reject such a token until it expires.
    if is_repaired && body.access_token.contains(char::REPLACEMENT_CHARACTER) {
        return Err("returned an access_token that is not valid Unicode".to_owned());
    }

    Ok(IssuedToken {
        access_token: body.access_token,
        lifetime: seconds(&body.expires_in),
    })
}

/// Describes an error response: the status, and the error of the issuer without secrets.
pub(super) fn error(status: StatusCode, body: &[u8], scrub: &SecretScrubber) -> String {
    let status = status.as_u16();
    let Ok(parsed) = parse_foreign_json::<ErrorBody>(body) else {
        return format!("returned {status}");
    };

    let ErrorBody {
        error,
        error_description,
    } = parsed.value;
    let text = match error_description.as_deref() {
        None | Some("") => error,
        Some(description) => format!("{error}: {description}"),
    };

    // Before the text is cut: a part of a secret would remain.
    let quote = quote(&scrub.scrub_text(text));
    format!("returned {status}: {quote}")
}

fn seconds(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    Duration::try_from_secs_f64(seconds?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quote;
    use crate::secret::Secret;

    #[track_caller]
    fn check_lifetime(expires_in: &str, expected: Option<u64>) {
        let body = format!(r#"{{"access_token":"T","expires_in":{expires_in}}}"#);
        let issued = token(body.as_bytes()).unwrap();
        assert_eq!(issued.lifetime.map(|lifetime| lifetime.as_secs()), expected);
    }

    #[test]
    fn lifetime_is_a_number_or_text() {
        check_lifetime("3599", Some(3599));
        check_lifetime(r#""3599""#, Some(3599));
        check_lifetime("3599.5", Some(3599));
        check_lifetime("null", None);
        check_lifetime(r#""soon""#, None);
        check_lifetime("-1", None);
    }

    #[test]
    fn token_is_never_empty() {
        assert_eq!(
            token(br#"{"access_token":""}"#).unwrap_err(),
            "returned an empty access_token"
        );
        assert_eq!(token(b"<html>").unwrap_err(), "returned no access_token");
    }

    #[test]
    fn token_with_replaced_text_is_rejected() {
        assert_eq!(
            token(b"{\"access_token\":\"T\xff\"}").unwrap_err(),
            "returned an access_token that is not valid Unicode"
        );
        let other = token(b"{\"access_token\":\"T\",\"scope\":\"\xff\"}").unwrap();
        assert_eq!(other.access_token, "T");
    }

    #[track_caller]
    fn check_error(status: StatusCode, body: &[u8], expected: &str) {
        let mut scrub = SecretScrubber::default();
        scrub.add(&Secret::new("canary-7f3a"));
        assert_eq!(error(status, body, &scrub), expected);
    }

    #[test]
    fn error_of_the_issuer_is_quoted() {
        let body = br#"{"error":"invalid_client","error_description":"the secret has expired"}"#;
        check_error(
            StatusCode::BAD_REQUEST,
            body,
            "returned 400: invalid_client: the secret has expired",
        );
        let body = br#"{"error":"invalid_client","error_description":null}"#;
        check_error(
            StatusCode::UNAUTHORIZED,
            body,
            "returned 401: invalid_client",
        );
        check_error(StatusCode::BAD_GATEWAY, b"<html>", "returned 502");
    }

    #[test]
    fn secret_at_the_end_of_the_quote_is_scrubbed() {
        let before = "x".repeat(quote::MAX_CHARS - "canary".len());
        let body = format!(r#"{{"error":"{before}canary-7f3a"}}"#);
        let expected = format!("returned 400: {before}[secre");
        check_error(StatusCode::BAD_REQUEST, body.as_bytes(), &expected);
    }
}
