//! What messages look like: from JSON to protobuf and back, as descriptors say, by the JSON rules of proto3.

use std::fmt;
use std::str::FromStr;

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions,
};
use serde_json::{Map, Value};

/// The name of a method: `payments.v1.Payments/Charge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MethodName {
    pub(crate) service: String,
    pub(crate) method: String,
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |text: &str| {
            let is_word =
                |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            text.split('.').all(is_word)
        };
        match text.trim_start_matches('/').split_once('/') {
            Some((service, method)) if is_name(service) && is_name(method) && !method.contains('.') => {
                Ok(Self { service: service.to_owned(), method: method.to_owned() })
            }
            Some(_) | None => {
                Err(format!("the method {text:?} is none; write for example payments.v1.Payments/Charge"))
            }
        }
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.method)
    }
}

/// Descriptors, read once.
#[derive(Clone, Debug)]
pub(crate) struct Schema(DescriptorPool);

impl Schema {
    /// From an encoded `FileDescriptorSet`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let pool = DescriptorPool::decode(bytes).map_err(|error| error.to_string())?;
        if pool.services().len() == 0 {
            return Err("it describes no service".to_owned());
        }
        Ok(Self(pool))
    }

    pub(crate) fn new(pool: DescriptorPool) -> Self {
        Self(pool)
    }

    pub(crate) fn pool(&self) -> &DescriptorPool {
        &self.0
    }

    /// The method of this name, which takes one message and answers with one.
    pub(crate) fn method(&self, name: &MethodName) -> Result<MethodDescriptor, String> {
        let Some(service) = self.0.get_service_by_name(&name.service) else {
            return Err(format!("there is no service {}", name.service));
        };
        let Some(method) = service.methods().find(|method| method.name() == name.method) else {
            let all: Vec<_> = service.methods().map(|method| method.name().to_owned()).collect();
            let (service, method) = (&name.service, &name.method);
            return Err(format!("{service} has no method {method}; it has {}", all.join(", ")));
        };
        if method.is_client_streaming() || method.is_server_streaming() {
            return Err(format!("{name} streams; an effect is one message and one answer"));
        }
        Ok(method)
    }
}

/// A message from JSON. Nothing at all is the empty message.
///
/// What does not fit is said with the place in the JSON.
pub(crate) fn encode(kind: &MessageDescriptor, json: &Value) -> Result<Vec<u8>, String> {
    let empty = Value::Object(Map::new());
    let json = if json.is_null() { &empty } else { json };
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(json, &mut track);
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    match DynamicMessage::deserialize_with_options(kind.clone(), deserializer, &options) {
        Ok(message) => Ok(message.encode_to_vec()),
        Err(error) => {
            let path = track.path().to_string();
            let place = if path == "." { String::new() } else { format!("the field {path:?}: ") };
            Err(format!("{place}{error} ({})", kind.full_name()))
        }
    }
}

/// A message as JSON. Fields without presence are there with their defaults, so that expressions find them.
pub(crate) fn decode(kind: &MessageDescriptor, bytes: &[u8]) -> Result<Value, String> {
    let message = DynamicMessage::decode(kind.clone(), bytes).map_err(|error| error.to_string())?;
    let options = SerializeOptions::new().skip_default_fields(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{} as JSON: {error}", kind.full_name()))
}

/// Puts the idempotency key into a field, `meta.request_id`; objects on the way are made.
pub(crate) fn put(json: &mut Value, path: &str, text: String) -> Result<(), String> {
    let mut place = json;
    for name in path.split('.') {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        let Value::Object(fields) = place else {
            return Err(format!("the idempotency key cannot stand in {path:?}: what is there is no object"));
        };
        place = fields.entry(name).or_insert(Value::Null);
    }
    *place = Value::String(text);
    Ok(())
}

/// Whether a message has a text field at this path.
pub(crate) fn check_path(kind: &MessageDescriptor, path: &str) -> Result<(), String> {
    let mut kind = kind.clone();
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let field = kind.get_field_by_name(name).or_else(|| kind.get_field_by_json_name(name));
        let Some(field) = field.filter(|field| !field.is_list() && !field.is_map()) else {
            return Err(format!("key_field {path:?}: {} has no single field {name:?}", kind.full_name()));
        };
        match (field.kind(), names.peek()) {
            (prost_reflect::Kind::String, None) => return Ok(()),
            (prost_reflect::Kind::Message(inner), Some(_)) => kind = inner,
            _ => return Err(format!("key_field {path:?}: {name:?} is no text")),
        }
    }
    Err(format!("key_field {path:?} is empty"))
}
