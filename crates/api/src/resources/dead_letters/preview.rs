//! Previews: what a redrive or a forced discard of a dead letter would cause.

use orlog_engine::Decision;
use orlog_model::{DeadLetter, DeadLetterOriginal, Work};
use serde_json::Value;

use crate::server::blocking::run_blocking;
use crate::server::body::escape;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};

/// Maximum number of null fields that a message names.
const MAX_NAMED_FIELDS: usize = 10;

/// Returns the decision about the input of a dead letter; `None` if it has no instance.
///
/// # Errors
/// [`Code::DeadLettered`] if the input could not be applied.
pub(super) async fn preview(
    instances: &Instances,
    dead_letter: &DeadLetter,
) -> Result<Option<Decision>, Problem> {
    let DeadLetterOriginal::Input(input) = &dead_letter.original else {
        return Ok(None);
    };
    let Some(key) = &dead_letter.instance else {
        return Ok(None);
    };

    // The shard was here when the request arrived.
    let reader = instances.reader(key).ok_or_else(Problem::moving)?;
    let instances = instances.clone();
    let key = key.clone();
    let input = input.clone();
    run_blocking(move || {
        let instance = reader.instance(&key)?;
        let decision = instances
            .preview(&key, instance.as_ref(), &input)
            .map_err(|reason| not_applicable(&reason))?;

        match &decision {
            Decision::Commit(commit) => match &commit.dead_letter {
                Some(failed) => Err(not_applicable(&failed.message)),
                None => Ok(Some(decision)),
            },
            Decision::Ignore { .. } | Decision::Reject(_) => Ok(Some(decision)),
        }
    })
    .await
}

/// Rejects a change of a dead letter whose instance is paused: it would apply the input later, when
/// the dead letter no longer exists.
///
/// # Errors
/// [`Code::InvalidStatus`] if the instance is paused.
pub(super) async fn check_not_paused(
    instances: &Instances,
    dead_letter: &DeadLetter,
) -> Result<(), Problem> {
    let Some(key) = dead_letter.instance.clone() else {
        return Ok(());
    };

    let reader = instances.reader(&key).ok_or_else(Problem::moving)?;
    run_blocking(move || match reader.instance(&key) {
        Ok(Some(instance)) if instance.paused => {
            let detail = format!(
                "the instance {} is paused; resume it first. Nothing was changed",
                key.correlation
            );
            Err(Problem::new(Code::InvalidStatus, detail))
        }
        // An instance that cannot be read applies nothing.
        Ok(_) | Err(_) => Ok(()),
    })
    .await
}

fn not_applicable(reason: &str) -> Problem {
    let detail = format!("the data cannot be applied: {reason}. Nothing was changed");
    Problem::new(Code::DeadLettered, detail)
}

/// Returns the requests of a decision whose data have null fields, each as `refund (/chargeId)`.
pub(super) fn requests_with_null(decision: &Decision) -> Vec<String> {
    let Decision::Commit(commit) = decision else {
        return Vec::new();
    };

    let mut requests = Vec::new();
    for item in &commit.work {
        let (name, data) = match &item.work {
            Work::Effect(effect) => (effect.name.as_str(), &effect.payload),
            Work::Command(command) => (command.name.as_str(), &command.payload),
            Work::StartChild(child) => (child.saga.as_str(), &child.data),
            Work::Fact(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => continue,
        };

        let mut fields = Vec::new();
        null_fields(data, "", &mut fields);
        if !fields.is_empty() {
            requests.push(format!("{name} ({})", fields.join(", ")));
        }
    }
    requests
}

/// Adds the JSON pointers of the null fields of a value.
fn null_fields(value: &Value, path: &str, fields: &mut Vec<String>) {
    if fields.len() >= MAX_NAMED_FIELDS {
        return;
    }
    match value {
        Value::Null if !path.is_empty() => fields.push(path.to_owned()),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                null_fields(item, &format!("{path}/{index}"), fields);
            }
        }
        Value::Object(entries) => {
            for (name, entry) in entries {
                null_fields(entry, &format!("{path}/{}", escape(name)), fields);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_fields_are_named_by_pointers() {
        let found = |value: Value| {
            let mut fields = Vec::new();
            null_fields(&value, "", &mut fields);
            fields
        };
        assert_eq!(
            found(json!({ "id": null, "a/b": [1, { "c": null }], "d": 0 })),
            ["/a~1b/1/c", "/id"]
        );
        assert_eq!(found(Value::Null), Vec::<String>::new());
    }
}
