//! Jobs: scripts that a worker runs, with an environment and the results of earlier jobs.

use orlog_model::{EffectName, Name};
use serde_json::{Map, Value, json};

use super::effect::effect_work;
use super::kind::{
    ActionForm, CompiledKind, Completion, DefinedAction, KindTraits, Request, RequestContext,
    UsedName,
};
use super::values::checked;
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::EvalError;
use crate::language::{
    Codec, Decoder, FieldSchema, Fields, Id, OneOrList, Template as Any, Templates, Text,
    ValueSchema, language_map, must,
};
use crate::template::Template;
use crate::yaml::tree::Node;

language_map! {
    /// Script that a worker runs: the effect `job.<type>`.
    pub struct JobAction as "job" {
        /// It selects the worker: `python`, `sal`.
        #[serde(rename = "type")]
        must "type" kind: Name = Id<Name>,
            "Type of the script; the job becomes the effect `job.<type>`.";
        /// Passed verbatim.
        must "script" script: String = Text, "Source of the script; not a template.";
        #[serde(default)]
        may_or_default "env" env: Map<String, Value> = Templates,
            "Environment of the job; overrides the environment of the saga.";
        #[serde(default)]
        may_or_default "args" args: Value = Any, "Arguments of the job.";
        #[serde(default)]
        may_or_default "prerequisites" prerequisites: Vec<Name> = OneOrList<Id<Name>>,
            "Steps that must end first.";
        #[serde(default)]
        may_or_default "dependencies" dependencies: Vec<Name> = OneOrList<Id<Name>>,
            "Jobs that must end first and whose results are passed to this job.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "runner" runner: Option<RunnerSelector> = RunnerSelector,
            "Runners that may execute the job. Default: every runner of the type.";
    }
}

language_map! {
    /// Runners that may execute a job.
    pub struct RunnerSelector as "runner" {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "name" name: Option<String> = Text, "Name of the runner.";
        #[serde(default)]
        may_or_default "labels" labels: Map<String, Value> = Texts, "Labels that the runner has.";
    }
}

/// Map of names to texts.
struct Texts;

impl Codec for Texts {
    type Value = Map<String, Value>;
    const SCHEMA: ValueSchema = ValueSchema::MapOf(&ValueSchema::Text);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self::Value> {
        let texts = decoder.by_name::<_, Text>(node, path, "a map of names to texts", Name::new)?;
        Some(
            texts
                .into_iter()
                .map(|(name, text)| (name.to_string(), text.into()))
                .collect(),
        )
    }
}

impl JobAction {
    /// Returns the effect that executes the job.
    pub(crate) fn effect(&self) -> Result<EffectName, orlog_model::IdError> {
        EffectName::new(format!("job.{}", self.kind))
    }
}

impl ActionForm for JobAction {
    // A job only computes; its result belongs to the saga, so it does not count as a change.
    const TRAITS: KindTraits = KindTraits {
        is_effect: true,
        ..KindTraits::new("a job", Completion::Outcome)
    };
    const FIELDS: &'static [FieldSchema] = &[must::<Self>("job", "Script that a worker executes.")];
    type Compiled = CompiledJob;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        decoder.optional::<Self>(fields, "job")
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledJob {
        let path = format!("{}.job", site.path);
        let site = site.at(&path);
        // The stand-in is not executed: the report rejects the definition.
        let effect = self.effect().unwrap_or_else(|error| {
            compiler.report(RawDiagnostic::new(
                format!("{path}.type"),
                error.to_string(),
            ));
            EffectName::new("job").expect("the constant is a valid effect name")
        });

        CompiledJob {
            effect,
            kind: self.kind.clone(),
            script: self.script.clone(),
            env: compiler.map(site.at(&format!("{path}.env")), &self.env),
            args: compiler.field(site, "args", &self.args),
            dependencies: self.dependencies.clone(),
            runner: self.runner.clone(),
        }
    }
}

impl DefinedAction for JobAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        vec![UsedName::new("script type", self.kind.as_str(), "job.type")]
    }

    fn required_steps(&self) -> Vec<(&'static str, &Name)> {
        let prerequisites = self.prerequisites.iter().map(|id| ("prerequisites", id));
        prerequisites
            .chain(self.dependencies.iter().map(|id| ("dependencies", id)))
            .collect()
    }
}

/// Compiled job.
#[derive(Debug)]
pub(crate) struct CompiledJob {
    effect: EffectName,
    kind: Name,
    script: String,
    env: Vec<(String, Template)>,
    args: Template,
    /// Ids of the jobs whose results it receives.
    dependencies: Vec<Name>,
    runner: Option<RunnerSelector>,
}

impl CompiledKind for CompiledJob {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        let mut env = Map::new();
        // The environment of the job comes last, because it overrides that of the saga.
        for (name, template) in context.env.iter().chain(&self.env) {
            env.insert(name.clone(), template.evaluate(context.bindings)?);
        }

        let mut results = Map::new();
        for id in &self.dependencies {
            // A dependency that was skipped has no result; the script receives null.
            let result = context
                .results
                .and_then(|results| results.get(id.as_str()))
                .cloned();
            results.insert(id.to_string(), result.unwrap_or_default());
        }

        let mut payload = json!({
            "job": context.step.as_str(),
            "type": self.kind.as_str(),
            "script": self.script,
            "env": env,
            "args": self.args.evaluate(context.bindings)?,
            "results": results,
        });

        if let Some(runner) = &self.runner {
            payload["runner"] = json!(runner);
        }

        Ok(Request::Work(Box::new(effect_work(
            &self.effect,
            1,
            checked(payload, context.tag)?,
            context,
        )?)))
    }

    fn effect(&self) -> Option<(&EffectName, &Template)> {
        Some((&self.effect, &self.args))
    }
}
