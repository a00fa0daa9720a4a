//! Carries batches of spans over HTTP with the client that effects use.
//!
//! The exporter sends from a thread of its own that is none of the runtime's, so each request is handed to the runtime.

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

#[derive(Clone, Debug)]
pub(super) struct Courier {
    http: reqwest::Client,
    runtime: Handle,
}

impl Courier {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self { http: orlog_effect::http::client().build()?, runtime: Handle::try_current()? })
    }
}

#[async_trait]
impl HttpClient for Courier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request: reqwest::Request = request.try_into()?;
        let http = self.http.clone();
        let sent = self.runtime.spawn(async move {
            let response = http.execute(request).await?.error_for_status()?;
            let status = response.status();
            Ok::<_, reqwest::Error>((status, response.bytes().await?))
        });
        let (status, body) = sent.await??;
        Ok(Response::builder().status(status).body(body)?)
    }
}
