//! Builds a job from an effect: source, environment, input, interpreter.

use orlog_model::{Effect, WorkItem};
use serde_json::{Map, Value};

use super::run::{ScriptRun, SourceFile};
use super::spec::SandboxSpec;
use super::{ScriptOperation, ScriptOptions};

use crate::provider::{Attempt, ProviderError};
use crate::secret::SecretScrubber;
use crate::template::PlaceholderScope;

/// Default search path of programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prefix of the variables that Orlog sets.
const OWN: &str = "ORLOG_";

impl ScriptOperation {
    /// Builds the job of an attempt.
    pub(super) fn job(
        &self,
        options: &ScriptOptions,
        item: &WorkItem,
        effect: &Effect,
        attempt: Attempt,
        scrub: &mut SecretScrubber,
    ) -> Result<ScriptRun, ProviderError> {
        let invalid = |reason: String| {
            ProviderError::permanent("invalid_payload", format!("{}: {reason}", effect.name))
        };

        let payload = &effect.payload;
        let (script, input) = match (&self.script, payload.get("script")) {
            (Some(script), _) => (script.clone(), payload.clone()),
            (None, Some(Value::String(script))) => (script.clone(), input_fields(payload)),
            (None, _) => return Err(invalid("the payload has no string \"script\"".to_owned())),
        };

        let name = format!("script{}", self.interpreter.suffix);
        let mut command = self.interpreter.command.clone();
        command.push(name.clone());

        // Configured variables follow those of every job, so that they can replace `PATH` and
        // `LANG`.
        let mut env = context_env(item, attempt);
        let scope = PlaceholderScope { item, payload };
        for (key, text) in &self.env {
            let value = text.fill(scope, scrub, |_, text| text);
            let value =
                value.map_err(|reason| reason.labeled(&format!("{}: env.{key}", effect.name)))?;
            env.push((key.clone(), value));
        }

        // Only the script of a flow brings its own variables. A payload must not set `PATH` or
        // `LD_PRELOAD` for a configured script.
        if self.script.is_none() {
            env.extend(payload_env(payload).map_err(invalid)?);
        }

        Ok(options.run(
            command,
            env,
            SourceFile { name, text: script },
            input.to_string(),
        ))
    }
}

impl ScriptOptions {
    /// Returns a job without a command, which ends when its sandbox is complete.
    pub(super) fn probe(&self) -> ScriptRun {
        let source = SourceFile {
            name: "probe".to_owned(),
            text: String::new(),
        };
        self.run(Vec::new(), Vec::new(), source, String::new())
    }

    fn run(
        &self,
        command: Vec<String>,
        env: Vec<(String, String)>,
        source: SourceFile,
        input: String,
    ) -> ScriptRun {
        let confined = SandboxSpec {
            command,
            env,
            limits: self.limits,
            isolation: self.isolation,
            network: self.network,
            running: 0,
            read: self.read.clone(),
            write: self.write.clone(),
        };

        ScriptRun {
            source,
            input,
            user: self.user,
            confined,
            max_output: self.max_output,
        }
    }
}

/// Returns the input of a job: the payload without the source and the environment.
fn input_fields(payload: &Value) -> Value {
    let fields = payload.as_object().into_iter().flatten();
    let input: Map<_, _> = fields
        .filter(|(name, _)| !matches!(name.as_str(), "script" | "env"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(input)
}

/// Returns the environment variables of every job.
fn context_env(item: &WorkItem, attempt: Attempt) -> Vec<(String, String)> {
    let instance = &item.instance;
    let own = [
        ("ID", item.id.to_string()),
        ("TENANT", instance.tenant.to_string()),
        ("SAGA", instance.saga.to_string()),
        ("CORRELATION", instance.correlation.to_string()),
        ("EFFECT", item.work.label().into()),
        ("ATTEMPT", attempt.number.to_string()),
    ];

    let mut env = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    env.extend(
        own.into_iter()
            .map(|(name, value)| (format!("{OWN}{name}"), value)),
    );
    env
}

fn payload_env(payload: &Value) -> Result<Vec<(String, String)>, String> {
    let env = match payload.get("env") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(env)) => env,
        Some(other) => return Err(format!("\"env\" must be an object, got {other}")),
    };

    let mut variables = Vec::with_capacity(env.len());
    for (name, value) in env {
        if value.is_null() {
            continue;
        }
        is_variable(name)?;
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        if text.contains('\0') {
            return Err(format!("env.{name} contains a NUL byte"));
        }
        variables.push((name.clone(), text));
    }
    Ok(variables)
}

/// Checks that a name is a valid variable name and not reserved for Orlog.
pub(crate) fn is_variable(name: &str) -> Result<(), String> {
    if name.is_empty()
        || name.starts_with(|c: char| c.is_ascii_digit())
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        return Err(format!("{name:?} is not a valid variable name"));
    }

    if name.starts_with(OWN) {
        Err(format!("{name:?} is reserved for Orlog"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn environment_variables_are_validated() {
        let env =
            payload_env(&json!({ "env": { "A": "x", "B": 1, "C": null, "D": { "e": true } } }))
                .unwrap();
        let pairs: Vec<_> = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(pairs, [("A", "x"), ("B", "1"), ("D", "{\"e\":true}")]);
        for name in ["", "A B", "1A", "A=B", "ORLOG_ID"] {
            assert!(
                payload_env(&json!({ "env": { name: "x" } })).is_err(),
                "{name}"
            );
        }
        assert!(payload_env(&json!({ "env": ["A"] })).is_err());
        assert_eq!(
            input_fields(&json!({ "script": "x", "env": {}, "args": 1 })),
            json!({ "args": 1 })
        );
    }
}
