//! Descriptors from the reflection service of the upstream: `grpc.reflection.v1`, or `v1alpha` for
//! older servers. Both use the same messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orlog_model::Timestamp;
use prost::Message as _;
use prost_reflect::DescriptorPool;
use prost_types::FileDescriptorProto;
use reqwest::header::HeaderMap;
use tokio::sync::Mutex;
use tonic::Code;
use tonic::transport::Channel;

use super::channel::{GrpcCall, GrpcChannel};
use super::error::GrpcError;
use super::schema::Schema;

const VERSIONS: [&str; 2] = ["v1", "v1alpha"];

/// Maximum number of files that one service may require.
const MAX_FILES: usize = 1000;

/// Cache of service descriptors. It fetches them on demand, and again after a configuration reload
/// or if they turn out to be outdated.
#[derive(Default)]
pub(crate) struct Reflection {
    epoch: AtomicU64,
    cache: Mutex<BTreeMap<String, CachedSchema>>,
}

struct CachedSchema {
    epoch: u64,
    at: Timestamp,
    schema: Arc<Schema>,
}

pub(crate) struct ReflectionCall<'a> {
    pub(crate) line: &'a GrpcChannel,
    pub(crate) channel: Channel,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) at: Timestamp,
}

pub(crate) enum ReflectionError {
    /// The upstream did not respond.
    Fault(GrpcError),
    /// The upstream has no reflection service, or its response is invalid.
    Useless(String),
    /// The upstream does not have the service.
    NoService,
}

impl Reflection {
    pub(crate) fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the descriptors of a service and their fetch time. One caller at a time fetches; the
    /// others wait for it.
    pub(crate) async fn schema(
        &self,
        service: &str,
        call: &ReflectionCall<'_>,
    ) -> Result<(Arc<Schema>, Timestamp), ReflectionError> {
        let mut cache = self.cache.lock().await;

        // A refresh increases the epoch, so that earlier entries are stale.
        let epoch = self.epoch.load(Ordering::Relaxed);
        if let Some(known) = cache.get(service).filter(|known| known.epoch == epoch) {
            return Ok((Arc::clone(&known.schema), known.at));
        }

        let schema = Arc::new(call.service(service).await?);
        cache.insert(
            service.to_owned(),
            CachedSchema {
                epoch,
                at: call.at,
                schema: Arc::clone(&schema),
            },
        );
        Ok((schema, call.at))
    }
}

impl ReflectionCall<'_> {
    async fn service(&self, service: &str) -> Result<Schema, ReflectionError> {
        let mut useless = String::new();
        for version in VERSIONS {
            match self.files(version, service).await {
                Ok(files) => {
                    return pool(files)
                        .map(Schema::new)
                        .map_err(ReflectionError::Useless);
                }
                // An older server. The next version has the same messages.
                Err(ReflectionError::Fault(
                    GrpcError::Status(status) | GrpcError::Proxy(status),
                )) if status.code() == Code::Unimplemented => {
                    useless = format!("no reflection service: {}", status.message());
                }
                Err(other) => return Err(other),
            }
        }
        Err(ReflectionError::Useless(useless))
    }

    /// Returns the file of the service and all its dependencies. Some servers send them together,
    /// some one by one.
    async fn files(
        &self,
        version: &str,
        service: &str,
    ) -> Result<Vec<FileDescriptorProto>, ReflectionError> {
        let request = Request {
            symbol: Some(service.to_owned()),
            ..Request::default()
        };

        let first = self
            .query(version, &request)
            .await?
            .ok_or(ReflectionError::NoService)?;

        let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        let mut requested = BTreeSet::new();
        let mut fresh = first;

        loop {
            files.extend(fresh.into_iter().map(|file| (file.name().to_owned(), file)));
            let needed = files.values().flat_map(|file| &file.dependency);
            let missing = needed
                .filter(|name| !files.contains_key(*name))
                // Each file is requested once, also if the server does not send it.
                .find(|name| requested.insert((*name).clone()));
            let Some(name) = missing.cloned() else { break };
            // A server that invents dependencies must not keep this loop running.
            if files.len() > MAX_FILES {
                return Err(ReflectionError::Useless(format!(
                    "{service} requires more than {MAX_FILES} files"
                )));
            }

            let request = Request {
                file: Some(name.clone()),
                ..Request::default()
            };
            fresh = match self.query(version, &request).await? {
                Some(files) => files,
                // Well-known types are built in, even if the server does not send them.
                None => well_known(&name).into_iter().collect(),
            };
        }

        Ok(files.into_values().collect())
    }

    /// Returns the files of a response; `None` if the server does not have them.
    async fn query(
        &self,
        version: &str,
        request: &Request,
    ) -> Result<Option<Vec<FileDescriptorProto>>, ReflectionError> {
        let call = GrpcCall {
            path: format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"),
            headers: self.headers.clone(),
            message: request.encode_to_vec(),
            timeout: self.timeout,
        };

        let bytes = match self.line.call(self.channel.clone(), call).await {
            // Some servers report it in the response, some by the status.
            Err(GrpcError::Status(status)) if status.code() == Code::NotFound => return Ok(None),
            result => result.map_err(ReflectionError::Fault)?,
        };

        let invalid =
            |error| ReflectionError::Useless(format!("invalid reflection response: {error}"));
        let response = Response::decode(bytes).map_err(invalid)?;
        if let Some(error) = response.error {
            if error.code == Code::NotFound as i32 {
                return Ok(None);
            }
            return Err(ReflectionError::Useless(format!(
                "reflection error: {}",
                error.message
            )));
        }

        response
            .files
            .unwrap_or_default()
            .files
            .iter()
            .map(|file| FileDescriptorProto::decode(file.as_slice()))
            .collect::<Result<_, _>>()
            .map(Some)
            .map_err(invalid)
    }
}

fn well_known(name: &str) -> Option<FileDescriptorProto> {
    Some(
        DescriptorPool::global()
            .get_file_by_name(name)?
            .file_descriptor_proto()
            .clone(),
    )
}

fn pool(files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, String> {
    let mut pool = DescriptorPool::new();
    let added = pool.add_file_descriptor_protos(files);
    added.map_err(|error| format!("inconsistent reflection descriptors: {error}"))?;
    Ok(pool)
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, optional, tag = "3")]
    file: Option<String>,
    #[prost(string, optional, tag = "4")]
    symbol: Option<String>,
}

/// `ServerReflectionResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(message, optional, tag = "4")]
    files: Option<Files>,
    #[prost(message, optional, tag = "7")]
    error: Option<ErrorResponse>,
}

/// `FileDescriptorResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    files: Vec<Vec<u8>>,
}

/// `ErrorResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct ErrorResponse {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[cfg(test)]
mod tests {
    use orlog_testkit::grpc_server::{self, GrpcServerBuilder, Handler};
    use orlog_testkit::wait::within;
    use serde_json::Value;

    use super::super::channel::GrpcEndpoint;
    use super::*;
    use crate::http::TlsConfig;

    const PROTO: &str = include_str!("../../../../../tests/protos/payments.proto");

    #[tokio::test]
    async fn descriptors_are_fetched_from_both_versions() {
        for version in [
            grpc_server::Reflection::V1,
            grpc_server::Reflection::V1Alpha,
        ] {
            let handler: Handler = Arc::new(|_| Box::pin(std::future::ready(Ok(Value::Null))));
            let server = GrpcServerBuilder::new(PROTO, version).start(handler).await;
            let line = GrpcChannel::new(GrpcEndpoint {
                endpoint: server.endpoint().parse().unwrap(),
                tls: TlsConfig::default(),
                guarded: false,
                max_request: 1 << 20,
                max_response: 1 << 20,
            });
            let call = ReflectionCall {
                line: &line,
                channel: line.channel().unwrap(),
                headers: HeaderMap::new(),
                timeout: Duration::from_secs(30),
                at: Timestamp::default(),
            };

            let reflection = Reflection::default();
            let fetched = reflection.schema("payments.v1.Payments", &call);
            let Ok((schema, _)) = within("descriptors", fetched).await else {
                panic!("no descriptors from {version:?}");
            };
            let method = "payments.v1.Payments/Charge".parse().unwrap();
            assert!(schema.method(&method).is_ok());

            let missing = reflection.schema("payments.v2.Payments", &call);
            let missing = within("no descriptors", missing).await;
            assert!(matches!(missing, Err(ReflectionError::NoService)));
        }
    }
}
