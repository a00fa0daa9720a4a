//! Human tasks: work for a user, with roles, outcomes, a due time and an escalation.

use orlog_model::{EventType, ExcludedUser, TaskSpec};
use serde_json::Value;

use super::kind::{
    ActionForm, Cancellation, CompiledKind, Completion, DefinedAction, KindTraits, OpenedTask,
    OutstandingRequest, Request, RequestContext,
};
use super::time_limit::{CompiledTimeLimit, TimeLimit};
use super::values::{eval_error, payload};
use super::wait::{CompiledTime, TimeSpec};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{Bindings, EvalError, kind_of};
use crate::language::{
    Choice, Codec, Decoder, FieldSchema, Fields, OneOrList, Template as Any, ValueSchema,
    language_map, must,
};
use crate::template::Template;
use crate::yaml::tree::Node;

/// Template of a role or of a list of roles.
struct Role;

impl Codec for Role {
    type Value = Value;
    const SCHEMA: ValueSchema = ValueSchema::Template;

    fn decode(decoder: &mut Decoder<'_>, node: &Node, path: &str) -> Option<Value> {
        decoder.text(node, path).map(Value::from)
    }
}

language_map! {
    /// Human task. Its values are templates.
    pub struct HumanTask as "human" {
        must "title" title: Value = Any, "Title of the task.";
        #[serde(default)]
        may_or_default "roles" roles: Vec<Value> = OneOrList<Role>,
            "Roles that can claim the task. Default: any user.";
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        may_or_default "not_by" not_by: Vec<ExcludedUser> = OneOrList<Choice<ExcludedUser>>,
            "Users who can neither claim, be assigned, nor complete the task.";
        may "assignee" assignee: Option<Value> = Any, "Assignee of the task.";
        /// See the `timeout` of the step.
        may "due" due: Option<TimeSpec> = TimeSpec,
            "Due time; informational, a late task does not fail.";
        #[serde(default)]
        may_or_default "data" data: Value = Any, "Data to display with the task.";
        may "escalate" escalate: Option<Escalation> = Escalation,
            "Escalation of a task that is not completed.";
    }
}

language_map! {
    /// Escalation of an overdue task.
    pub struct Escalation as "escalate" {
        may "after" after: Option<TimeLimit> = TimeLimit,
            "Delay of the escalation after the task opens, or an expression for it. Default: the \
             due time.";
        #[serde(default)]
        may_or_default "roles" roles: Vec<Value> = OneOrList<Role>,
            "Roles that can claim the task after the escalation.";
        /// Unassigned if omitted.
        may "assignee" assignee: Option<Value> = Any, "Assignee after the escalation.";
    }
}

impl ActionForm for HumanTask {
    const TRAITS: KindTraits = KindTraits::new("a human task", Completion::User);
    const FIELDS: &'static [FieldSchema] = &[must::<Self>("human", "Human task.")];
    type Compiled = CompiledHumanTask;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        decoder.optional::<Self>(fields, "human")
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledHumanTask {
        let path = format!("{}.human", site.path);
        let site = site.at(&path);

        let is_timeless = self
            .escalate
            .as_ref()
            .is_some_and(|escalation| escalation.after.is_none() && self.due.is_none());
        if is_timeless {
            let finding =
                RawDiagnostic::new(format!("{path}.escalate"), "the escalation has no time");
            compiler.report(finding.with_suggestion("set `after`, or `due` of the task"));
        }

        CompiledHumanTask {
            title: compiler.field(site, "title", &self.title),
            roles: compiler.list(site, "roles", &self.roles),
            not_by: self.not_by.clone(),
            assignee: compiler.optional_field(site, "assignee", self.assignee.as_ref()),
            due: self
                .due
                .as_ref()
                .map(|due| due.compile_field(compiler, site, "due")),
            data: compiler.field(site, "data", &self.data),
            escalate: self.escalate.as_ref().map(|escalation| {
                Box::new(CompiledEscalation {
                    after: CompiledTimeLimit::compile(
                        compiler,
                        site,
                        "escalate.after",
                        escalation.after.as_ref(),
                    ),
                    roles: compiler.list(site, "escalate.roles", &escalation.roles),
                    assignee: compiler.optional_field(
                        site,
                        "escalate.assignee",
                        escalation.assignee.as_ref(),
                    ),
                })
            }),
        }
    }
}

impl DefinedAction for HumanTask {}

/// Compiled human task.
#[derive(Debug)]
pub(crate) struct CompiledHumanTask {
    title: Template,
    roles: Vec<Template>,
    not_by: Vec<ExcludedUser>,
    assignee: Option<Template>,
    due: Option<CompiledTime>,
    data: Template,
    pub(crate) escalate: Option<Box<CompiledEscalation>>,
}

/// Compiled escalation of a human task.
#[derive(Debug)]
pub(crate) struct CompiledEscalation {
    after: Option<CompiledTimeLimit>,
    roles: Vec<Template>,
    assignee: Option<Template>,
}

impl CompiledEscalation {
    /// Returns the roles and the assignee after the escalation.
    pub(crate) fn assignment(
        &self,
        bindings: &Bindings<'_>,
    ) -> Result<(Vec<String>, Option<String>), EvalError> {
        Ok((
            roles(&self.roles, bindings)?,
            assignee(self.assignee.as_ref(), bindings)?,
        ))
    }
}

impl CompiledKind for CompiledHumanTask {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        let bindings = context.bindings;
        let due = self
            .due
            .as_ref()
            .map(|due| due.due(context.now, bindings))
            .transpose()?;

        // One outcome can have several conditions; users select it once.
        let mut outcomes: Vec<EventType> = Vec::new();
        for matcher in context.options.ok.iter().chain(&context.options.fail) {
            if !outcomes.contains(&matcher.event) {
                outcomes.push(matcher.event.clone());
            }
        }

        let spec = TaskSpec {
            tag: context.tag.clone(),
            round: context.round,
            title: title(&self.title.evaluate(bindings)?)?,
            roles: roles(&self.roles, bindings)?,
            assignee: assignee(self.assignee.as_ref(), bindings)?,
            due,
            outcomes,
            data: payload(&self.data, context.tag, bindings)?,
            not_by: self.not_by.clone(),
            is_in_doubt: false,
        };

        let escalates = match self.escalate.as_ref().map(|escalation| &escalation.after) {
            Some(Some(after)) => Some(
                context
                    .now
                    .saturating_add(after.evaluate(context.now, bindings)?),
            ),
            // The compiler rejects an escalation with neither `after` nor `due`.
            Some(None) => due,
            None => None,
        };

        Ok(Request::Task(Box::new(OpenedTask { spec, escalates })))
    }

    fn cancellation(&self, _: &OutstandingRequest<'_>) -> Option<Cancellation> {
        Some(Cancellation::CloseTask)
    }
}

fn title(value: &Value) -> Result<String, EvalError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(eval_error(
            "title",
            format!("a title must be a text, but is {}", kind_of(other)),
        )),
    }
}

/// Evaluates the role templates; each returns a role or a list of roles.
fn roles(templates: &[Template], bindings: &Bindings<'_>) -> Result<Vec<String>, EvalError> {
    let mut roles = Vec::with_capacity(templates.len());
    for template in templates {
        match template.evaluate(bindings)? {
            Value::String(role) => roles.push(role),
            Value::Array(several) => {
                for role in &several {
                    let role = role.as_str().ok_or_else(|| not_a_text("a role", role))?;
                    roles.push(role.to_owned());
                }
            }
            other => return Err(not_a_text("a role", &other)),
        }
    }

    Ok(roles)
}

/// Evaluates the assignee template; null means unassigned.
fn assignee(
    template: Option<&Template>,
    bindings: &Bindings<'_>,
) -> Result<Option<String>, EvalError> {
    match template
        .map(|template| template.evaluate(bindings))
        .transpose()?
    {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(assignee)) => Ok(Some(assignee)),
        Some(other) => Err(not_a_text("an assignee", &other)),
    }
}

fn not_a_text(label: &str, value: &Value) -> EvalError {
    eval_error(
        label,
        format!("{label} must be a text, but is {}", kind_of(value)),
    )
}
