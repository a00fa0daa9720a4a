//! Definition language: the maps of the language, their fields, and the types of the values.
//!
//! [`language_map!`] declares a map once: its Rust form, its JSON Schema and its YAML decoder.

mod codec;
mod decoder;
mod schema;

pub(crate) use codec::{
    Bool, Choice, Choices, Condition, Count, Id, OneOrList, Period, Template, Templates, Text,
};
pub(crate) use decoder::{Codec, Decoder, Fields, join_path};
pub(crate) use schema::{FieldSchema, MapSchema, ValueSchema};

/// Declares an optional field.
pub(crate) const fn may<C: Codec>(name: &'static str, description: &'static str) -> FieldSchema {
    FieldSchema {
        name,
        schema: C::SCHEMA,
        required: false,
        description,
    }
}

/// Declares a required field.
pub(crate) const fn must<C: Codec>(name: &'static str, description: &'static str) -> FieldSchema {
    FieldSchema {
        name,
        schema: C::SCHEMA,
        required: true,
        description,
    }
}

/// Declares a struct and the map of the language that it stands for. Each field has a keyword, its
/// name in the language, its name and type in Rust, its [`Codec`], and its description for users,
/// which is also its documentation.
///
/// | keyword | the field is missing or unreadable |
/// |---|---|
/// | `must` | is reported; the placeholder of the codec, else the map is dropped |
/// | `must_or_default` | is reported; the default |
/// | `must_in_compiler` | the default, which the compiler reports |
/// | `may` | `None` |
/// | `may_or_default` | the default |
macro_rules! language_map {
    ($(#[$meta:meta])* $vis:vis struct $name:ident as $label:literal {
        $(
            $(#[$attribute:meta])*
            $keyword:ident $key:literal $field:ident: $type:ty = $codec:ty, $about:literal;
        )+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            $(#[doc = $about] $(#[$attribute])* pub $field: $type,)+
        }

        impl $name {
            pub(crate) const MAP: $crate::language::MapSchema = $crate::language::MapSchema {
                name: $label,
                fields: &[$(
                    $crate::language::language_map!(@schema $keyword $codec, $key, $about)
                ),+],
            };

            /// Decodes the fields of a map.
            pub(crate) fn read(
                decoder: &mut $crate::language::Decoder<'_>,
                fields: &$crate::language::Fields<'_>,
            ) -> Option<Self> {
                $(
                    let $field = $crate::language::language_map!(
                        @read $keyword $codec, $key, decoder, fields
                    );
                )+
                // All fields are decoded first, so that one report contains the errors of all.
                Some(Self { $($field: $field?),+ })
            }
        }

        impl $crate::language::Codec for $name {
            type Value = Self;
            const SCHEMA: $crate::language::ValueSchema =
                $crate::language::ValueSchema::Map(&Self::MAP);

            fn decode(
                decoder: &mut $crate::language::Decoder<'_>,
                node: &$crate::yaml::tree::Node,
                path: &str,
            ) -> Option<Self> {
                let fields = decoder.map(node, path, &Self::MAP)?;
                Self::read(decoder, &fields)
            }
        }
    };
    (@schema must $codec:ty, $key:literal, $about:literal) => {
        $crate::language::must::<$codec>($key, $about)
    };
    (@schema must_or_default $($field:tt)+) => {
        $crate::language::language_map!(@schema must $($field)+)
    };
    (@schema must_in_compiler $($field:tt)+) => {
        $crate::language::language_map!(@schema must $($field)+)
    };
    (@schema may $codec:ty, $key:literal, $about:literal) => {
        $crate::language::may::<$codec>($key, $about)
    };
    (@schema may_or_default $($field:tt)+) => {
        $crate::language::language_map!(@schema may $($field)+)
    };
    (@read must $codec:ty, $key:literal, $decoder:ident, $fields:ident) => {
        $decoder.required::<$codec>($fields, $key)
    };
    (@read must_or_default $codec:ty, $key:literal, $decoder:ident, $fields:ident) => {
        Some($decoder.required::<$codec>($fields, $key).unwrap_or_default())
    };
    (@read may $codec:ty, $key:literal, $decoder:ident, $fields:ident) => {
        Some($decoder.optional::<$codec>($fields, $key))
    };
    (@read $or_default:ident $codec:ty, $key:literal, $decoder:ident, $fields:ident) => {
        Some($decoder.optional::<$codec>($fields, $key).unwrap_or_default())
    };
}
pub(crate) use language_map;
