//! Configuration of a gRPC upstream.

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
use crate::grpc::{
    DescriptorSource, Grpc, GrpcEndpoint, GrpcOperation, GrpcResponseRule, MethodName, Schema, check_path,
};
use crate::http::{HttpAuthConfig, TlsConfig};
use crate::placeholders::JsonTemplate;
use crate::policy::Policy;
use crate::upstream::Upstream;

/// Default maximum message size in each direction, in bytes: 4 MiB, the default of gRPC.
const MAX_MESSAGE: usize = 4 << 20;

upstream_config! {
    /// Configuration of a gRPC upstream.
    GrpcConfig {
        /// Endpoint: `http://host:port`, or `https://host:port` for TLS.
        pub endpoint: String,
        /// File with a `FileDescriptorSet`; relative to the directory of the configuration file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub descriptors: Option<PathBuf>,
        /// Whether to fetch descriptors from the upstream by reflection.
        #[serde(default)]
        pub reflection: bool,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, GrpcEffectConfig>,
        /// Authorization of calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub auth: Option<HttpAuthConfig>,
        /// Certificates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls: Option<TlsConfig>,
        /// Egress rules of the endpoint; none if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub egress: Option<Egress>,
        /// Maximum size of a sent message, in bytes. Default: 4194304.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_request_bytes: Option<NonZeroUsize>,
        /// Maximum size of a received message, in bytes. Default: 4194304.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_response_bytes: Option<NonZeroUsize>,
    }
}

/// One effect of a gRPC upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcEffectConfig {
    /// Method, for example `payments.v1.Payments/Charge`.
    pub method: String,
    /// Additional metadata besides the metadata of every call.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Template of the message as JSON. Default: the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Message field for the idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_field: Option<String>,
    /// Response rules; the first match decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responses: Vec<GrpcResponseRule>,
}

impl GrpcConfig {
    /// Builds the upstream. Paths of files are relative to `dir`.
    ///
    /// # Errors
    /// If the endpoint, the descriptors, a method, metadata or a rule is invalid.
    pub fn upstream(&self, name: &str, dir: &Path) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::Upstream { upstream: name.to_owned(), reason };
        let grpc_endpoint = self.grpc_endpoint().map_err(invalid)?;
        self.auth.as_ref().map_or(Ok(()), HttpAuthConfig::check).map_err(invalid)?;
        let (source, fingerprint) = self.source(dir).map_err(invalid)?;
        let mut operations = BTreeMap::new();
        for (effect, config) in &self.effects {
            let operation = config.operation(&source).map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            operations.insert(effect.clone(), operation);
        }
        let grpc = Grpc::new(name, grpc_endpoint, source, self.auth.clone(), operations)?;
        let upstream =
            Upstream::effects(name, grpc.effects(), Arc::new(grpc), self.policy(Policy::default()));
        Ok(upstream.for_tenants(self.tenants.clone()).with_origin(format!("{}{fingerprint}", origin(self))))
    }

    fn grpc_endpoint(&self) -> Result<GrpcEndpoint, String> {
        let endpoint = endpoint(&self.endpoint).map_err(|reason| {
            let displayed: String = self.endpoint.chars().take(128).collect();
            format!("invalid endpoint {displayed:?}: {reason}; example: http://127.0.0.1:50051")
        })?;
        let tls = self.tls.clone().unwrap_or_default();
        tls.check()?;
        if tls != TlsConfig::default() && endpoint.scheme() == "http" {
            return Err("tls requires an endpoint with the scheme https://".to_owned());
        }
        for tenant in self.tenants.iter().flatten() {
            self.egress
                .as_ref()
                .map_or(Ok(()), |egress| egress.check(tenant, &endpoint))
                .map_err(|error| denied(&error))?;
        }
        if let Some(egress) = self.egress.as_ref().filter(|_| self.tenants.is_none()) {
            egress.check_any_tenant(&endpoint).map_err(|error| denied(&error))?;
        }
        let limit_or_default = |limit: Option<NonZeroUsize>| limit.map_or(MAX_MESSAGE, NonZeroUsize::get);
        Ok(GrpcEndpoint {
            endpoint,
            tls,
            guarded: self.egress.as_ref().is_some_and(|egress| !egress.private),
            max_request: limit_or_default(self.max_request_bytes),
            max_response: limit_or_default(self.max_response_bytes),
        })
    }

    /// Returns the source of descriptors, and a fingerprint that changes with their file.
    fn source(&self, dir: &Path) -> Result<(DescriptorSource, String), String> {
        let Some(file) = self.descriptors.as_ref().filter(|_| !self.reflection) else {
            return match (self.reflection, &self.descriptors) {
                (true, None) => Ok((DescriptorSource::Reflection, String::new())),
                (true, Some(_)) => {
                    Err("descriptors and reflection are mutually exclusive; remove one".to_owned())
                }
                (false, _) => Err("message descriptors are missing; set descriptors = \"file.pb\" \
                                   or reflection = true"
                    .to_owned()),
            };
        };
        let path = dir.join(file);
        let displayed = path.display();
        let bytes = std::fs::read(&path)
            .map_err(|error| format!("cannot read the descriptors {displayed}: {error}; generate them with protoc --include_imports --descriptor_set_out"))?;
        let schema = Schema::decode(&bytes).map_err(|reason| {
            format!("invalid descriptors {displayed}: {reason}; generate them with protoc --include_imports --descriptor_set_out")
        })?;
        let mut fingerprint = String::new();
        for byte in Sha256::digest(&bytes) {
            write!(fingerprint, "{byte:02x}").expect("writing to a string never fails");
        }
        Ok((DescriptorSource::File(schema), fingerprint))
    }
}

fn denied(denied: &crate::egress::EgressDenied) -> String {
    format!("invalid endpoint: {denied}")
}

impl GrpcEffectConfig {
    fn operation(&self, source: &DescriptorSource) -> Result<GrpcOperation, String> {
        let method: MethodName = self.method.parse()?;
        if let DescriptorSource::File(schema) = source {
            let described = schema.method(&method)?;
            self.key_field.as_ref().map_or(Ok(()), |path| check_path(&described.input(), path))?;
        }
        let metadata = self.metadata.iter().map(|(name, value)| {
            if name.starts_with("grpc-")
                || name.ends_with("-bin")
                || ["te", "user-agent"].contains(&name.as_str())
            {
                return Err(format!("metadata {name:?} is reserved for gRPC or binary"));
            }
            http::header(name, value)
        });
        let metadata = metadata.collect::<Result<Vec<_>, String>>()?;
        let body = self.body.as_ref().map(JsonTemplate::parse).transpose();
        let body = body.map_err(|reason| format!("invalid body: {reason}"))?;
        for (index, rule) in self.responses.iter().enumerate() {
            rule.check().map_err(|reason| format!("responses[{index}]: {reason}"))?;
        }
        let (key_field, responses) = (self.key_field.clone(), self.responses.clone());
        Ok(GrpcOperation { method, metadata, body, key_field, responses })
    }
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme {:?} is not http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or a password".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("it contains a path, a query or a fragment, which gRPC does not support".to_owned());
    }
    Ok(url)
}
