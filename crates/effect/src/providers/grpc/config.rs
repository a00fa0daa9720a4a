//! Configuration of a gRPC upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_model::{EffectName, TenantId};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::channel::GrpcEndpoint;
use super::reflection::Reflection;
use super::schema::{MethodName, Schema, check_path};
use super::status::{GrpcProbeRule, GrpcResponseRule};
use super::{DescriptorSource, Grpc, GrpcOperation, GrpcProbe, MessageTemplate};
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
use crate::egress::Egress;
use crate::http::{HttpAuthConfig, TlsConfig, parse_headers};
use crate::operations::Operations;
use crate::policy::Policy;
use crate::response_rules::{check_probe_rules, check_rules};
use crate::template::JsonTemplate;
use crate::upstream::Upstream;

/// Default maximum message size in each direction, in bytes: 4 MiB, the default of gRPC.
const MAX_MESSAGE: usize = 4 << 20;

upstream_config! {
    /// Configuration of a gRPC upstream.
    GrpcConfig {
        /// Endpoint: `http://host:port`, or `https://host:port` for TLS.
        pub endpoint: String,
        /// File with a `FileDescriptorSet`; relative to the directory of the configuration file.
        pub descriptors: Option<PathBuf>,
        /// Whether to fetch descriptors from the upstream by reflection.
        #[serde(default)]
        pub reflection: bool,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, GrpcEffectConfig>,
        /// Authorization of calls.
        pub auth: Option<HttpAuthConfig>,
        /// Certificates.
        pub tls: Option<TlsConfig>,
        /// Egress rules of the endpoint; none if absent.
        pub egress: Option<Egress>,
        /// Maximum size of a sent message, in bytes. Default: 4194304.
        pub max_request_bytes: Option<NonZeroUsize>,
        /// Maximum size of a received message, in bytes. Default: 4194304.
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
    pub body: Option<Value>,
    /// Message field for the idempotency key.
    pub key_field: Option<String>,
    /// Response rules; the first match decides.
    #[serde(default)]
    pub responses: Vec<GrpcResponseRule>,
    /// Call that asks whether an attempt in doubt was executed.
    pub probe: Option<GrpcProbeConfig>,
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

/// Call that asks the upstream whether it executed an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcProbeConfig {
    /// Method, for example `payments.v1.Payments/GetCharge`.
    pub method: String,
    /// Additional metadata besides the metadata of every call.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Template of the message as JSON; `{@id}` is the idempotency key. Default: an empty message.
    pub body: Option<Value>,
    /// Message field for the idempotency key.
    pub key_field: Option<String>,
    /// Rules for the response; the first match decides. At least one.
    #[serde(default)]
    pub responses: Vec<GrpcProbeRule>,
}

/// Configuration of the message of a call.
struct MessageConfig<'a> {
    method: &'a str,
    metadata: &'a BTreeMap<String, String>,
    body: Option<&'a Value>,
    key_field: Option<&'a String>,
}

/// Rules of a typical probe, for messages.
const PROBE_EXAMPLE: &str =
    r#"{ status = "OK", result = "executed" }, { status = "NOT_FOUND", result = "not_executed" }"#;

impl UpstreamConfig for GrpcConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let invalid = |reason: String| Error::upstream(site.name, reason);
        let endpoint = self.grpc_endpoint().map_err(invalid)?;

        self.auth
            .as_ref()
            .map_or(Ok(()), HttpAuthConfig::check)
            .map_err(invalid)?;

        let (source, fingerprint) = self.source(site.dir).map_err(invalid)?;
        let compile = |_: &EffectName, config: &GrpcEffectConfig| config.operation(&source);
        let operations = Operations::new(site.name, "method", &self.effects, compile)?;

        let effects = operations.effects();
        let grpc = Grpc::new(endpoint, source, self.auth.clone(), operations)?;

        let policy = self.policy(Policy::default());
        let mut upstream = self.finish(Upstream::effects(
            site.name,
            effects,
            Arc::new(grpc),
            policy,
        ));

        // A changed descriptor file is a changed upstream: a reload must replace its executor.
        upstream
            .origin
            .get_or_insert_default()
            .push_str(&fingerprint);

        narrow(
            upstream,
            self.effects
                .iter()
                .map(|(effect, config)| (effect, &config.contexts)),
        )
    }
}

impl GrpcConfig {
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
        // The endpoint is fixed, so the rules are checked at the start. For a name, the addresses
        // are checked with each connection.
        if let Some(egress) = &self.egress {
            let checked = match &self.tenants {
                Some(tenants) => tenants
                    .iter()
                    .try_for_each(|tenant| egress.check(tenant, &endpoint)),
                None => egress.check_any_tenant(&endpoint),
            };
            checked.map_err(|denied| format!("invalid endpoint: {denied}"))?;
        }

        let limit_or_default =
            |limit: Option<NonZeroUsize>| limit.map_or(MAX_MESSAGE, NonZeroUsize::get);

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
                (true, None) => Ok((
                    DescriptorSource::Reflection(Reflection::default()),
                    String::new(),
                )),
                (true, Some(_)) => {
                    Err("descriptors and reflection are mutually exclusive; remove one".to_owned())
                }
                (false, _) => Err(
                    "message descriptors are missing; set descriptors = \"file.pb\" \
                                   or reflection = true"
                        .to_owned(),
                ),
            };
        };

        let path = dir.join(file);
        let displayed = path.display();
        let remedy = "generate them with protoc --include_imports --descriptor_set_out";

        let bytes = std::fs::read(&path).map_err(|error| {
            format!("cannot read the descriptors {displayed}: {error}; {remedy}")
        })?;
        let schema = Schema::decode(&bytes)
            .map_err(|reason| format!("invalid descriptors {displayed}: {reason}; {remedy}"))?;

        Ok((
            DescriptorSource::File(Arc::new(schema)),
            hex::encode(Sha256::digest(&bytes)),
        ))
    }
}

impl GrpcEffectConfig {
    fn operation(&self, source: &DescriptorSource) -> Result<GrpcOperation, String> {
        let message = MessageConfig {
            method: &self.method,
            metadata: &self.metadata,
            body: self.body.as_ref(),
            key_field: self.key_field.as_ref(),
        };

        let message = message.compile(source)?;
        check_rules(&self.responses)?;
        let probe = self
            .probe
            .as_ref()
            .map(|probe| probe.compile(source))
            .transpose();
        let probe = probe.map_err(|reason| format!("probe: {reason}"))?;

        Ok(GrpcOperation {
            message,
            responses: self.responses.clone(),
            probe: probe.map(Box::new),
        })
    }
}

impl GrpcProbeConfig {
    fn compile(&self, source: &DescriptorSource) -> Result<GrpcProbe, String> {
        let empty = json!({});
        let message = MessageConfig {
            method: &self.method,
            metadata: &self.metadata,
            body: Some(self.body.as_ref().unwrap_or(&empty)),
            key_field: self.key_field.as_ref(),
        };
        let message = message.compile(source)?;

        check_probe_rules(&self.responses, PROBE_EXAMPLE)?;
        Ok(GrpcProbe {
            message,
            responses: self.responses.clone(),
        })
    }
}

impl MessageConfig<'_> {
    fn compile(&self, source: &DescriptorSource) -> Result<MessageTemplate, String> {
        let method: MethodName = self.method.parse()?;
        if let DescriptorSource::File(schema) = source {
            let described = schema.method(&method)?;
            self.key_field
                .map_or(Ok(()), |path| check_path(&described.input(), path))?;
        }

        let reserved = self.metadata.keys().find(|name| {
            name.starts_with("grpc-")
                || name.ends_with("-bin")
                || ["te", "user-agent"].contains(&name.as_str())
        });
        if let Some(name) = reserved {
            return Err(format!("metadata {name:?} is reserved for gRPC or binary"));
        }

        let metadata = parse_headers(self.metadata)?;
        let body = self.body.map(JsonTemplate::parse).transpose();
        let body = body.map_err(|reason| format!("invalid body: {reason}"))?;

        Ok(MessageTemplate {
            method,
            metadata,
            body,
            key_field: self.key_field.cloned(),
        })
    }
}

fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;

    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the scheme {:?} is not http or https",
            url.scheme()
        ));
    }

    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or a password".to_owned());
    }

    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(
            "it contains a path, a query or a fragment, which gRPC does not support".to_owned(),
        );
    }
    Ok(url)
}
