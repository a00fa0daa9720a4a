//! Flows: a second form of the definition language, for graphs of jobs that users submit at run
//! time. A flow is translated to a definition, so jobs of both have the same rules.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{EventType, InDoubtPolicy, Name, SagaName};
use serde_json::{Map, Value};

use crate::compile::compile_flow;
use crate::contract::{Context, ProgramError, ProgramInput, ProgramOutput};
use crate::definition::{CorrelationSpec, Definition, Step, StepDependencies};
use crate::diagnostic::{Diagnostic, RawDiagnostic};
use crate::language::{
    Choice, Codec, Condition, Decoder, Id, OneOrList, Template as Any, Templates, Text,
    ValueSchema, language_map,
};
use crate::limits::MAX_STEPS;
use crate::machine::{self, CompiledSaga};
use crate::steps::{
    Action, Foreach, JobAction, PriorityTemplate, RetrySpec, RunnerSelector, TimeLimit,
};
use crate::yaml::tree::Node;
use crate::yaml::{locate_all, parse_text};

pub use crate::machine::Rerun;

/// Name of the saga of flows.
pub const SAGA: &str = "orlog.flow";
/// Signal that submits a flow, and event with which a parent saga starts one.
pub const SUBMIT: &str = "orlog.flow.submit";

/// Maximum length of the text of a flow, in bytes. It is a part of the state of its instance.
pub const MAX_FLOW_BYTES: usize = 256 * 1024;
/// Maximum number of labels.
const MAX_LABELS: usize = 32;
/// Maximum length of the value of a label, in bytes.
const MAX_LABEL_BYTES: usize = 256;

language_map! {
    /// Flow: a graph of jobs.
    pub struct FlowSpec as "flow" {
        may "name" name: Option<Name> = Id<Name>, "Name for display.";
        #[serde(default)]
        may_or_default "labels" labels: BTreeMap<Name, String> = Labels, "Labels: names and texts.";
        #[serde(default)]
        may_or_default "env" env: Map<String, Value> = Templates, "Environment of all jobs.";
        may "timeout" timeout: Option<TimeLimit> = TimeLimit,
            "Maximum time of the flow. Default: unlimited.";
        must_or_default "jobs" jobs: Vec<FlowJob> = OneOrList<FlowJob>, "Jobs, 1 to 1000.";
    }
}

language_map! {
    /// Job of a flow.
    pub struct FlowJob as "job" {
        must "id" id: Name = Id<Name>, "Unique name without `:`, `[` or spaces.";
        #[serde(rename = "type")]
        must "type" kind: Name = Id<Name>,
            "Type of the script; selects the runners: `python`, `sal`.";
        must "script" script: String = Text, "Source of the script; not a template.";
        #[serde(default)]
        may_or_default "env" env: Map<String, Value> = Templates,
            "Environment of the job; overrides the environment of the flow.";
        #[serde(default)]
        may_or_default "args" args: Value = Any, "Arguments of the job.";
        #[serde(default)]
        may_or_default "prerequisites" prerequisites: Vec<Name> = OneOrList<Id<Name>>,
            "Jobs that must end first.";
        #[serde(default)]
        may_or_default "dependencies" dependencies: Vec<Name> = OneOrList<Id<Name>>,
            "Jobs that must end first and whose results are passed to this job.";
        may "runner" runner: Option<RunnerSelector> = RunnerSelector,
            "Runners that may execute the job. Default: every runner of the type.";
        may "when" when: Option<String> = Condition,
            "Condition of the job; if it is false, the job is skipped.";
        may "foreach" foreach: Option<Foreach> = Foreach,
            "List to iterate; the job is executed once for each element.";
        may "timeout" timeout: Option<TimeLimit> = TimeLimit,
            "Time limit for the result, with the wait for a runner. Default: unlimited.";
        may "retry" retry: Option<RetrySpec> = RetrySpec,
            "Attempts. Default: those of the upstream.";
        may "in_doubt" in_doubt: Option<InDoubtPolicy> = Choice<InDoubtPolicy>,
            "Policy for an unknown outcome: retry it, fail the job, or ask an operator. Default: \
             the policy of the upstream.";
        may "priority" priority: Option<String> = PriorityTemplate,
            "Priority of the job: `high`, `normal`, `low`, or an expression. Default: `normal`.";
    }
}

/// Map of labels.
struct Labels;

impl Codec for Labels {
    type Value = BTreeMap<Name, String>;
    const SCHEMA: ValueSchema = ValueSchema::MapOf(&ValueSchema::Text);

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Self::Value> {
        let labels =
            decoder.by_name::<_, Text>(node, path, "a map of names to texts", Name::new)?;
        if labels.len() > MAX_LABELS {
            let message = format!(
                "a flow has at most {MAX_LABELS} labels; it has {}",
                labels.len()
            );
            decoder.report(RawDiagnostic::new(path, message));
        }

        for (name, value) in labels
            .iter()
            .filter(|(_, value)| value.len() > MAX_LABEL_BYTES)
        {
            let message = format!(
                "a label has at most {MAX_LABEL_BYTES} bytes; it has {}",
                value.len()
            );
            decoder.report(RawDiagnostic::new(format!("{path}.{name}"), message));
        }

        Some(labels)
    }
}

/// Compiled flow.
#[derive(Debug)]
pub struct CompiledFlow {
    /// Specification.
    spec: FlowSpec,
    saga: CompiledSaga,
}

impl CompiledFlow {
    /// Returns its specification.
    #[must_use]
    pub fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    /// Applies an input with the step machine. `machine` is its encoded state; `None` starts it.
    ///
    /// # Errors
    /// As [`Program::apply`](crate::Program::apply).
    pub fn apply(
        &self,
        machine: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        machine::apply(&self.saga, machine, input, context)
    }

    /// Executes jobs of a flow again.
    ///
    /// # Errors
    /// As [`Program::apply`](crate::Program::apply).
    pub fn rerun(
        &self,
        machine: &[u8],
        selection: Rerun<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        machine::rerun(&self.saga, machine, selection, context)
    }

    /// Returns the readable form of the state of the step machine.
    #[must_use]
    pub fn view(&self, machine: &[u8]) -> Option<Value> {
        machine::view(&self.saga, machine)
    }
}

/// Compiles a flow in YAML or JSON. `file` is only used in diagnostics.
///
/// # Errors
/// All diagnostics in the order of the text.
pub fn compile(text: &str, file: &str) -> Result<CompiledFlow, Vec<Diagnostic>> {
    if text.len() > MAX_FLOW_BYTES {
        let message = format!(
            "the flow is {} bytes long, the limit is {MAX_FLOW_BYTES}",
            text.len()
        );
        let suggestion =
            "store large scripts and data elsewhere, and read them in the job".to_owned();
        let diagnostic = Diagnostic {
            line: 1,
            column: 1,
            ..Diagnostic::of_file(file, message)
        };
        return Err(vec![Diagnostic {
            suggestion: Some(suggestion),
            ..diagnostic
        }]);
    }

    let root = parse_text(text, file)?;

    let mut findings = Vec::new();
    let mut decoder = Decoder {
        findings: &mut findings,
    };
    let fields = decoder.fields(&root, "", &FlowSpec::MAP);
    let spec = FlowSpec::read(&mut decoder, &fields);
    // Unlike a definition, a flow is not compiled with unreadable parts: a user corrects the form
    // first.
    let Some(spec) = spec.filter(|_| findings.is_empty()) else {
        return Err(locate_all(findings, &root, file));
    };

    if spec.jobs.is_empty() || spec.jobs.len() > MAX_STEPS {
        let message = format!(
            "a flow must have 1 to {MAX_STEPS} jobs; it has {}",
            spec.jobs.len()
        );
        return Err(locate_all(
            vec![RawDiagnostic::new("jobs", message)],
            &root,
            file,
        ));
    }

    match compile_flow(&spec.definition()) {
        Ok(saga) => Ok(CompiledFlow { spec, saga }),
        Err(findings) => Err(locate_all(
            findings.into_iter().map(in_flow).collect(),
            &root,
            file,
        )),
    }
}

impl FlowSpec {
    /// Returns the flow as a definition, with a step for each job.
    fn definition(&self) -> Definition {
        Definition {
            saga: SagaName::new(SAGA).expect("the name is short"),
            version: 1,
            start: vec![EventType::new(SUBMIT).expect("the name is short")],
            correlate: CorrelationSpec::Envelope,
            early_event_ttl: Some(Duration::ZERO),
            events: BTreeMap::new(),
            env: self.env.clone(),
            vars: Map::new(),
            reference: None,
            index: Vec::new(),
            timeout: self.timeout.clone(),
            on: Vec::new(),
            keep_active: false,
            steps: self.jobs.iter().map(FlowJob::step).collect(),
            publish: Some(false),
            completed: None,
            failed: None,
            migrations: Vec::new(),
            invariants: Vec::new(),
        }
    }
}

impl FlowJob {
    /// Returns the job as a step.
    fn step(&self) -> Step {
        let job = JobAction {
            kind: self.kind.clone(),
            script: self.script.clone(),
            env: self.env.clone(),
            args: self.args.clone(),
            prerequisites: self.prerequisites.clone(),
            dependencies: self.dependencies.clone(),
            runner: self.runner.clone(),
        };
        Step {
            id: self.id.clone(),
            // Only its prerequisites and dependencies order a job, not its position.
            after: Some(StepDependencies {
                steps: Vec::new(),
                join: crate::definition::Join::All,
            }),
            when: self.when.clone(),
            foreach: self.foreach.clone(),
            action: Action::Job(job),
            ok: Vec::new(),
            fail: Vec::new(),
            compensate: None,
            pivot: false,
            timeout: self.timeout.clone(),
            save: Map::new(),
            retry: self.retry.clone(),
            in_doubt: self.in_doubt,
            publish: None,
            priority: self.priority.clone(),
            on_timeout: None,
            on_failure: None,
            remind: None,
        }
    }
}

/// Converts a diagnostic of the definition to one of the flow: `steps[2].do.job.type` is
/// `jobs[2].type`.
fn in_flow(finding: RawDiagnostic) -> RawDiagnostic {
    let path = match finding.path.strip_prefix("steps[") {
        Some(rest) => format!(
            "jobs[{}",
            rest.replacen(".do.job", "", 1).trim_end_matches(".after")
        ),
        None => finding.path,
    };

    let message = finding
        .message
        .replace("steps", "jobs")
        .replace("step", "job");

    let suggestion = finding
        .suggestion
        .map(|suggestion| match suggestion.as_str() {
            "set it with `vars` or `save`" => {
                "a flow has no variables; read `results` of the dependencies".to_owned()
            }
            _ => suggestion
                .replace("`after`", "`prerequisites` or `dependencies`")
                .replace("step", "job"),
        });

    RawDiagnostic {
        path,
        message,
        suggestion,
        ..finding
    }
}
