//! Stand-in of `orlog dev`: executes work without a configured upstream, and responds with the
//! events of the step.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use orlog_actors::ControlError;
use orlog_effect::{Attempt, Policy, Provider, ProviderError, Reply, Upstream};
use orlog_model::{
    ControlAction, ControlRequest, EventId, EventType, Failure, TenantId, Work, WorkItem,
};
use orlog_program::Definition;
use orlog_simulator::{WorkTag, response_spec};
use serde_json::{Map, Value, json};

use super::stand_in_rules::StandInRule;
use orlog_node::app::App;
use orlog_node::config::Config;
use orlog_node::definitions::availability::{self, Providers};
use orlog_node::definitions::sample;
use orlog_node::upstreams::STAND_IN_UPSTREAM;

/// Provider that succeeds at once, unless a rule specifies a delay or failures.
///
/// An effect succeeds with the first `ok` event of its step. A command is accepted, and its
/// instance receives the first `ok` event of the step as a signal. The data contains the payload of
/// the work and a value for each field that the step reads. A failure is the first `fail` event of
/// the step, or a permanent error.
#[derive(Default)]
pub(super) struct StandIn {
    app: OnceLock<Weak<App>>,
    rules: Vec<StandInRule>,
}

/// Response to the work of a step.
#[derive(Default)]
struct StepResponse {
    ok: Option<EventType>,
    fail: Option<EventType>,
    /// Values of the fields that the step reads from its result.
    data: Map<String, Value>,
}

impl StandIn {
    pub(super) fn new(rules: Vec<StandInRule>) -> Self {
        Self {
            app: OnceLock::new(),
            rules,
        }
    }

    /// Checks the names of the rules against the active definitions.
    ///
    /// # Errors
    /// The message for the user.
    pub(super) fn check_rules(&self, app: &App) -> Result<(), String> {
        let active = app.definitions.active();
        self.rules.iter().try_for_each(|rule| rule.check(&active))
    }

    /// Returns the upstreams for all effects without a configured upstream, and for commands if no
    /// gateway is configured.
    pub(super) fn upstreams(self: &Arc<Self>, config: &Config) -> Vec<Upstream> {
        let provider = || Arc::clone(self) as Arc<dyn Provider>;
        // The stand-in calls no system, so that the definitions of every context may use it.
        let all = || BTreeSet::from([TenantId::new("*").expect("the name is valid")]);
        // A fallback: an upstream that is added while the node runs takes over its effects.
        let stand_in = Upstream::fallback(STAND_IN_UPSTREAM, provider(), Policy::in_process());
        let mut upstreams = vec![stand_in.for_contexts(all())];

        if config.gateway.is_none() {
            upstreams.push(Upstream::gateway(provider(), Policy::in_process()).for_contexts(all()));
        }
        upstreams
    }

    /// Returns the effects and commands of the active definitions that the stand-in executes. An
    /// effect with a similar name and a configured upstream is named beside it.
    pub(super) fn executed(app: &App) -> BTreeSet<String> {
        let active = app.definitions.active();
        let providers = Providers {
            catalog: &app.catalog,
            context: None,
        };
        let manifests = active
            .iter()
            .map(|definition| definition.program.manifest());
        let manifests: Vec<_> = manifests.collect();

        let effects = manifests.iter().flat_map(|manifest| &manifest.effects);
        let effects = effects
            // By the catalog, because a reload can have added upstreams.
            .filter(|effect| availability::has_stand_in(effect, &app.catalog))
            .map(|effect| match providers.similar_effect(effect.as_str()) {
                Some(advice) => format!("{effect} ({advice})"),
                None => effect.to_string(),
            });
        let commands = manifests.iter().flat_map(|manifest| &manifest.commands);

        effects
            .chain(commands.filter(|_| app.config.gateway.is_none()).cloned())
            .collect()
    }

    /// Sets the node whose instances receive the events. Until then, work is retried.
    pub(super) fn attach(&self, app: &Arc<App>) {
        // An error means that a node is attached already.
        self.app.set(Arc::downgrade(app)).ok();
    }

    fn app(&self) -> Result<Arc<App>, ProviderError> {
        self.app
            .get()
            // Weak, because the node owns its upstreams, and they own this provider.
            .and_then(Weak::upgrade)
            // Pending work of an earlier run is dispatched before the node is attached. A transient
            // error repeats it.
            .ok_or_else(|| unavailable("the node is starting".to_owned()))
    }
}

#[async_trait]
impl Provider for StandIn {
    async fn execute(&self, item: &WorkItem, _: Attempt) -> Result<Reply, ProviderError> {
        let app = self.app()?;
        let tag = tag_of(&app, item).unwrap_or_default();
        let response = response(&app, item, &tag);
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.applies_to(&item.work, &tag));

        if let Some(delay) = rule
            .map(StandInRule::delay)
            .filter(|delay| !delay.is_zero())
        {
            tokio::time::sleep(delay).await;
        }

        let failure = rule.and_then(|rule| rule.failure(item));
        let event = if failure.is_some() {
            response.fail
        } else {
            response.ok
        };
        let event_name = event.as_ref().map(EventType::as_str);
        let code = failure.as_ref().map(|failure| failure.code.as_str());
        tracing::info!(
            instance = %item.instance,
            work = %item.work.label(),
            event = event_name,
            failure = code,
            "stand-in executed work"
        );

        // Commands come first: they have no result, so that both events arrive as signals of the
        // instance.
        match (&item.work, event, failure) {
            (Work::Command(command), Some(event), _) => {
                send(
                    &app,
                    item,
                    event,
                    with_fields(&command.payload, response.data),
                )
                .await?;
                Ok(Reply::from(json!({})))
            }
            (_, Some(event), Some(Failure { code, message })) => {
                Err(ProviderError::permanent_with_event(event, code, message))
            }
            (_, None, Some(Failure { code, message })) => {
                Err(ProviderError::permanent(code, message))
            }
            (_, Some(event), None) => Ok(Reply::with_event(event, Value::Object(response.data))),
            (_, None, None) => Ok(Reply::from(Value::Object(response.data))),
        }
    }
}

/// Returns the tag under which the instance requested the work: `charge`, `charge[2]` or
/// `compensate:charge`.
fn tag_of(app: &App, item: &WorkItem) -> Option<String> {
    let instance = app
        .runtime
        .reader(&item.instance)?
        .instance(&item.instance)
        .ok()
        .flatten()?;
    let pending = instance
        .pending_work
        .iter()
        .find(|pending| pending.id == item.id)?;

    Some(pending.tag.to_string())
}

/// Returns the response of the step or compensation with this tag, by the definition to which the
/// instance is pinned.
fn response(app: &App, item: &WorkItem, tag: &str) -> StepResponse {
    // The pinned definition, not the active one: the instance can be older than the last
    // deployment.
    let stored = || {
        app.runtime
            .reader(&item.instance)?
            .instance(&item.instance)
            .ok()
            .flatten()
    };
    let program = stored().and_then(|instance| app.programs.by_hash(&instance.definition.hash));
    let compiled = program.as_ref().and_then(|program| program.as_compiled());

    compiled
        .and_then(|compiled| response_of(compiled.definition(), tag))
        .unwrap_or_default()
}

fn response_of(definition: &Definition, tag: &str) -> Option<StepResponse> {
    let spec = response_spec(definition, tag)?;
    let step = definition
        .steps
        .iter()
        .find(|step| step.id.as_str() == WorkTag::parse(tag).step)?;
    let first =
        |names: Vec<(&EventType, Option<&str>)>| names.first().map(|(event, _)| (*event).clone());

    Some(StepResponse {
        data: sample::fields_of_step(definition, step),
        ok: first(spec.ok),
        fail: first(spec.fail),
    })
}

/// Returns the payload with the fields that it lacks.
fn with_fields(payload: &Value, mut fields: Map<String, Value>) -> Value {
    match payload {
        Value::Object(payload) => {
            // Values of the request replace generated ones.
            fields.extend(payload.clone());
            Value::Object(fields)
        }
        Value::Null => Value::Object(fields),
        other => other.clone(),
    }
}

/// Sends the event to the instance of the work. The work id makes a repeated delivery a duplicate.
async fn send(
    app: &App,
    item: &WorkItem,
    kind: EventType,
    data: Value,
) -> Result<(), ProviderError> {
    let request = ControlRequest {
        id: EventId::new(format!("stand-in:{}", item.id))
            .expect("a prefix and a UUID are a valid id"),
        action: ControlAction::Signal {
            kind,
            data,
            due_at: None,
        },
        expected_version: None,
        at: app.clock.now(),
        user: None,
        reason: None,
        trace: item.trace.clone(),
        wait_token: None,
    };
    match app.runtime.control(&item.instance, request).await {
        // The instance has decided: a repetition would have the same result. Only an unavailable
        // shard is worth another attempt.
        Ok(_) | Err(ControlError::Rejected(_) | ControlError::DeadLettered(_)) => Ok(()),
        Err(error @ ControlError::Unavailable) => Err(unavailable(error.to_string())),
    }
}

fn unavailable(message: String) -> ProviderError {
    ProviderError::unavailable("stand_in_unavailable", message)
}

#[cfg(test)]
mod tests {
    use orlog_program::compile_yaml;

    use super::*;

    const SAGA: &str = "
saga: order
version: 1
start: OrderPlaced
vars: { lines: =event.lines }
steps:
  - id: route
    do: { switch: [{ when: =size(vars.lines) > 9, then: large }, { then: small }] }
  - id: large
    do: { effect: risk.score }
    save: { score: =event.score }
  - id: small
    foreach: { in: =vars.lines, as: line }
    do: { command: stock.Reserve }
    ok: { event: Reserved, when: =event.sku == line.sku }
    fail: { event: Rejected, when: =event.sku == line.sku }
    save: { shelf: =event.shelf }
    undo: { command: stock.Release, ok: Released }
completed: { fact: Done, data: { a: =vars.score, b: =vars.shelf } }
";

    #[test]
    fn response_finds_branches_elements_and_compensations() {
        let saga = compile_yaml(SAGA, "test").expect("the saga is valid");
        let names = |tag| {
            let found = response_of(saga.definition(), tag)?;
            let fields = found.data.keys().cloned().collect::<Vec<_>>();
            Some((
                found.ok.map(|ok| ok.to_string()),
                found.fail.map(|fail| fail.to_string()),
                fields.join(" "),
            ))
        };
        let event = |name: &str| Some(name.to_owned());
        assert_eq!(names("large"), Some((None, None, "score".to_owned())));
        assert_eq!(
            names("small[3]"),
            Some((event("Reserved"), event("Rejected"), "shelf sku".to_owned()))
        );
        assert_eq!(
            names("compensate:small[0]"),
            Some((event("Released"), None, "shelf sku".to_owned()))
        );
        assert_eq!(names("other"), None);
    }

    #[test]
    fn response_fulfils_the_condition_of_its_step() {
        let saga = compile_yaml(
            "
saga: trip
version: 1
start: TripRequested
steps:
  - { id: north, do: { command: north.Book }, ok: { event: Booked, when: =event.airline == 'north' } }
  - { id: south, do: { command: south.Book }, ok: { event: Booked, when: =event.airline == 'south' } }
",
            "test",
        );
        let saga = saga.expect("the saga is valid");
        for step in ["north", "south"] {
            let response = response_of(saga.definition(), step).expect("the step exists");
            assert_eq!(response.data["airline"], step);
        }
    }
}
