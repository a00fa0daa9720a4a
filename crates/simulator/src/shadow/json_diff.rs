//! Differences of two JSON values, with the paths of the fields.

use serde_json::Value;

/// Maximum number of differences of two values.
const MAX: usize = 20;
/// Path element of the items of a list, so that paths are equal for all items.
const ITEM: &str = "[]";

/// Difference of two values at a path of field names.
#[derive(Debug, PartialEq)]
pub(super) struct JsonDifference {
    pub(super) path: Vec<String>,
    pub(super) left: Option<Value>,
    pub(super) right: Option<Value>,
}

/// Returns the first differences: of objects by field, of lists of the same length by item.
pub(super) fn diff(left: &Value, right: &Value) -> Vec<JsonDifference> {
    let mut found = Vec::new();
    collect(Some(left), Some(right), &mut Vec::new(), &mut found);
    found
}

/// Returns a path as it is displayed: `.items[].price`.
pub(super) fn display(path: &[String]) -> String {
    path.iter()
        .map(|name| {
            if name == ITEM {
                name.clone()
            } else {
                format!(".{name}")
            }
        })
        .collect()
}

fn collect(
    left: Option<&Value>,
    right: Option<&Value>,
    path: &mut Vec<String>,
    found: &mut Vec<JsonDifference>,
) {
    // A reader needs no complete list of values that differ everywhere.
    if left == right || found.len() >= MAX {
        return;
    }

    match (left, right) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            // Each field once: those of the left value first, then those that only the right one
            // has.
            let added = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(added) {
                path.push(name.clone());
                collect(left.get(name), right.get(name), path, found);
                path.pop();
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) if left.len() == right.len() => {
            path.push(ITEM.to_owned());
            for (left, right) in left.iter().zip(right) {
                collect(Some(left), Some(right), path, found);
            }
            path.pop();
        }
        (left, right) => {
            found.push(JsonDifference {
                path: path.clone(),
                left: left.cloned(),
                right: right.cloned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_have_the_paths_of_their_fields() {
        let left = json!({ "a": 1, "b": { "c": [{ "d": 1 }, { "d": 2 }] }, "e": [1], "same": {} });
        let right = json!({ "a": 2, "b": { "c": [{ "d": 1 }, { "d": 3 }] }, "e": [1, 2], "same": {}, "new": null });
        let found = diff(&left, &right);
        let paths: Vec<_> = found.iter().map(|one| display(&one.path)).collect();
        assert_eq!(paths, [".a", ".b.c[].d", ".e", ".new"]);
        assert_eq!(
            (&found[1].left, &found[1].right),
            (&Some(json!(2)), &Some(json!(3)))
        );
        assert_eq!(
            (&found[3].left, &found[3].right),
            (&None, &Some(json!(null)))
        );
        assert_eq!(display(&diff(&json!(1), &json!(2))[0].path), "");
    }

    #[test]
    fn number_of_differences_is_limited() {
        let of = |value: i32| Value::Array((0..100).map(|_| json!(value)).collect());
        assert_eq!(diff(&of(1), &of(2)).len(), MAX);
    }
}
