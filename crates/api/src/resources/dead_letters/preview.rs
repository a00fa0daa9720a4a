//! Previews: what a redrive or a forced discard of a dead letter would cause.

use orlog_actors::PreviewError;
use orlog_engine::Decision;
use orlog_model::{DeadLetter, DeadLetterOriginal, Work};
use serde_json::Value;

use crate::server::blocking::run_blocking;
use crate::server::body::escape;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};

/// Maximum number of null fields that a message names.
const MAX_NAMED_FIELDS: usize = 10;

/// What a redrive would cause.
pub(super) enum Preview {
    /// The dead letter has no instance on this node that decides.
    NoInstance,
    /// The instance would apply the input.
    Decision(Box<Decision>),
    /// The instance would not apply the input, for this reason: it stays a dead letter.
    NotApplicable(String),
}

/// Decides the input of a dead letter, and stores nothing of it.
///
/// # Errors
/// [`Code::InvalidStatus`] if the instance is paused: it would apply the input later, when the dead
/// letter no longer exists. Others if there is no decision now, so that nothing may follow from it.
pub(super) async fn preview(
    instances: &Instances,
    dead_letter: &DeadLetter,
) -> Result<Preview, Problem> {
    let DeadLetterOriginal::Input(input) = &dead_letter.original else {
        return Ok(Preview::NoInstance);
    };
    let Some(key) = &dead_letter.instance else {
        return Ok(Preview::NoInstance);
    };

    // The shard was here when the request arrived.
    let reader = instances.reader(key).ok_or_else(Problem::moving)?;
    let instances = instances.clone();
    let key = key.clone();
    let input = input.clone();
    run_blocking(move || {
        let instance = match reader.instance(&key) {
            Ok(instance) => instance,
            // An instance that cannot be read applies nothing.
            Err(error) if error.is_damage() => {
                return Ok(Preview::NotApplicable(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if instance.as_ref().is_some_and(|instance| instance.paused) {
            let detail = format!(
                "the instance {} is paused; resume it first. Nothing was changed",
                key.correlation
            );
            return Err(Problem::new(Code::InvalidStatus, detail));
        }

        let decision = match instances.preview(&key, instance.as_ref(), &input) {
            Ok(decision) => decision,
            Err(error @ (PreviewError::NoDefinition | PreviewError::TooCostly)) => {
                return Err(not_applicable(&error.to_string()));
            }
            Err(error) => return Ok(Preview::NotApplicable(error.to_string())),
        };
        Ok(match &decision {
            Decision::Commit(commit) => match &commit.dead_letter {
                Some(failed) => Preview::NotApplicable(failed.message.clone()),
                None => Preview::Decision(Box::new(decision)),
            },
            // A redrive removes the dead letter of an input that its instance ignores.
            Decision::Ignore { reason, .. } => Preview::NotApplicable(reason.to_string()),
            Decision::Reject(_) => Preview::Decision(Box::new(decision)),
        })
    })
    .await
}

/// Returns the problem of an input that cannot be applied.
pub(super) fn not_applicable(reason: &str) -> Problem {
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
