//! Values between steps: typed in memory, encoded when an instance is stored.
//!
//! A value is encoded at most once, when a snapshot needs it; a workflow that is not stored encodes
//! nothing. Encoded values are MessagePack with field names, so that a type can get optional
//! fields. In a human-readable format, which nodes use, they are JSON.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::TaskError;

/// Type that can flow between steps. Implemented for all types that can be cloned and serialized.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot flow between steps",
    label = "not `Clone + Serialize + DeserializeOwned + Send + Sync`",
    note = "derive `Clone`, `serde::Serialize` and `serde::Deserialize` for it"
)]
pub trait Data: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Data for T {}

/// Value of any [`Data`] type.
#[derive(Clone)]
pub enum Value {
    /// Value that this process produced.
    Typed(Arc<dyn Erased>),
    /// Value from a snapshot.
    Encoded(Bytes),
    /// Value from the state of an instance of a node, or from one of its effects.
    Json(serde_json::Value),
    /// Results of the branches of a fork or of the elements of a list.
    List(Vec<Value>),
}

/// Typed value without its type.
pub trait Erased: Send + Sync {
    fn encoded(&self) -> Result<&[u8], String>;
    fn json(&self) -> Result<serde_json::Value, String>;
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

struct Cell<T> {
    value: T,
    bytes: OnceLock<Bytes>,
}

impl<T: Data> Erased for Cell<T> {
    fn encoded(&self) -> Result<&[u8], String> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }

        let bytes = encode(&self.value)?;
        // Two snapshots can encode at the same time. The first result remains.
        Ok(self.bytes.get_or_init(|| bytes))
    }

    fn json(&self) -> Result<serde_json::Value, String> {
        serde_json::to_value(&self.value).map_err(|error| {
            format!(
                "a value of type {} has no JSON form: {error}",
                short_name::<T>()
            )
        })
    }

    fn as_any(&self) -> &dyn Any {
        &self.value
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Value {
    pub(crate) fn new<T: Data>(value: T) -> Self {
        Self::Typed(Arc::new(Cell {
            value,
            bytes: OnceLock::new(),
        }))
    }

    /// Returns the value; it is cloned only if it is shared.
    pub(crate) fn take<T: Data>(self) -> Result<T, TaskError> {
        match self {
            Self::Typed(erased) => {
                let cell = erased
                    .into_any()
                    .downcast::<Cell<T>>()
                    .map_err(|_| mismatch::<T>())?;
                Ok(Arc::try_unwrap(cell).map_or_else(|cell| cell.value.clone(), |cell| cell.value))
            }
            Self::Encoded(bytes) => decode(&bytes),
            Self::Json(json) => from_json(json),
            Self::List(_) => Err(mismatch::<T>()),
        }
    }

    /// Returns a reference to the value; an encoded value is decoded once.
    pub(crate) fn typed<T: Data>(&mut self) -> Result<&T, TaskError> {
        match self {
            Self::Encoded(bytes) => *self = Self::new::<T>(decode(bytes)?),
            Self::Json(json) => *self = Self::new::<T>(from_json(json.take())?),
            Self::Typed(_) | Self::List(_) => {}
        }

        match self {
            Self::Typed(erased) => erased.as_any().downcast_ref().ok_or_else(mismatch::<T>),
            Self::Encoded(_) | Self::Json(_) | Self::List(_) => Err(mismatch::<T>()),
        }
    }

    /// Returns the results of the branches of a fork.
    pub(crate) fn into_list(self) -> Result<Vec<Self>, TaskError> {
        match self {
            Self::List(values) => Ok(values),
            Self::Json(serde_json::Value::Array(values)) => {
                Ok(values.into_iter().map(Self::Json).collect())
            }
            Self::Typed(_) | Self::Encoded(_) | Self::Json(_) => Err(TaskError::permanent(
                "the input is not the result of a fork; this is a bug of Orlog",
            )),
        }
    }

    /// Returns the value as JSON.
    ///
    /// # Errors
    /// If it has no JSON form.
    pub(crate) fn json(&self) -> Result<serde_json::Value, String> {
        match self {
            Self::Typed(erased) => erased.json(),
            Self::Json(json) => Ok(json.clone()),
            Self::List(values) => values.iter().map(Self::json).collect(),
            // Only runners have encoded values. A node uses JSON from the start.
            Self::Encoded(_) => Err("a value of a snapshot has no JSON form".to_owned()),
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Typed(_) => f.write_str("Typed"),
            Self::Encoded(bytes) => write!(f, "Encoded({} bytes)", bytes.len()),
            Self::Json(_) => f.write_str("Json"),
            Self::List(values) => f.debug_list().entries(values).finish(),
        }
    }
}

/// Stored form of a value: MessagePack in a binary format, JSON in a human-readable one.
#[derive(Deserialize)]
enum Stored<V> {
    #[serde(rename = "v")]
    Value(V),
    #[serde(rename = "l")]
    List(Vec<Value>),
}

/// The same, borrowed: a snapshot copies a value once, to its buffer.
#[derive(Serialize)]
enum StoredRef<'a, V> {
    #[serde(rename = "v")]
    Value(V),
    #[serde(rename = "l")]
    List(&'a [Value]),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = serde::ser::Error::custom;
        if serializer.is_human_readable() {
            return match self {
                Self::List(values) => {
                    StoredRef::List::<serde_json::Value>(values).serialize(serializer)
                }
                value => StoredRef::Value(value.json().map_err(error)?).serialize(serializer),
            };
        }

        let stored = match self {
            Self::Typed(erased) => {
                StoredRef::Value(serde_bytes::Bytes::new(erased.encoded().map_err(error)?))
            }
            Self::Encoded(bytes) => StoredRef::Value(serde_bytes::Bytes::new(bytes)),
            Self::Json(json) => {
                let bytes = encode(json).map_err(error)?;
                return StoredRef::Value(serde_bytes::Bytes::new(&bytes)).serialize(serializer);
            }
            Self::List(values) => StoredRef::List(values),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Ok(match Stored::deserialize(deserializer)? {
                Stored::Value(json) => Self::Json(json),
                Stored::List(values) => Self::List(values),
            });
        }

        Ok(match Stored::deserialize(deserializer)? {
            Stored::Value(bytes) => Self::Encoded(bytes),
            Stored::List(values) => Self::List(values),
        })
    }
}

/// Encodes a value as MessagePack with field names.
pub(crate) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, String> {
    rmp_serde::to_vec_named(value)
        .map(Bytes::from)
        .map_err(|error| {
            format!(
                "cannot encode a value of type {}: {error}",
                short_name::<T>()
            )
        })
}

fn decode<T: Data>(bytes: &[u8]) -> Result<T, TaskError> {
    rmp_serde::from_slice(bytes).map_err(|error| {
        TaskError::permanent(format!(
            "a stored value is not of type {}: {error}; give new fields a default",
            short_name::<T>()
        ))
    })
}

fn from_json<T: Data>(json: serde_json::Value) -> Result<T, TaskError> {
    serde_json::from_value(json)
        .map_err(|error| TaskError::permanent(format!("not a `{}`: {error}", short_name::<T>())))
}

fn mismatch<T>() -> TaskError {
    TaskError::permanent(format!(
        "a value is not of type {}; the functions of the registry do not fit together",
        short_name::<T>()
    ))
}

/// Returns the name of a type without the paths of its modules: `Vec<Order>`.
pub(crate) fn short_name<T: ?Sized>() -> String {
    let mut name = String::new();
    let mut start = 0;
    for character in std::any::type_name::<T>().chars() {
        name.push(character);

        // The text since the last other character was the path of a module.
        if name.ends_with("::") {
            name.truncate(start);
        } else if !character.is_alphanumeric() && character != '_' && character != ':' {
            start = name.len();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_have_no_module_paths() {
        assert_eq!(
            short_name::<Vec<Option<std::time::Duration>>>(),
            "Vec<Option<Duration>>"
        );
        assert_eq!(short_name::<(String, u8)>(), "(String, u8)");
    }

    #[test]
    fn values_survive_encoding_and_reject_other_types() {
        let value = Value::List(vec![Value::new(7_u32), Value::new("seven".to_owned())]);
        let stored: Value =
            rmp_serde::from_slice(&encode(&value).expect("encodes")).expect("decodes");
        let mut values = stored.into_list().expect("a list");
        assert!(values[1].clone().take::<u32>().is_err());
        assert_eq!(values[1].typed::<String>().expect("a string"), "seven");
        assert_eq!(values.remove(0).take::<u32>().expect("a number"), 7);
    }
}
