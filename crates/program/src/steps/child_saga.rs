//! Child sagas: a step that starts another saga and completes with its end.

use orlog_model::{
    CancelChild, CorrelationId, EventType, ParentEndPolicy, SagaName, StartChild, WaitKind, Work,
};
use serde_json::Value;

use super::kind::{
    ActionForm, Cancellation, CompiledKind, Completion, DefinedAction, KindTraits,
    OutstandingRequest, Request, RequestContext, UsedName,
};
use super::values::{eval_error, identifier, payload};
use crate::compile::expressions::{ExpressionCompiler, Site};
use crate::diagnostic::RawDiagnostic;
use crate::expression::EvalError;
use crate::language::{Choice, Decoder, FieldSchema, Fields, Id, Template as Any, language_map};
use crate::template::Template;

language_map! {
    /// Child saga that runs to its end.
    pub struct ChildSagaAction as "saga" {
        must "saga" saga: SagaName = Id<SagaName>, "Child saga, which runs until it ends.";
        may "correlation" correlation: Option<Value> = Any,
            "Correlation id of the child saga. Default: the correlation id of this instance, `:` \
             and the step.";
        may "event" event: Option<EventType> = Id<EventType>,
            "Event that starts the child saga. Default: its first start event.";
        #[serde(default)]
        may_or_default "data" data: Value = Any, "Data of the start event.";
        /// Omitted from the canonical JSON if not set, so that existing definitions keep their
        /// hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        may "on_parent_end" on_parent_end: Option<ParentEndPolicy> = Choice<ParentEndPolicy>,
            "Policy for a child saga that this saga no longer awaits: cancel it, let it continue \
             and ignore its result, or wait for its end. Default: `stop`.";
    }
}

impl ActionForm for ChildSagaAction {
    const TRAITS: KindTraits = KindTraits {
        changes: true,
        in_handlers: true,
        wait: WaitKind::Saga,
        ..KindTraits::new("a saga", Completion::Outcome)
    };
    const FIELDS: &'static [FieldSchema] = Self::MAP.fields;
    type Compiled = CompiledChildSaga;

    fn decode(decoder: &mut Decoder<'_>, fields: &Fields<'_>) -> Option<Self> {
        Self::read(decoder, fields)
    }

    fn compile(&self, compiler: &mut ExpressionCompiler<'_>, site: Site<'_>) -> CompiledChildSaga {
        if self.saga == *compiler.saga && self.correlation.is_none() {
            let message = format!("the saga {} starts itself", self.saga);
            let finding = RawDiagnostic::new(format!("{}.saga", site.path), message);
            compiler.report(
                finding.with_suggestion("limit the recursion with `when`, and set `correlation`"),
            );
        }

        CompiledChildSaga {
            saga: self.saga.clone(),
            correlation: compiler.optional_field(site, "correlation", self.correlation.as_ref()),
            event: self.event.clone(),
            data: compiler.field(site, "data", &self.data),
            on_parent_end: self.on_parent_end.unwrap_or_default(),
        }
    }
}

impl DefinedAction for ChildSagaAction {
    fn names(&self) -> Vec<UsedName<'_>> {
        vec![UsedName::new("saga", self.saga.as_str(), "saga")]
    }
}

/// Compiled child saga.
#[derive(Debug)]
pub(crate) struct CompiledChildSaga {
    saga: SagaName,
    correlation: Option<Template>,
    event: Option<EventType>,
    data: Template,
    on_parent_end: ParentEndPolicy,
}

impl CompiledChildSaga {
    /// Returns the correlation id of the definition, or that of the parent and the tag.
    fn correlation(&self, context: &RequestContext<'_>) -> Result<CorrelationId, EvalError> {
        let parent = &context.key.correlation;
        let tag = context.tag;

        // A later run of the parent has other children. The state of a requested run does not have
        // the number of earlier ones.
        let start = context
            .start_version
            .map_or_else(String::new, |version| format!(":version-{version}"));
        let run = if context.run == 1 {
            String::new()
        } else {
            format!(":run-{}", context.run)
        };
        let tag = format!("{tag}{start}{run}");

        let id = match (&self.correlation, context.retries) {
            (Some(template), _) => CorrelationId::for_path(identifier(
                "a correlation id",
                &template.evaluate(context.bindings)?,
            )?),
            // The parent may have an id that only stored instances have.
            (None, 0) => CorrelationId::new(format!("{parent}:{tag}")),
            // A child that is restarted after a decision of an operator needs another id.
            (None, retries) => {
                CorrelationId::new(format!("{parent}:{tag}:{}", retries.saturating_add(1)))
            }
        };

        id.map_err(|error| eval_error("correlation", error.to_string()))
    }
}

impl CompiledKind for CompiledChildSaga {
    fn request(&self, context: &RequestContext<'_>) -> Result<Request, EvalError> {
        Ok(Request::Work(Box::new(Work::StartChild(StartChild {
            tag: context.tag.clone(),
            round: context.round,
            saga: self.saga.clone(),
            correlation: self.correlation(context)?,
            event: self.event.clone(),
            data: payload(&self.data, context.tag, context.bindings)?,
            on_parent_end: self.on_parent_end,
        }))))
    }

    fn cancellation(&self, outstanding: &OutstandingRequest<'_>) -> Option<Cancellation> {
        // The end of a child with `wait` is still needed, and one with `abandon` continues on its
        // own.
        if self.on_parent_end != ParentEndPolicy::Stop {
            return None;
        }

        let OutstandingRequest { saga, step, child } = outstanding;
        let reason = format!("{step} of {saga} is abandoned");
        let cancel = CancelChild {
            saga: self.saga.clone(),
            correlation: child.clone()?,
            reason,
        };
        Some(Cancellation::Work(Work::CancelChild(cancel)))
    }

    fn on_parent_end(&self) -> ParentEndPolicy {
        self.on_parent_end
    }
}
