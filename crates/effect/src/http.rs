//! The HTTP client that providers share: connections, certificates, authorization, redirects, and
//! the classification of responses by their status.

mod auth;
mod client;
mod headers;
pub(crate) mod response;
mod tls;
mod token_response;

pub use auth::{BasicConfig, HttpAuthConfig, OAuth2Config};
#[cfg(feature = "grpc")]
pub(crate) use auth::{HttpAuth, sensitive_header};
#[cfg(any(feature = "grpc", feature = "smtp"))]
pub(crate) use client::scrub_error;
pub(crate) use client::{HttpClient, HttpClientOptions, Request, RequestTarget};
#[cfg(feature = "grpc")]
pub(crate) use headers::{IDEMPOTENCY_KEY, context_headers};
pub(crate) use headers::{fill_headers, parse_headers};
#[cfg(any(feature = "grpc", feature = "smtp"))]
pub(crate) use tls::{CertificateCache, Certificates, Clients};
pub use tls::{TlsConfig, client};
