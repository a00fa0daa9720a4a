//! What is enclosed with a mail: files below one folder, what a URL leads to, or a few bytes in the arguments themselves.

use std::io::Read as _;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::TenantId;
use reqwest::Url;
use serde::Deserialize;

use crate::egress::{self, Egress};
use crate::http::{Clients, ReadBody, Tls};
use crate::provider::Refusal;

/// The most that arguments carry themselves, in bytes.
const MAX_INLINE: usize = 256 << 10;

/// Where an attachment is.
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

/// An attachment with what is in it.
pub(crate) struct Enclosed {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
}

/// Where attachments may come from.
pub(crate) struct Cabinet {
    /// Files come from here, or there are none.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) egress: Egress,
    /// The most that one may have, in bytes.
    pub(crate) most: usize,
    /// Made when a URL is first asked for: who encloses none needs no certificates of the system.
    pub(crate) clients: OnceLock<Result<Clients, String>>,
}

impl Cabinet {
    pub(crate) async fn fetch(
        &self,
        tenant: &TenantId,
        references: &[AttachmentRef],
    ) -> Result<Vec<Enclosed>, Refusal> {
        let (mut enclosed, mut room) = (Vec::with_capacity(references.len()), self.most);
        for reference in references {
            let bytes = match (&reference.file, &reference.url, &reference.base64) {
                (Some(file), None, None) => self.file(file, room).await?,
                (None, Some(url), None) => self.url(tenant, url, room).await?,
                (None, None, Some(text)) => inline(text)?,
                _ => return Err(unfit("an attachment has exactly one of file, url and base64")),
            };
            room = room.checked_sub(bytes.len()).ok_or_else(|| self.too_much())?;
            let name = reference.name.clone().or_else(|| last_of(reference)).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| unfit("an attachment has no name"))?;
            let kind = reference.kind.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
            enclosed.push(Enclosed { name, kind, bytes });
        }
        Ok(enclosed)
    }

    /// Nothing leads out of the folder, links neither.
    async fn file(&self, file: &str, room: usize) -> Result<Vec<u8>, Refusal> {
        let Some(folder) = self.folder.clone() else {
            return Err(unfit("there is no folder for attachments; write attachments = { folder = \"…\" }"));
        };
        if file.is_empty() || !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(unfit(&format!("{file:?} is no path below the folder of attachments")));
        }
        let path = folder.join(file);
        let reading = tokio::task::spawn_blocking(move || {
            let (folder, path) = (folder.canonicalize()?, path.canonicalize()?);
            if !path.starts_with(&folder) || !path.is_file() {
                return Err(std::io::Error::other("it is no file of the folder of attachments"));
            }
            let mut bytes = Vec::new();
            let most = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
            std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let read = reading.await.map_err(|_| Refusal::busy("attachment", "the process is ending"))?;
        read.map_err(|error| Refusal::failed("attachment", format!("the attachment {file:?}: {error}")))
    }

    async fn url(&self, tenant: &TenantId, text: &str, room: usize) -> Result<Vec<u8>, Refusal> {
        let url = Url::parse(text).map_err(|error| unfit(&format!("an attachment: {text:?}: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.username().is_empty() || url.password().is_some()
        {
            return Err(unfit("an attachment comes by http or https, without a user name or a password"));
        }
        let shown = format!("{}{}", url.host_str().unwrap_or_default(), url.path());
        let refused = |refused: &egress::Refused| {
            Refusal::failed("egress_refused", format!("the attachment {shown}: {refused}"))
        };
        self.egress.check(tenant, &url).map_err(|error| refused(&error))?;
        let made = self.clients.get_or_init(|| {
            Clients::new(Tls::default(), true).map_err(|error| error.without_url().to_string())
        });
        // It is not the mail server that is ill.
        let later = |why: String| Refusal::busy("attachment", format!("the attachment {shown}: {why}"));
        let pair = made.as_ref().map_err(|error| later(error.clone()))?.pair()?;
        let client = if self.egress.private { &pair.open } else { &pair.guarded };
        let response = client.get(url).send().await.map_err(|error| match egress::refusal(&error) {
            Some(found) => refused(found),
            None => later(error.without_url().to_string()),
        })?;
        let status = response.status();
        if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) {
            return Err(later(format!("it answered {}", status.as_u16())));
        }
        if !status.is_success() {
            let message = format!("the attachment {shown}: it answered {}", status.as_u16());
            return Err(Refusal::failed("attachment", message));
        }
        let body = ReadBody::read(response, room).await;
        let body = body.map_err(|error| later(error.without_url().to_string()))?;
        if body.cut { Err(self.too_much()) } else { Ok(body.bytes) }
    }

    fn too_much(&self) -> Refusal {
        unfit(&format!("its attachments have more than {} bytes", self.most))
    }
}

fn inline(text: &str) -> Result<Vec<u8>, Refusal> {
    let bytes = STANDARD.decode(text).map_err(|_| unfit("an attachment is no base64"))?;
    if bytes.len() > MAX_INLINE {
        let (length, most) = (bytes.len(), MAX_INLINE);
        return Err(unfit(&format!(
            "an attachment in base64 has {length} bytes, more than {most}; write file or url"
        )));
    }
    Ok(bytes)
}

fn last_of(reference: &AttachmentRef) -> Option<String> {
    let file = reference.file.as_ref()?;
    Path::new(file).file_name().map(|name| name.to_string_lossy().into_owned())
}

fn unfit(why: &str) -> Refusal {
    Refusal::failed("bad_payload", why)
}
