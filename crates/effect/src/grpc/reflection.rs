//! Descriptors from the upstream itself: `grpc.reflection.v1`, or `v1alpha` where it knows only that. Both speak the same
//! messages.

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

use super::channel::{Call, Fault, Line};
use super::schema::Schema;

const VERSIONS: [&str; 2] = ["v1", "v1alpha"];

/// The most files that one service may need.
const MOST: usize = 1000;

/// What upstreams said about their services. It is asked for when it is needed, kept, and asked for anew when the
/// configuration is read again or what it said turns out to be wrong.
#[derive(Default)]
pub(crate) struct Reflection {
    epoch: AtomicU64,
    kept: Mutex<BTreeMap<String, Kept>>,
}

struct Kept {
    epoch: u64,
    at: Timestamp,
    schema: Arc<Schema>,
}

/// How to ask.
pub(crate) struct Asking<'a> {
    pub(crate) line: &'a Line,
    pub(crate) channel: Channel,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) at: Timestamp,
}

/// A service that could not be learnt about.
pub(crate) enum Unknown {
    /// The upstream did not answer.
    Fault(Fault),
    /// It offers no reflection, or says what makes no sense.
    Useless(String),
    /// It has no such service.
    NoService,
}

impl Reflection {
    /// Forgets everything.
    pub(crate) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// What is known of a service, and since when. One at a time asks the upstream; the others wait for it.
    pub(crate) async fn schema(
        &self,
        service: &str,
        asking: &Asking<'_>,
    ) -> Result<(Arc<Schema>, Timestamp), Unknown> {
        let mut kept = self.kept.lock().await;
        let epoch = self.epoch.load(Ordering::Relaxed);
        if let Some(known) = kept.get(service).filter(|known| known.epoch == epoch) {
            return Ok((Arc::clone(&known.schema), known.at));
        }
        let schema = Arc::new(asking.service(service).await?);
        kept.insert(service.to_owned(), Kept { epoch, at: asking.at, schema: Arc::clone(&schema) });
        Ok((schema, asking.at))
    }
}

impl Asking<'_> {
    async fn service(&self, service: &str) -> Result<Schema, Unknown> {
        let mut useless = String::new();
        for version in VERSIONS {
            match self.files(version, service).await {
                Ok(files) => return pool(files).map(Schema::new).map_err(Unknown::Useless),
                Err(Unknown::Fault(Fault::Told(status))) if status.code() == Code::Unimplemented => {
                    useless = format!("it offers no reflection: {}", status.message());
                }
                Err(other) => return Err(other),
            }
        }
        Err(Unknown::Useless(useless))
    }

    /// The file of the service and all that it needs. Some servers send them together, some one by one.
    async fn files(&self, version: &str, service: &str) -> Result<Vec<FileDescriptorProto>, Unknown> {
        let request = Request { symbol: Some(service.to_owned()), ..Request::default() };
        let first = self.ask(version, &request).await?.ok_or(Unknown::NoService)?;
        let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        let mut asked = BTreeSet::new();
        let mut fresh = first;
        loop {
            files.extend(fresh.into_iter().map(|file| (file.name().to_owned(), file)));
            let needed = files.values().flat_map(|file| &file.dependency);
            let missing =
                needed.filter(|name| !files.contains_key(*name)).find(|name| asked.insert((*name).clone()));
            let Some(name) = missing.cloned() else { break };
            if files.len() > MOST {
                return Err(Unknown::Useless(format!("{service} needs more than {MOST} files")));
            }
            let request = Request { file: Some(name.clone()), ..Request::default() };
            fresh = match self.ask(version, &request).await? {
                Some(files) => files,
                // Well-known types are known here, whether or not the server brings them.
                None => well_known(&name).into_iter().collect(),
            };
        }
        Ok(files.into_values().collect())
    }

    /// The files of an answer; `None` where the server has no such thing.
    async fn ask(
        &self,
        version: &str,
        request: &Request,
    ) -> Result<Option<Vec<FileDescriptorProto>>, Unknown> {
        let call = Call {
            path: format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"),
            headers: self.headers.clone(),
            message: request.encode_to_vec(),
            timeout: self.timeout,
        };
        let bytes = match self.line.call(self.channel.clone(), call).await {
            // Some servers say so in the answer, some by the status.
            Err(Fault::Told(status)) if status.code() == Code::NotFound => return Ok(None),
            answer => answer.map_err(Unknown::Fault)?,
        };
        let senseless = |error| Unknown::Useless(format!("its reflection cannot be read: {error}"));
        let response = Response::decode(bytes).map_err(senseless)?;
        if let Some(error) = response.error {
            if error.code == Code::NotFound as i32 {
                return Ok(None);
            }
            return Err(Unknown::Useless(format!("its reflection answered: {}", error.message)));
        }
        let files = response.files.unwrap_or_default().files;
        let files = files.iter().map(|file| FileDescriptorProto::decode(file.as_slice()));
        files.collect::<Result<_, _>>().map(Some).map_err(senseless)
    }
}

fn well_known(name: &str) -> Option<FileDescriptorProto> {
    Some(DescriptorPool::global().get_file_by_name(name)?.file_descriptor_proto().clone())
}

fn pool(files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, String> {
    let mut pool = DescriptorPool::new();
    let added = pool.add_file_descriptor_protos(files);
    added.map_err(|error| format!("its reflection does not fit together: {error}"))?;
    Ok(pool)
}

/// `ServerReflectionRequest`.
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
