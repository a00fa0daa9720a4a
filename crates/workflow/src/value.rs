//! Values between steps: typed in memory, encoded when an instance is stored.
//!
//! A value is encoded at most once, when a snapshot needs it; a workflow that is not stored encodes nothing. Encoded values
//! are MessagePack with field names, so that a type can get optional fields.

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
    /// Results of the branches of a fork or of the elements of a list.
    List(Vec<Value>),
}

/// Typed value without its type.
pub trait Erased: Send + Sync {
    fn encoded(&self) -> Result<&[u8], String>;
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
        Ok(self.bytes.get_or_init(|| bytes))
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
        Self::Typed(Arc::new(Cell { value, bytes: OnceLock::new() }))
    }

    /// Returns the value; it is cloned only if it is shared.
    pub(crate) fn take<T: Data>(self) -> Result<T, TaskError> {
        match self {
            Self::Typed(erased) => {
                let cell = erased.into_any().downcast::<Cell<T>>().map_err(|_| mismatch::<T>())?;
                Ok(Arc::try_unwrap(cell).map_or_else(|cell| cell.value.clone(), |cell| cell.value))
            }
            Self::Encoded(bytes) => decode(&bytes),
            Self::List(_) => Err(mismatch::<T>()),
        }
    }

    /// Returns a reference to the value; an encoded value is decoded once.
    pub(crate) fn typed<T: Data>(&mut self) -> Result<&T, TaskError> {
        if let Self::Encoded(bytes) = self {
            *self = Self::new::<T>(decode(bytes)?);
        }
        match self {
            Self::Typed(erased) => erased.as_any().downcast_ref().ok_or_else(mismatch::<T>),
            Self::Encoded(_) | Self::List(_) => Err(mismatch::<T>()),
        }
    }

    /// Returns the results of the branches of a fork.
    pub(crate) fn into_list(self) -> Result<Vec<Self>, TaskError> {
        match self {
            Self::List(values) => Ok(values),
            Self::Typed(_) | Self::Encoded(_) => {
                Err(TaskError::permanent("the input is not the result of a fork; this is a bug of Orlog"))
            }
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Typed(_) => f.write_str("Typed"),
            Self::Encoded(bytes) => write!(f, "Encoded({} bytes)", bytes.len()),
            Self::List(values) => f.debug_list().entries(values).finish(),
        }
    }
}

/// Stored form of a value.
#[derive(Deserialize)]
enum Stored {
    #[serde(rename = "v")]
    Value(Bytes),
    #[serde(rename = "l")]
    List(Vec<Value>),
}

/// The same, borrowed: a snapshot copies a value once, to its buffer.
#[derive(Serialize)]
enum StoredRef<'a> {
    #[serde(rename = "v")]
    Value(&'a serde_bytes::Bytes),
    #[serde(rename = "l")]
    List(&'a [Value]),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match self {
            Self::Typed(erased) => StoredRef::Value(serde_bytes::Bytes::new(
                erased.encoded().map_err(serde::ser::Error::custom)?,
            )),
            Self::Encoded(bytes) => StoredRef::Value(serde_bytes::Bytes::new(bytes)),
            Self::List(values) => StoredRef::List(values),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
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
        .map_err(|error| format!("cannot encode a value of type {}: {error}", short_name::<T>()))
}

fn decode<T: Data>(bytes: &[u8]) -> Result<T, TaskError> {
    rmp_serde::from_slice(bytes).map_err(|error| {
        TaskError::permanent(format!(
            "a stored value is not of type {}: {error}; give new fields a default",
            short_name::<T>()
        ))
    })
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
        assert_eq!(short_name::<Vec<Option<std::time::Duration>>>(), "Vec<Option<Duration>>");
        assert_eq!(short_name::<(String, u8)>(), "(String, u8)");
    }

    #[test]
    fn values_survive_encoding_and_reject_other_types() {
        let value = Value::List(vec![Value::new(7_u32), Value::new("seven".to_owned())]);
        let stored: Value = rmp_serde::from_slice(&encode(&value).expect("encodes")).expect("decodes");
        let mut values = stored.into_list().expect("a list");
        assert!(values[1].clone().take::<u32>().is_err());
        assert_eq!(values[1].typed::<String>().expect("a string"), "seven");
        assert_eq!(values.remove(0).take::<u32>().expect("a number"), 7);
    }
}
