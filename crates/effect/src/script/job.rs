//! A job from an effect: source, environment, input, interpreter.

use orlog_model::{Effect, WorkItem};
use serde_json::{Map, Value};

use super::run::Job;
use super::spec::Confined;
use super::{Manner, Operation};
use crate::placeholders::{Scope, Unfilled};
use crate::provider::{Attempt, Refusal};
use crate::secret::Scrub;

/// Where programs are looked for where nothing else is said.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Begins the names of what Orlog itself says.
const OWN: &str = "ORLOG_";

impl Operation {
    /// The job of an attempt.
    pub(super) fn job(
        &self,
        manner: &Manner,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
        scrub: &mut Scrub,
    ) -> Result<Job, Refusal> {
        let wrong = |why: String| Refusal::failed("bad_payload", format!("{}: {why}", effect.name));
        let payload = &effect.payload;
        let (script, input) = match (&self.script, payload.get("script")) {
            (Some(script), _) => (script.clone(), payload.clone()),
            (None, Some(Value::String(script))) => (script.clone(), told(payload)),
            (None, _) => return Err(wrong("the payload has no text \"script\"".to_owned())),
        };
        let name = format!("script{}", self.interpreter.suffix);
        let mut command = self.interpreter.command.clone();
        command.push(name.clone());
        let mut env = surroundings(item, attempt);
        let scope = Scope { item, payload };
        for (key, text) in &self.env {
            let value = text.fill(scope, scrub, |_, text| text).map_err(|why| match why {
                Unfilled::Payload(why) => wrong(format!("env.{key}: {why}")),
                Unfilled::Secret(why) => {
                    Refusal::retry("secret", format!("{}: env.{key}: {why}", effect.name))
                }
            })?;
            env.push((key.clone(), value));
        }
        if self.script.is_none() {
            env.extend(asked(payload).map_err(wrong)?);
        }
        let confined = Confined {
            command,
            env,
            limits: manner.limits,
            isolation: manner.isolation,
            network: manner.network,
            read: manner.read.clone(),
            write: manner.write.clone(),
        };
        let (source, input) = ((name, script), input.to_string());
        Ok(Job { source, input, user: manner.user, confined, max_output: manner.max_output })
    }
}

/// What a job is told: all but the source and the environment, which it has otherwise.
fn told(payload: &Value) -> Value {
    let fields = payload.as_object().into_iter().flatten();
    let told = fields.filter(|(name, _)| !matches!(name.as_str(), "script" | "env"));
    Value::Object(told.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}

/// What every job finds around it.
fn surroundings(item: &WorkItem, attempt: Attempt) -> Vec<(String, String)> {
    let instance = &item.instance;
    let own = [
        ("ID", item.id.to_string()),
        ("TENANT", instance.tenant.to_string()),
        ("SAGA", instance.saga.to_string()),
        ("CORRELATION", instance.correlation.to_string()),
        ("EFFECT", item.work.label()),
        ("ATTEMPT", attempt.number.to_string()),
    ];
    let usual = [("PATH", PATH), ("LANG", "C.UTF-8")];
    let usual = usual.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    usual.chain(own.into_iter().map(|(name, value)| (format!("{OWN}{name}"), value))).collect()
}

/// The environment that the payload asks for.
fn asked(payload: &Value) -> Result<Vec<(String, String)>, String> {
    let env = match payload.get("env") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(env)) => env,
        Some(other) => return Err(format!("\"env\" is {other} and no table")),
    };
    let variables = env.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        is_variable(name)?;
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if text.contains('\0') {
            Err(format!("env.{name} holds a zero byte"))
        } else {
            Ok((name.clone(), text))
        }
    });
    variables.collect()
}

/// Whether it can be the name of a variable that is not Orlog's own.
pub(crate) fn is_variable(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits) {
        return Err(format!("{name:?} is no name of a variable"));
    }
    if name.starts_with(OWN) { Err(format!("{name:?} is set by Orlog itself")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_environment_is_text_and_its_names_are_names() {
        let env = asked(&json!({ "env": { "A": "x", "B": 1, "C": null, "D": { "e": true } } })).unwrap();
        let pairs: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("A", "x"), ("B", "1"), ("D", "{\"e\":true}")]);
        for name in ["", "A B", "1A", "A=B", "ORLOG_ID"] {
            assert!(asked(&json!({ "env": { name: "x" } })).is_err(), "{name}");
        }
        assert!(asked(&json!({ "env": ["A"] })).is_err());
        assert_eq!(told(&json!({ "script": "x", "env": {}, "args": 1 })), json!({ "args": 1 }));
    }
}
