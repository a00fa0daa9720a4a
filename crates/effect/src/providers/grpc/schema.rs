//! Conversion between JSON and protobuf messages by descriptors, with the JSON rules of proto3.

use std::fmt;
use std::str::FromStr;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor,
    SerializeOptions,
};
use serde_json::{Map, Value};

/// Name of a method: `payments.v1.Payments/Charge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodName {
    pub(crate) service: String,
    pub(crate) method: String,
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim_start_matches('/').split_once('/') {
            Some((service, method))
                if is_full_name(service) && is_full_name(method) && !method.contains('.') =>
            {
                Ok(Self {
                    service: service.to_owned(),
                    method: method.to_owned(),
                })
            }
            Some(_) | None => Err(format!(
                "invalid method {text:?}; example: payments.v1.Payments/Charge"
            )),
        }
    }
}

/// Returns whether a text consists of identifiers with dots between them.
fn is_full_name(text: &str) -> bool {
    text.split('.').all(|identifier| {
        !identifier.is_empty()
            && identifier
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Schema(DescriptorPool);

impl Schema {
    /// Parses an encoded `FileDescriptorSet`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let pool = DescriptorPool::decode(bytes).map_err(|error| error.to_string())?;
        if pool.services().len() == 0 {
            return Err("it contains no service".to_owned());
        }
        Ok(Self(pool))
    }

    pub(crate) fn new(pool: DescriptorPool) -> Self {
        Self(pool)
    }

    pub(crate) fn pool(&self) -> &DescriptorPool {
        &self.0
    }

    /// Returns the unary method with this name.
    pub(crate) fn method(&self, name: &MethodName) -> Result<MethodDescriptor, String> {
        let Some(service) = self.0.get_service_by_name(&name.service) else {
            return Err(format!("unknown service {}", name.service));
        };
        let Some(method) = service
            .methods()
            .find(|method| method.name() == name.method)
        else {
            let all: Vec<_> = service
                .methods()
                .map(|method| method.name().to_owned())
                .collect();
            let service = &name.service;
            let method = &name.method;
            return Err(format!(
                "{service} has no method {method}; methods: {}",
                all.join(", ")
            ));
        };

        if method.is_client_streaming() || method.is_server_streaming() {
            return Err(format!(
                "{name} is a streaming method; an effect requires a unary method"
            ));
        }
        Ok(method)
    }
}

/// Encodes JSON as a message. `null` is the empty message.
///
/// Errors contain the location in the JSON.
pub(crate) fn encode(kind: &MessageDescriptor, json: &Value) -> Result<Vec<u8>, String> {
    let empty = Value::Object(Map::new());
    let json = if json.is_null() { &empty } else { json };

    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(json, &mut track);
    // A field that the message does not have is an error of the definition. Ignored, it would be
    // lost silently.
    let options = DeserializeOptions::new().deny_unknown_fields(true);

    match DynamicMessage::deserialize_with_options(kind.clone(), deserializer, &options) {
        Ok(message) => Ok(message.encode_to_vec()),
        Err(error) => {
            let path = track.path().to_string();
            let location = if path == "." {
                String::new()
            } else {
                format!("field {path:?}: ")
            };
            Err(format!("{location}{error} ({})", kind.full_name()))
        }
    }
}

/// Decodes a message to JSON. Fields without presence have their defaults, so that expressions can
/// read them.
pub(crate) fn decode(kind: &MessageDescriptor, bytes: &[u8]) -> Result<Value, String> {
    let message = DynamicMessage::decode(kind.clone(), bytes).map_err(|error| error.to_string())?;
    let options = SerializeOptions::new().skip_default_fields(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{} as JSON: {error}", kind.full_name()))
}

/// Writes the idempotency key to a field, `meta.request_id`; creates missing objects of the path.
pub(crate) fn put(json: &mut Value, path: &str, text: String) -> Result<(), String> {
    let mut location = json;
    for name in path.split('.') {
        // A missing object on the path is created, but no value of the payload is replaced by one.
        if location.is_null() {
            *location = Value::Object(Map::new());
        }

        let Value::Object(fields) = location else {
            return Err(format!(
                "cannot write the idempotency key to {path:?}: a part of the path is not an object"
            ));
        };
        location = fields.entry(name).or_insert(Value::Null);
    }

    *location = Value::String(text);
    Ok(())
}

/// Checks that a message has a text field at this path.
pub(crate) fn check_path(kind: &MessageDescriptor, path: &str) -> Result<(), String> {
    let mut kind = kind.clone();
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let field = kind
            .get_field_by_name(name)
            .or_else(|| kind.get_field_by_json_name(name));

        let Some(field) = field.filter(|field| !field.is_list() && !field.is_map()) else {
            return Err(format!(
                "key_field {path:?}: {} has no singular field {name:?}",
                kind.full_name()
            ));
        };
        match (field.kind(), names.peek()) {
            (prost_reflect::Kind::String, None) => return Ok(()),
            (prost_reflect::Kind::Message(inner), Some(_)) => kind = inner,
            _ => return Err(format!("key_field {path:?}: {name:?} is not a string")),
        }
    }
    Err(format!("key_field {path:?} is empty"))
}
