//! JSON values for CEL: read in place, not copied, in key order.
//!
//! Lists and maps resolve an index directly in the JSON. Operations that need every element of a
//! list create one shallow CEL list on first use. All of it is charged (see `cost`): a
//! comprehension over a large payload fails instead of taking minutes.

use std::sync::OnceLock;

use cel::ExecutionError;
use cel::common::traits::{Adder, Container, Indexer, Iterable, Iterator as CelIterator, Sizer};
use cel::common::types::{
    self, CelBool, CelDouble, CelInt, CelList, CelNull, CelString, CelUInt, Kind, Type,
};
use cel::common::value::{CowVal, Val};
use serde_json::{Map, Number, Value};

use super::cost::{charge, spend, text_cost};

/// Returns the display name of the type of a JSON value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Wraps a JSON value as a CEL value that borrows it.
pub(super) fn wrap<'a>(value: &'a Value) -> Box<dyn Val + 'a> {
    match value {
        Value::Bool(b) => Box::new(CelBool::from(*b)),
        Value::Number(number) => wrap_number(number),
        // A text beyond the budget is not copied. Its null is never a result, because `run` reports
        // the budget.
        Value::String(string) if spend(units(string)) => Box::new(CelString::from(string.as_str())),
        Value::Null | Value::String(_) => Box::new(CelNull),
        Value::Array(items) => Box::new(JsonList {
            items,
            list: OnceLock::new(),
        }),
        Value::Object(fields) => wrap_map(fields),
    }
}

pub(super) fn wrap_map<'a>(fields: &'a Map<String, Value>) -> Box<dyn Val + 'a> {
    Box::new(JsonMap {
        fields,
        keys: OnceLock::new(),
    })
}

fn units(string: &str) -> usize {
    text_cost(string.len())
}

/// Wraps a number as an integer if possible; above `i64` as an unsigned one, so that large ids keep
/// every digit.
fn wrap_number(number: &Number) -> Box<dyn Val> {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(i), _, _) => Box::new(CelInt::from(i)),
        (None, Some(u), _) => Box::new(CelUInt::from(u)),
        (None, None, double) => Box::new(CelDouble::from(double.unwrap_or(f64::NAN))),
    }
}

/// Returns true if two values are equal, whether JSON or CEL values.
pub(super) fn equal(a: &dyn Val, b: &dyn Val) -> bool {
    // CEL lists and maps support only their own types, so `==` is compiled to this function.
    match (a.get_type().kind(), b.get_type().kind()) {
        (Kind::List, Kind::List) => equal_lists(a, b).unwrap_or(false),
        (Kind::Map, Kind::Map) => equal_maps(a, b).unwrap_or(false),
        // Never call `equals` of the value itself: JSON lists and maps implement it with this
        // function.
        (Kind::List | Kind::Map, _) | (_, Kind::List | Kind::Map) => false,
        (_, _) => a.equals(b),
    }
}

fn equal_lists(a: &dyn Val, b: &dyn Val) -> Option<bool> {
    if a.as_sizer()?.size() != b.as_sizer()?.size() {
        return Some(false);
    }

    let mut left = a.as_iterable()?.iter();
    let mut right = b.as_iterable()?.iter();
    while let (Some(x), Some(y)) = (left.next(), right.next()) {
        if !equal(x, y) {
            return Some(false);
        }
    }
    Some(true)
}

fn equal_maps(a: &dyn Val, b: &dyn Val) -> Option<bool> {
    if a.as_sizer()?.size() != b.as_sizer()?.size() {
        return Some(false);
    }

    let left = a.as_indexer()?;
    let right = b.as_indexer()?;
    let mut keys = a.as_iterable()?.iter();
    while let Some(key) = keys.next() {
        let same = match (left.get(key), right.get(key)) {
            (Ok(x), Ok(y)) => equal(x.as_ref(), y.as_ref()),
            (Ok(_) | Err(_), _) => false,
        };
        if !same {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns an error if the cost budget is exceeded, so that no more data is read.
fn check_budget() -> Result<(), ExecutionError> {
    charge(0)
}

/// Iterator over values that were already charged.
struct ChargedIter<'b, 'a>(std::slice::Iter<'b, Box<dyn Val + 'a>>);

impl<'b, 'v, 'a: 'v> CelIterator<'b, 'v> for ChargedIter<'b, 'a> {
    fn next(&mut self) -> Option<&'b (dyn Val + 'v)> {
        self.0.next().map(|item| &**item as &'b (dyn Val + 'v))
    }
}

/// Methods of a collection that is indexed, iterated and compared in the JSON.
macro_rules! read_in_place {
    ($type:expr) => {
        fn get_type(&self) -> &Type {
            &$type
        }

        fn cel_type() -> &'static Type {
            &$type
        }

        fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
        where
            Self: 'v,
        {
            Some(self)
        }

        fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
        where
            Self: 'v,
        {
            Some(self)
        }

        fn as_sizer(&self) -> Option<&dyn Sizer> {
            Some(self)
        }

        fn equals(&self, other: &dyn Val) -> bool {
            equal(self, other)
        }
    };
}

#[derive(Debug)]
struct JsonList<'a> {
    items: &'a [Value],
    list: OnceLock<CelList<'a>>,
}

impl<'a> JsonList<'a> {
    fn list(&self) -> &CelList<'a> {
        let affordable = spend(self.items.len());

        // CEL expects a list here, not an error: `run` reports that the budget is exceeded.
        self.list.get_or_init(|| {
            let items = if affordable { self.items } else { &[] };
            CelList::from(items.iter().map(|item| wrap(item)).collect::<Vec<_>>())
        })
    }
}

impl Val for JsonList<'_> {
    read_in_place!(types::LIST_TYPE);

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self.list())
    }

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self.list())
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(JsonList {
            items: self.items,
            list: OnceLock::new(),
        })
    }
}

impl Indexer for JsonList<'_> {
    fn get<'b, 'v>(&'b self, index: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(position) = index.downcast_ref::<CelInt>() else {
            return self.list().get(index);
        };

        check_budget()?;
        let item = usize::try_from(*position.inner())
            .ok()
            .and_then(|i| self.items.get(i));
        item.map(|item| CowVal::Owned(wrap(item)))
            .ok_or_else(|| ExecutionError::IndexOutOfBounds(cel::Value::Int(*position.inner())))
    }

    fn steal<'v>(self: Box<Self>, index: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(index).map(CowVal::into_owned)
    }
}

impl Iterable for JsonList<'_> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn CelIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        Box::new(ChargedIter(self.list().inner().iter()))
    }
}

impl Sizer for JsonList<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.items.len()).unwrap_or(i64::MAX))
    }
}

#[derive(Debug)]
struct JsonMap<'a> {
    fields: &'a Map<String, Value>,
    keys: OnceLock<Vec<Box<dyn Val + 'a>>>,
}

impl Val for JsonMap<'_> {
    read_in_place!(types::MAP_TYPE);

    fn as_container(&self) -> Option<&dyn Container> {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        wrap_map(self.fields)
    }
}

impl Indexer for JsonMap<'_> {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        check_budget()?;
        let Some(key) = key.downcast_ref::<CelString>() else {
            let got = key.get_type().name().to_owned();
            return Err(ExecutionError::UnexpectedType {
                got,
                want: "string".to_owned(),
            });
        };
        self.fields
            .get(key.inner())
            .map(|value| CowVal::Owned(wrap(value)))
            .ok_or_else(|| ExecutionError::no_such_key(key.inner()))
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

impl Iterable for JsonMap<'_> {
    fn iter<'b, 'v>(&'b self) -> Box<dyn CelIterator<'b, 'v> + 'b>
    where
        Self: 'v,
    {
        // As for a list: without budget the map appears empty, and `run` reports the error.
        let affordable = spend(self.fields.keys().map(|key| units(key)).sum());
        let keys = self.keys.get_or_init(|| {
            let keys = self.fields.keys().filter(|_| affordable);
            keys.map(|key| Box::new(CelString::from(key.as_str())) as Box<dyn Val + '_>)
                .collect()
        });
        Box::new(ChargedIter(if affordable {
            keys.iter()
        } else {
            [].iter()
        }))
    }
}

impl Sizer for JsonMap<'_> {
    fn size(&self) -> CelInt {
        CelInt::from(i64::try_from(self.fields.len()).unwrap_or(i64::MAX))
    }
}

impl Container for JsonMap<'_> {
    fn contains(&self, key: &dyn Val) -> Result<bool, ExecutionError> {
        Ok(key
            .downcast_ref::<CelString>()
            .is_some_and(|key| self.fields.contains_key(key.inner())))
    }
}
