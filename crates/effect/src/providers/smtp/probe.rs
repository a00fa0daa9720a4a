//! Probes of emails over the HTTP API of the mail server.

use orlog_model::WorkItem;
use serde::{Deserialize, Serialize};

use crate::config::Error;
use crate::http::{HttpAuthConfig, HttpClient, HttpClientOptions, TlsConfig};
use crate::provider::{Probe, ProbeResult};
use crate::providers::http::{HttpProbe, HttpProbeConfig, RequestLimits};

/// HTTP API that returns whether the server has received an email.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpProbeConfig {
    /// Prefix of the URL.
    pub base_url: String,
    /// Request; the `Message-ID` of an email is `<{@id}@domain>`.
    pub request: HttpProbeConfig,
    /// Authorization of requests.
    pub auth: Option<HttpAuthConfig>,
    /// Certificates.
    pub tls: Option<TlsConfig>,
}

pub(super) struct SmtpProbe {
    client: HttpClient,
    request: HttpProbe,
}

impl SmtpProbeConfig {
    pub(super) fn compile(&self, upstream: &str) -> Result<SmtpProbe, Error> {
        let invalid = |reason: String| Error::upstream(upstream, reason);
        let tls = self.tls.clone().unwrap_or_default();

        tls.check()
            .map_err(|reason| invalid(format!("probe: {reason}")))?;
        self.auth
            .as_ref()
            .map_or(Ok(()), HttpAuthConfig::check)
            .map_err(invalid)?;

        let has_credentials = self.auth.is_some() || tls.cert.is_some();
        let limits = RequestLimits {
            has_base: true,
            has_credentials,
            lists_hosts: false,
        };
        let request = self.request.compile(limits).map_err(invalid)?;

        let options = HttpClientOptions {
            tls,
            auth: self.auth.clone(),
            ..HttpClientOptions::default()
        };

        Ok(SmtpProbe {
            client: HttpClient::new(upstream, Some(&self.base_url), options)?,
            request,
        })
    }
}

impl SmtpProbe {
    pub(super) async fn send(&self, upstream: &str, item: &WorkItem, probe: Probe) -> ProbeResult {
        self.request.send(&self.client, upstream, item, probe).await
    }
}
