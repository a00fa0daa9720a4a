//! Test files of definitions (`*.saga.test.yaml`): inputs and expectations.
//!
//! [`TestFile::parse`] parses a file; every diagnostic has file, line, column and, if available, a
//! suggestion. [`run`] runs one case on its own simulator. A failed case reports all mismatches and
//! the history of the instance.

mod check;
mod diff;
mod expect;
mod parse;
mod report;

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_model::{CorrelationId, DeadLetter, InstanceKey, SagaName, Timestamp};
use orlog_program::{CompiledDefinition, Diagnostic, InvariantSpec, Program, SagaInvariant};
use uuid::Uuid;

use crate::invariants::InvariantChecker;
use crate::runner::{ScenarioRunner, StepResult};
use crate::simulator::{InputResult, Simulator, SimulatorPrograms};
use crate::step::SimulationStep;

pub use check::format_history;
pub use expect::{
    Expectation, ExpectedFields, ExpectedReference, TimerExpectation, WorkExpectation,
};
pub(crate) use report::escape;
pub use report::{Summary, TestResult, junit};

/// Test file.
#[derive(Clone, Debug)]
pub struct TestFile {
    /// Path of the definition under test as written: relative to the test file.
    pub definition: String,
    /// Invariants of the runs, beside those of the definition.
    pub invariants: Vec<TestInvariant>,
    /// Test cases in the order of the file.
    pub cases: Vec<TestCase>,
}

/// Invariant that a test file states.
#[derive(Clone, Debug)]
pub struct TestInvariant {
    /// Line of the invariant.
    pub line: usize,
    /// The invariant.
    pub spec: InvariantSpec,
}

/// Test case.
#[derive(Clone, Debug)]
pub struct TestCase {
    /// Name of the test.
    pub name: String,
    /// First line of the test.
    pub line: usize,
    /// Start time of the test.
    pub start_time: Timestamp,
    /// Inputs, with expectations between them and at the end.
    pub steps: Vec<TestStep>,
}

/// One step of a test and its position.
#[derive(Clone, Debug)]
pub struct TestStep {
    /// Line of the step.
    pub line: usize,
    /// Target instance: a correlation id, or a saga and a correlation id. Default: the first
    /// instance of the saga.
    pub instance: Option<String>,
    /// Kind of the step.
    pub kind: TestStepKind,
}

/// Kind of a test step.
#[derive(Clone, Debug)]
pub enum TestStepKind {
    /// Input. `rejected`: the instance must reject it.
    Step {
        /// Simulation step.
        step: SimulationStep,
        /// Text that the expected rejection must contain.
        rejected: Option<String>,
    },
    /// Expectation.
    Expect(Box<Expectation>),
}

/// Mismatch between expected and actual state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Line in the test file.
    pub line: usize,
    /// Description, in lines for users.
    pub message: String,
}

impl TestFile {
    /// Compiles the invariants of the file for the definition under test. `file` is only used in
    /// diagnostics.
    ///
    /// # Errors
    /// All diagnostics in the order of the text.
    pub fn compile_invariants(
        &self,
        program: &dyn Program,
        file: &str,
    ) -> Result<Arc<[SagaInvariant]>, Vec<Diagnostic>> {
        let mut compiled = Vec::new();
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        let of_definition = program.as_compiled().into_iter();
        let of_definition = of_definition.flat_map(CompiledDefinition::invariants);
        names.extend(of_definition.map(SagaInvariant::name));

        for (n, invariant) in self.invariants.iter().enumerate() {
            let path = format!("invariants[{n}]");
            // Reports name an invariant, not its file.
            if !names.insert(invariant.spec.name.as_str()) {
                let message = format!(
                    "the invariant `{}` is stated twice, here or in the definition",
                    invariant.spec.name
                );
                problems.push(Diagnostic {
                    line: invariant.line,
                    path: format!("{path}.name"),
                    ..Diagnostic::of_file(file, message)
                });
            }
            let Some(definition) = program.as_compiled().map(CompiledDefinition::definition) else {
                let message = "only a definition with steps has invariants".to_owned();
                problems.push(Diagnostic {
                    line: invariant.line,
                    path,
                    ..Diagnostic::of_file(file, message)
                });
                continue;
            };
            match SagaInvariant::compile(&invariant.spec, definition, &path) {
                Ok(invariant) => compiled.push(invariant),
                Err(found) => problems.extend(found.into_iter().map(|problem| Diagnostic {
                    file: file.to_owned(),
                    line: invariant.line,
                    column: 1,
                    ..problem
                })),
            }
        }
        if problems.is_empty() {
            Ok(compiled.into())
        } else {
            Err(problems)
        }
    }
}

/// Runs a case. Returns all mismatches, and the history of the instance if there are any.
/// `invariants` are those of the test file; those of the definition are checked as well.
#[must_use]
pub fn run(
    case: &TestCase,
    saga: &SagaName,
    programs: &Arc<SimulatorPrograms>,
    invariants: &Arc<[SagaInvariant]>,
) -> Vec<Mismatch> {
    let mut runner = ScenarioRunner::new(
        Simulator::new(Arc::clone(programs), case.start_time),
        saga.clone(),
    );
    let mut checker = InvariantChecker::new().with_invariants(saga.clone(), Arc::clone(invariants));
    // Number of violations that were reported.
    let mut reported = 0;
    let mut mismatches = Vec::new();
    let mut dead_letters = ExpectedDeadLetters::of(case);
    let mismatch = |line, message| Mismatch { line, message };

    for step in &case.steps {
        let at = match instance(step, saga, &runner) {
            Ok(at) => at,
            Err(message) => {
                // The later steps depend on this one.
                mismatches.push(mismatch(step.line, message));
                break;
            }
        };

        match &step.kind {
            TestStepKind::Step {
                step: input,
                rejected,
            } => {
                let result = runner
                    .run_step(input, at.as_ref(), &mut checker)
                    .map_err(|error| error.to_string());
                // An invariant that is stated holds in every test, also if no expectation asks.
                let new = checker.violations().iter().skip(reported);
                let stated = new.filter(|violation| violation.is_defined());
                mismatches.extend(stated.map(|violation| {
                    mismatch(step.line, format!("invariant violated: {violation}"))
                }));
                reported = checker.violations().len();
                // A failed step ends the case: the expectations after it would report its
                // consequences.
                if let Err(message) =
                    result.and_then(|result| check_step(&result, rejected.as_deref()))
                {
                    mismatches.push(mismatch(step.line, message));
                    break;
                }

                let unexpected = dead_letters.unexpected(&runner.simulator).into_iter();
                mismatches.extend(unexpected.map(|message| mismatch(step.line, message)));
            }
            TestStepKind::Expect(expect) => {
                let key = at.as_ref().or(runner.instance());
                let found = check::mismatches(expect, key, &runner, &checker);
                mismatches.extend(
                    found
                        .into_iter()
                        .map(|message| mismatch(step.line, message)),
                );
            }
        }
    }
    mismatches
}

/// Dead letters of a case. They fail it unless one of its expectations names `dead_letters`.
struct ExpectedDeadLetters {
    is_checked: bool,
    seen: BTreeSet<Uuid>,
}

impl ExpectedDeadLetters {
    fn of(case: &TestCase) -> Self {
        // One expectation suffices for the whole case: it names all dead letters up to its place.
        let is_checked = case.steps.iter().any(|step| match &step.kind {
            TestStepKind::Expect(expect) => expect.dead_letters.is_some(),
            TestStepKind::Step { .. } => false,
        });
        Self {
            is_checked,
            seen: BTreeSet::new(),
        }
    }

    /// Returns a message for each new dead letter, unless an expectation checks them.
    fn unexpected(&mut self, simulator: &Simulator) -> Vec<String> {
        if self.is_checked {
            return Vec::new();
        }

        let mut messages = Vec::new();
        for (_, entry) in simulator.simulated_instances() {
            for DeadLetter {
                id,
                reason,
                message,
                ..
            } in entry.dead_letters()
            {
                // Each dead letter is reported at the step that caused it.
                if self.seen.insert(*id) {
                    let reason = reason.as_str();
                    messages.push(format!(
                        "dead-lettered: {reason}: {message}; correct the input, or expect \
                        `dead_letters: [{reason}]`"
                    ));
                }
            }
        }
        messages
    }
}

fn instance(
    step: &TestStep,
    saga: &SagaName,
    runner: &ScenarioRunner,
) -> Result<Option<InstanceKey>, String> {
    let Some(instance) = &step.instance else {
        return Ok(None);
    };

    let (saga, correlation) = match instance.split_once('/') {
        Some((saga, correlation)) => (
            SagaName::new(saga).map_err(|error| error.to_string())?,
            correlation,
        ),
        None => (saga.clone(), instance.as_str()),
    };

    let correlation = CorrelationId::new(correlation).map_err(|error| error.to_string())?;
    Ok(Some(runner.simulator.key(&saga, correlation)))
}

/// Checks the result of a step. A rejected control request or an event without a target is an error
/// of the test unless it is expected.
fn check_step(result: &StepResult, rejected: Option<&str>) -> Result<(), String> {
    let reason = match result {
        StepResult::TimeAdvanced(_) => None,
        StepResult::NoInstance(reason) => Some(reason.clone()),
        StepResult::Delivered(all) => all.iter().find_map(|result| match result {
            InputResult::Rejected(rejection) => Some(rejection.to_string()),
            InputResult::Applied(_)
            | InputResult::Buffered
            | InputResult::Ignored(_)
            | InputResult::DeadLettered(..) => None,
        }),
    };

    match (reason, rejected) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err("expected a rejection, but it was not rejected".to_owned()),
        (Some(reason), None) => Err(format!("rejected: {reason}")),
        (Some(reason), Some(part)) if reason.contains(part) => Ok(()),
        (Some(reason), Some(part)) => Err(format!(
            "expected a rejection with `{part}`, but it was rejected: {reason}"
        )),
    }
}

/// Returns the history of the instance of a case, to analyze a failure.
#[must_use]
pub fn history_of(
    case: &TestCase,
    saga: &SagaName,
    programs: &Arc<SimulatorPrograms>,
) -> Vec<String> {
    let mut runner = ScenarioRunner::new(
        Simulator::new(Arc::clone(programs), case.start_time),
        saga.clone(),
    );

    for step in &case.steps {
        let (TestStepKind::Step { step: input, .. }, Ok(at)) =
            (&step.kind, instance(step, saga, &runner))
        else {
            continue;
        };
        if runner.run_step(input, at.as_ref(), &mut ()).is_err() {
            break;
        }
    }

    let entry = runner
        .instance()
        .and_then(|key| runner.simulator.simulated_instance(key));
    entry.map_or_else(
        || vec!["no instance has started".to_owned()],
        |entry| format_history(entry, case.start_time),
    )
}

#[cfg(test)]
mod tests {
    use orlog_program::compile_yaml;

    use super::*;

    const PAYMENT: &str = "
saga: payment
version: 1
start: Requested
steps:
  - { id: check, do: { human: { title: Check, not_by: starter } }, ok: Checked, timeout: 1d }
  - { id: release, do: { human: { title: Release, not_by: [starter, previous] } }, ok: Released, timeout: 1d }
";

    fn run_all(given: &str) -> Vec<Mismatch> {
        let compiled: Arc<dyn Program> =
            Arc::new(compile_yaml(PAYMENT, "payment.saga.yaml").unwrap());
        let programs = Arc::new(SimulatorPrograms::new([compiled]));
        let text = format!(
            "saga: payment.saga.yaml\ntests:\n  - name: n\n    given:\n{given}    expect: {{ status: completed }}\n"
        );
        let file = TestFile::parse(&text, "payment.saga.test.yaml").unwrap();
        run(
            &file.cases[0],
            &SagaName::new("payment").unwrap(),
            &programs,
            &Arc::default(),
        )
    }

    #[test]
    fn task_excludes_the_stated_users() {
        let steps = "      - { event: Requested, user: ada }
      - { task: check, user: ada, rejected: \"not_by: starter\" }
      - { task: check, user: bob }
      - { task: release, user: bob, rejected: \"not_by: previous\" }
      - { task: release, user: ada, rejected: \"not_by: starter\" }
      - { task: release, user: carol }
";
        assert_eq!(run_all(steps), []);
    }

    #[test]
    fn unexpected_dead_letter_fails_the_test() {
        let order = "saga: order\nversion: 1\nstart: Placed\nsteps:\n  - { id: reserve, do: { effect: stock.reserve }, save: { r: =event.reservation } }\n";
        let compiled: Arc<dyn Program> = Arc::new(compile_yaml(order, "order.saga.yaml").unwrap());
        let programs = Arc::new(SimulatorPrograms::new([compiled]));
        let result = |expected: &str| {
            let text = format!(
                "saga: order.saga.yaml\ntests:\n  - name: n\n    given:\n      - Placed\n      - {{ ok: reserve, data: {{ reservatoin: r }} }}\n    expect: {{ status: running{expected} }}\n"
            );
            let file = TestFile::parse(&text, "order.saga.test.yaml").unwrap();
            run(
                &file.cases[0],
                &SagaName::new("order").unwrap(),
                &programs,
                &Arc::default(),
            )
        };
        let found = result("");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 6);
        assert!(
            found[0]
                .message
                .contains("expect `dead_letters: [schema_mismatch]`"),
            "{found:?}"
        );
        assert_eq!(result(", dead_letters: [schema_mismatch]"), []);
    }

    #[test]
    fn users_of_steps_without_a_user_are_admitted() {
        assert_eq!(
            run_all("      - Requested\n      - { task: check }\n      - { task: release }\n"),
            []
        );
    }

    #[test]
    fn lines_of_an_open_order_are_shipped_by_child_sagas() {
        const ORDER: &str = "
saga: order
version: 1
start: OrderOpened
keep_active: true
on:
  - { event: LineAdded, do: { saga: shipment, correlation: =event.line, data: =event, on_parent_end: wait } }
  - { event: OrderClosed, then: complete }
steps:
  - { id: signed, do: { event: Signed, count: 2 }, save: { by: '=events.map(e, e.by)' }, timeout: =vars.limit }
vars: { limit: =event.limit }
completed: { fact: OrderShipped, data: =vars.by }
";
        const SHIPMENT: &str = "
saga: shipment
version: 1
start: ShipmentRequested
steps:
  - { id: send, do: { effect: parcels.send } }
";
        let compiled = [(ORDER, "order.saga.yaml"), (SHIPMENT, "shipment.saga.yaml")]
            .map(|(text, file)| Arc::new(compile_yaml(text, file).unwrap()) as Arc<dyn Program>);
        let programs = Arc::new(SimulatorPrograms::new(compiled));
        let text = "saga: order.saga.yaml
tests:
  - name: n
    given:
      - OrderOpened: { limit: 2d }
      - expect: { timers: { signed: 2d } }
      - { event: Signed, id: s-1, data: { by: ada } }
      - { event: Signed, id: s-1, data: { by: ada } }
      - expect: { status: running, waits: [Signed] }
      - Signed: { by: bob }
      - LineAdded: { line: l-1 }
      - LineAdded: { line: l-2 }
      - OrderClosed: {}
      - { ok: send, instance: shipment/l-1 }
      - expect: { status: running }
      - { ok: send, instance: shipment/l-2 }
    expect: { status: completed, state: { vars: { by: [ada, bob] } }, invariants: true }
";
        let file = TestFile::parse(text, "order.saga.test.yaml")
            .unwrap_or_else(|found| panic!("{found:#?}"));
        assert_eq!(
            run(
                &file.cases[0],
                &SagaName::new("order").unwrap(),
                &programs,
                &Arc::default()
            ),
            []
        );
    }
}
