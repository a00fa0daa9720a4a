//! A gRPC upstream as the configuration describes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::EffectName;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Error, http, origin, upstream_config};
use crate::egress::Egress;
use crate::grpc::{AnswerConfig, Grpc, MethodName, Operation, Place, Schema, Source, check_path};
use crate::http::{AuthConfig, Tls};
use crate::placeholders::Json;
use crate::policy::Policy;
use crate::upstream::Upstream;

/// The longest message in each direction where nothing else is said, in bytes: 4 MiB, as gRPC has it.
const MAX_MESSAGE: usize = 4 << 20;

upstream_config! {
    /// One gRPC upstream.
    GrpcConfig {
        /// Where it is: `http://host:port`, or `https://host:port` for TLS.
        pub endpoint: String,
        /// A file with a `FileDescriptorSet`; relative to the folder of the description.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub descriptors: Option<PathBuf>,
        /// Whether the upstream is asked for its descriptors.
        #[serde(default)]
        pub reflection: bool,
        /// What it performs, by the effect's name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, CallConfig>,
        /// How calls are authorized.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub auth: Option<AuthConfig>,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<Tls>,
        /// What the endpoint is held to; to nothing where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub egress: Option<Egress>,
        /// The longest message that is sent, in bytes; 4194304 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_request_bytes: Option<NonZeroUsize>,
        /// The longest message that is read, in bytes; 4194304 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_response_bytes: Option<NonZeroUsize>,
    }
}

/// One effect of a gRPC upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallConfig {
    /// The method, `payments.v1.Payments/Charge`.
    pub method: String,
    /// Metadata besides that of every call.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// A template of the message as JSON; the arguments where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The field of the message that takes the idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_field: Option<String>,
    /// What answers mean; the first that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<AnswerConfig>,
}

impl GrpcConfig {
    /// The upstream it describes. Files that it names are in `folder`.
    ///
    /// # Errors
    /// When the endpoint, the descriptors, a method, metadata or a rule is wrong.
    pub fn upstream(&self, name: &str, folder: &Path) -> Result<Upstream, Error> {
        let wrong = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let place = self.place().map_err(wrong)?;
        self.auth.as_ref().map_or(Ok(()), AuthConfig::check).map_err(wrong)?;
        let (source, mark) = self.source(folder).map_err(wrong)?;
        let mut operations = BTreeMap::new();
        for (effect, config) in &self.effects {
            let operation = config.operation(&source).map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            operations.insert(effect.clone(), operation);
        }
        let grpc = Grpc::new(name, place, source, self.auth.clone(), operations)?;
        let upstream =
            Upstream::effects(name, grpc.effects(), Arc::new(grpc), self.policy(Policy::default()));
        Ok(upstream.for_tenants(self.tenants.clone()).made_from(format!("{}{mark}", origin(self))))
    }

    fn place(&self) -> Result<Place, String> {
        let endpoint = endpoint(&self.endpoint).map_err(|reason| {
            let shown: String = self.endpoint.chars().take(128).collect();
            format!("the endpoint {shown:?}: {reason}; write for example http://127.0.0.1:50051")
        })?;
        let tls = self.tls.clone().unwrap_or_default();
        tls.check()?;
        if tls != Tls::default() && endpoint.scheme() == "http" {
            return Err("tls needs an endpoint that begins with https://".to_owned());
        }
        for tenant in self.tenants.iter().flatten() {
            self.egress
                .as_ref()
                .map_or(Ok(()), |egress| egress.check(tenant, &endpoint))
                .map_err(|error| refused(&error))?;
        }
        if let Some(egress) = self.egress.as_ref().filter(|_| self.tenants.is_none()) {
            egress.check_for_all(&endpoint).map_err(|error| refused(&error))?;
        }
        let most = |limit: Option<NonZeroUsize>| limit.map_or(MAX_MESSAGE, NonZeroUsize::get);
        Ok(Place {
            endpoint,
            tls,
            guarded: self.egress.as_ref().is_some_and(|egress| !egress.private),
            max_request: most(self.max_request_bytes),
            max_response: most(self.max_response_bytes),
        })
    }

    /// Where descriptors come from, and a mark that is another one when their file has changed.
    fn source(&self, folder: &Path) -> Result<(Source, String), String> {
        let Some(file) = self.descriptors.as_ref().filter(|_| !self.reflection) else {
            return match (self.reflection, &self.descriptors) {
                (true, None) => Ok((Source::Reflection, String::new())),
                (true, Some(_)) => Err("it has descriptors and reflection; keep one".to_owned()),
                (false, _) => {
                    Err("nothing says what its messages look like; write descriptors = \"file.pb\" \
                                   or reflection = true"
                        .to_owned())
                }
            };
        };
        let path = folder.join(file);
        let shown = path.display();
        let bytes = std::fs::read(&path)
            .map_err(|error| format!("the descriptors {shown} cannot be read: {error}; write them with protoc --include_imports --descriptor_set_out"))?;
        let schema = Schema::decode(&bytes).map_err(|why| {
            format!("the descriptors {shown}: {why}; write them with protoc --include_imports --descriptor_set_out")
        })?;
        let mut mark = String::new();
        for byte in Sha256::digest(&bytes) {
            write!(mark, "{byte:02x}").expect("a text takes everything");
        }
        Ok((Source::File(schema), mark))
    }
}

fn refused(refused: &crate::egress::Refused) -> String {
    format!("the endpoint: {refused}")
}

impl CallConfig {
    fn operation(&self, source: &Source) -> Result<Operation, String> {
        let method: MethodName = self.method.parse()?;
        if let Source::File(schema) = source {
            let described = schema.method(&method)?;
            self.key_field.as_ref().map_or(Ok(()), |path| check_path(&described.input(), path))?;
        }
        let metadata = self.metadata.iter().map(|(name, value)| {
            if name.starts_with("grpc-")
                || name.ends_with("-bin")
                || ["te", "user-agent"].contains(&name.as_str())
            {
                return Err(format!("the metadata {name:?} belongs to gRPC itself, or is binary"));
            }
            http::header(name, value)
        });
        let metadata = metadata.collect::<Result<Vec<_>, String>>()?;
        let body = self.body.as_ref().map(Json::parse).transpose();
        let body = body.map_err(|reason| format!("the body: {reason}"))?;
        for (index, rule) in self.responses.iter().enumerate() {
            rule.check().map_err(|reason| format!("responses[{index}]: {reason}"))?;
        }
        let (key_field, responses) = (self.key_field.clone(), self.responses.clone());
        Ok(Operation { method, metadata, body, key_field, responses })
    }
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme {:?} is neither http nor https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user name or a password".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("it holds a path, a query or a fragment, which gRPC has no use for".to_owned());
    }
    Ok(url)
}
