//! Attachments of an email: files below one directory, downloads from URLs, or a few bytes in the
//! arguments.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::TenantId;
use reqwest::Url;
use serde::Deserialize;

use crate::egress::{self, Egress};
use crate::http::response::ResponseBody;
use crate::http::{Clients, TlsConfig};
use crate::provider::ProviderError;

/// Maximum size of an inline attachment, in bytes.
const MAX_INLINE_BYTES: usize = 256 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachmentRef {
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    file: Option<String>,
    url: Option<String>,
    base64: Option<String>,
}

pub(crate) struct EmailAttachment {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
}

/// Permitted sources of attachments.
pub(crate) struct AttachmentStore {
    /// Directory of attachment files; without it, files are not permitted.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) egress: Egress,
    /// Maximum size of an attachment, in bytes.
    pub(crate) max_bytes: usize,
    /// Created on the first URL: emails without URLs do not require the certificates of the system.
    pub(crate) clients: OnceLock<Result<Clients, String>>,
}

impl AttachmentStore {
    pub(crate) async fn fetch(
        &self,
        tenant: &TenantId,
        references: &[AttachmentRef],
    ) -> Result<Vec<EmailAttachment>, ProviderError> {
        let mut enclosed = Vec::with_capacity(references.len());
        let mut remaining_bytes = self.max_bytes;

        for reference in references {
            let bytes = match (&reference.file, &reference.url, &reference.base64) {
                (Some(file), None, None) => self.file(file, remaining_bytes).await?,
                (None, Some(url), None) => self.url(tenant, url, remaining_bytes).await?,
                (None, None, Some(text)) => inline(text)?,
                _ => {
                    return Err(unfit(
                        "an attachment requires exactly one of file, url and base64",
                    ));
                }
            };
            // The limit holds for all attachments together, and before the next one is read.
            remaining_bytes = remaining_bytes
                .checked_sub(bytes.len())
                .ok_or_else(|| self.too_much())?;

            let name = reference
                .name
                .clone()
                .or_else(|| last_of(reference))
                .filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| unfit("an attachment has no name"))?;
            let kind = reference
                .kind
                .clone()
                .unwrap_or_else(|| "application/octet-stream".to_owned());
            enclosed.push(EmailAttachment { name, kind, bytes });
        }

        Ok(enclosed)
    }

    /// Reads a file. No path or link can leave the directory.
    async fn file(&self, file: &str, remaining_bytes: usize) -> Result<Vec<u8>, ProviderError> {
        let Some(dir) = self.dir.clone() else {
            return Err(unfit(
                "no attachment directory is configured; set attachments = { dir = \"…\" }",
            ));
        };

        // Only names: no `..`, and no absolute path.
        if file.is_empty()
            || !Path::new(file)
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(unfit(&format!(
                "{file:?} is not a path below the attachment directory"
            )));
        }

        let path = dir.join(file);
        let reading = tokio::task::spawn_blocking(move || {
            // Links are resolved before the comparison: one that leads outside is rejected.
            let dir = dir.canonicalize()?;
            let path = path.canonicalize()?;
            if !path.starts_with(&dir) || !path.is_file() {
                return Err(std::io::Error::other(
                    "not a file of the attachment directory",
                ));
            }

            let mut bytes = Vec::new();
            // One byte more shows that the file is too large, without reading all of it.
            let max_bytes = u64::try_from(remaining_bytes)
                .unwrap_or(u64::MAX)
                .saturating_add(1);

            std::fs::File::open(path)?
                .take(max_bytes)
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        });

        let read = reading
            .await
            .map_err(|_| ProviderError::throttled("attachment", "node is shutting down"))?;
        read.map_err(|error| {
            ProviderError::permanent("attachment", format!("attachment {file:?}: {error}"))
        })
    }

    async fn url(
        &self,
        tenant: &TenantId,
        text: &str,
        remaining_bytes: usize,
    ) -> Result<Vec<u8>, ProviderError> {
        let url = Url::parse(text)
            .map_err(|error| unfit(&format!("invalid attachment URL {text:?}: {error}")))?;

        if !matches!(url.scheme(), "http" | "https")
            || !url.username().is_empty()
            || url.password().is_some()
        {
            return Err(unfit(
                "an attachment URL requires http or https, without a user name or a password",
            ));
        }

        let label = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        let denied = |denied: &egress::EgressDenied| {
            ProviderError::permanent("egress_denied", format!("attachment {label}: {denied}"))
        };

        self.egress
            .check(tenant, &url)
            .map_err(|error| denied(&error))?;

        // Created with the first download: most upstreams have none.
        let clients = self.clients.get_or_init(|| {
            Clients::new(TlsConfig::default(), true)
                .map_err(|error| error.without_url().to_string())
        });

        // The error does not concern the mail server.
        let later = |reason: String| {
            ProviderError::throttled("attachment", format!("attachment {label}: {reason}"))
        };
        let pair = clients
            .as_ref()
            .map_err(|error| later(error.clone()))?
            .pair()?;

        let client = if self.egress.private {
            &pair.open
        } else {
            &pair.guarded
        };

        let response = client
            .get(url)
            .send()
            .await
            .map_err(|error| match egress::egress_error(&error) {
                Some(found) => denied(found),
                None => later(error.without_url().to_string()),
            })?;

        let status = response.status();

        // These may succeed later, and nothing was sent yet.
        if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) {
            return Err(later(format!("status {}", status.as_u16())));
        }

        if !status.is_success() {
            let message = format!("attachment {label}: status {}", status.as_u16());
            return Err(ProviderError::permanent("attachment", message));
        }

        let body = ResponseBody::read(response, remaining_bytes).await;
        let body = body.map_err(|error| later(error.without_url().to_string()))?;
        if let Some(reason) = body.still_encoded {
            return Err(later(reason));
        }
        if body.cut {
            Err(self.too_much())
        } else {
            Ok(body.bytes)
        }
    }

    fn too_much(&self) -> ProviderError {
        unfit(&format!("its attachments exceed {} bytes", self.max_bytes))
    }
}

fn inline(text: &str) -> Result<Vec<u8>, ProviderError> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| unfit("an attachment is not valid base64"))?;
    if bytes.len() > MAX_INLINE_BYTES {
        let length = bytes.len();
        let max_bytes = MAX_INLINE_BYTES;
        return Err(unfit(&format!(
            "a base64 attachment has {length} bytes, the limit is {max_bytes}; use file or url"
        )));
    }

    Ok(bytes)
}

fn last_of(reference: &AttachmentRef) -> Option<String> {
    let file = reference.file.as_ref()?;
    Path::new(file)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
}

fn unfit(reason: &str) -> ProviderError {
    ProviderError::permanent("invalid_payload", reason)
}
