//! Parts of a node for its workflows: the programs, and one upstream with their functions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orlog_effect::{Policy, Upstream};
use orlog_model::{DefinitionRef, EffectName, EventType, IdError, Name, SagaName};
use orlog_program::{EventSubscription, Manifest, Program};
use sha2::{Digest as _, Sha256};

use super::NodeWorkflow;
use super::compiled::{TaskEffect, TaskEffects, WorkflowProgram, stored_graph};
use super::executor::{LocalFunction, Role, TaskProvider};
use crate::definition::Definition;
use crate::function::TaskFunctions;
use crate::graph::{StepId, StepKind, TaskPolicy};
use crate::version;

/// Name of the upstream of the functions of workflows.
const UPSTREAM: &str = "workflows";

/// Parts of a node for its workflows.
#[non_exhaustive]
pub struct NodeParts {
    /// Programs of the workflows.
    pub programs: Vec<Arc<dyn Program>>,
    /// Upstream that performs their tasks; `None` if all tasks are performed elsewhere.
    pub upstream: Option<Upstream>,
    /// Step of each effect that a function or a handler performs.
    pub steps: BTreeMap<EffectName, StepRef>,
}

/// Step of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRef {
    /// Name of the workflow.
    pub workflow: String,
    /// Name of the step.
    pub step: String,
}

impl std::fmt::Display for StepRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "step \"{}\" of workflow \"{}\"",
            self.step, self.workflow
        )
    }
}

/// Workflows that cannot be deployed to a node: all problems that were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workflows cannot be deployed:\n  {}", problems.join("\n  "))]
pub struct DeployError {
    /// Problems, each with its remedy.
    pub problems: Vec<String>,
}

impl NodeParts {
    /// Returns the parts of these workflows, which can be several versions of one.
    ///
    /// # Errors
    /// Names that a node does not accept, an effect of two steps, and different workflows with one
    /// version.
    pub fn of(workflows: impl IntoIterator<Item = NodeWorkflow>) -> Result<Self, DeployError> {
        let mut collected = Collected::default();
        for workflow in workflows {
            let name = Arc::clone(&workflow.definition.name);
            if let Err(problem) = collected.add(workflow) {
                collected
                    .problems
                    .push(format!("workflow \"{name}\": {problem}"));
            }
        }

        // All problems are reported at once: a deployment is corrected in one pass.
        let Collected {
            programs,
            provider,
            longest_delay,
            problems,
            steps,
        } = collected;

        if !problems.is_empty() {
            return Err(DeployError { problems });
        }

        let mut effects: Vec<_> = provider
            .functions
            .keys()
            .map(|(effect, _)| effect.clone())
            .collect();
        // The keys are sorted, so the versions of an effect follow each other.
        effects.dedup();

        // The longest delay of any task: the upper limit belongs to the upstream, which all
        // workflows share.
        let mut policy = Policy::in_process();
        policy.backoff.max = policy.backoff.max.max(longest_delay);

        let upstream = (!effects.is_empty())
            .then(|| Upstream::effects(UPSTREAM, effects, Arc::new(provider), policy));

        let programs = programs
            .into_iter()
            .map(|program| Arc::new(program) as Arc<dyn Program>);

        Ok(Self {
            programs: programs.collect(),
            upstream,
            steps,
        })
    }
}

/// Workflows that were added.
#[derive(Default)]
struct Collected {
    programs: Vec<WorkflowProgram>,
    provider: TaskProvider,
    /// Step of each effect that a function performs.
    steps: BTreeMap<EffectName, StepRef>,
    longest_delay: Duration,
    problems: Vec<String>,
}

impl Collected {
    fn add(&mut self, workflow: NodeWorkflow) -> Result<(), String> {
        let definition = Arc::clone(&workflow.definition);
        let version = workflow.version;
        let saga = SagaName::for_path(&*definition.name).map_err(|error| error.to_string())?;
        if version == 0 {
            return Err("versions begin with 1; set another with `version`".to_owned());
        }

        let same = |program: &&WorkflowProgram| {
            (&program.reference.saga, program.reference.version) == (&saga, version)
        };
        if let Some(other) = self.programs.iter().find(same) {
            let difference = version::difference(&other.definition.graph, &definition.graph);
            return Err(format!(
                "version {version} is deployed twice, and {difference}; deploy it once, or set \
                another version"
            ));
        }

        let effects = self.effects(&definition, version)?;
        let event = |kind: &str| EventType::for_input(kind).map_err(|error| error.to_string());
        let start_event = event(&workflow.start_event)?;

        let all = effects.values().flat_map(|effects| {
            [
                Some(&effects.task),
                effects.undo.as_ref(),
                effects.undo_unknown.as_ref(),
            ]
        });
        let mut names: Vec<_> = all.flatten().map(|effect| effect.name.clone()).collect();
        names.sort();
        // Several steps can request the same remote effect.
        names.dedup();

        let manifest = Manifest {
            subscriptions: vec![EventSubscription {
                kind: start_event.clone(),
                starts: true,
            }],
            effects: names,
            ..Manifest::default()
        };

        // The hash covers the version: a new version is another program, also with the same graph.
        let hash = Sha256::digest(format!("workflow:{saga}:{version}:{}", definition.hash));
        let reference = DefinitionRef {
            saga,
            version,
            hash: std::array::from_fn(|index| hash[index]),
        };
        let completed_event = event(&workflow.completed_event)?;
        let failed_event = event(&workflow.failed_event)?;

        let drawing = super::drawing::draw(
            &definition.graph,
            &reference,
            &start_event,
            &completed_event,
            &effects,
        );

        self.programs.push(WorkflowProgram {
            reference,
            manifest,
            check_input: workflow.check_input,
            start_event,
            completed_event,
            failed_event,
            correlate: workflow.correlate,
            check_identifier: workflow.check_identifier,
            effects,
            drawing,
            stored_graph: stored_graph(&definition.graph)?,
            definition,
        });
        Ok(())
    }

    /// Returns the effects of all tasks, and registers the functions of those that this process
    /// performs.
    fn effects(
        &mut self,
        definition: &Arc<Definition>,
        version: u32,
    ) -> Result<BTreeMap<StepId, TaskEffects>, String> {
        let mut all = BTreeMap::new();
        for (step, id) in definition.graph.positions() {
            check_name(&step.name).map_err(|error| format!("step \"{}\": {error}", step.name))?;
            let (StepKind::Task(policy), Some(functions)) = (&step.kind, definition.task(id))
            else {
                if let StepKind::Signal { .. } = step.kind {
                    let event = EventType::for_input(&*step.name);
                    event.map_err(|error| format!("signal \"{}\": {error}", step.name))?;
                }
                continue;
            };

            self.longest_delay = self.longest_delay.max(longest_delay(policy));
            let TaskFunctions {
                task,
                undo,
                undo_unknown,
            } = functions;
            let contract = task.contract();

            // An effect has the name of its step, unless a contract names it.
            let own = format!("{}.{}", definition.name, step.name);
            let named = contract.map_or_else(|| own.clone(), |contract| contract.effect.to_owned());

            let mut add = |remote: Option<&str>, local: String, role| {
                let name = EffectName::for_input(remote.map_or(local, ToOwned::to_owned));
                let name = name.map_err(|error| format!("step \"{}\": {error}", step.name))?;
                if remote.is_none() {
                    let function = LocalFunction {
                        definition: Arc::clone(definition),
                        step: id,
                        role,
                    };
                    self.register(&name, version, &step.name, function)?;
                }
                Ok::<_, String>(TaskEffect {
                    name,
                    is_remote: remote.is_some(),
                })
            };

            let event = |kind: &str| {
                EventType::for_input(kind)
                    .map_err(|error| format!("step \"{}\": {error}", step.name))
            };

            let effects = TaskEffects {
                task: add(task.remote(), named, Role::Task)?,
                undo: undo
                    .as_ref()
                    .map(|undo| add(undo.remote(), format!("{own}.undo"), Role::Undo))
                    .transpose()?,
                undo_unknown: undo_unknown
                    .as_ref()
                    .map(|undo| {
                        add(
                            undo.remote(),
                            format!("{own}.undo_unknown"),
                            Role::UndoUnknown,
                        )
                    })
                    .transpose()?,
                ok: contract.map(|contract| event(contract.ok)).transpose()?,
                fail: contract
                    .and_then(|contract| contract.fail)
                    .map(event)
                    .transpose()?,
            };

            all.insert(id, effects);
        }
        Ok(all)
    }

    fn register(
        &mut self,
        effect: &EffectName,
        version: u32,
        step: &str,
        function: LocalFunction,
    ) -> Result<(), String> {
        let own = StepRef {
            workflow: function.definition.name.to_string(),
            step: step.to_owned(),
        };

        let first = self
            .steps
            .entry(effect.clone())
            .or_insert_with(|| own.clone())
            .clone();

        let earlier = self
            .provider
            .functions
            .insert((effect.clone(), version), function);

        // A second version of a workflow registers the same step again, under its version.
        if first != own || earlier.is_some() {
            return Err(format!(
                "the effect {effect} is performed by {first} and by {own}; a function performs one \
                step, give each its own effect"
            ));
        }
        Ok(())
    }
}

/// Checks the name of a step: tags of work and names of timers contain it.
fn check_name(name: &str) -> Result<(), String> {
    if let Some(character) = name
        .chars()
        .find(|character| matches!(character, ':' | '[' | ']'))
    {
        return Err(format!(
            "the name contains {character:?}, which a node uses in paths; rename the step"
        ));
    }

    Name::for_input(name)
        .map(drop)
        .map_err(|error: IdError| error.to_string())
}

fn longest_delay(policy: &TaskPolicy) -> Duration {
    let retries = [Some(policy.retry), policy.undo, policy.undo_unknown];
    retries
        .into_iter()
        .flatten()
        .map(|retry| retry.longest_delay())
        .max()
        .unwrap_or_default()
}
