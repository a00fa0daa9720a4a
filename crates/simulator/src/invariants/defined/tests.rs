//! Invariants of a sign-up: explored, proved, simulated, and checked by tests.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{CorrelationId, Event, EventId, EventType, SagaName, TenantId, Timestamp};
use orlog_program::{DefinitionGroup, GroupMember, Program, compile_yaml};

use crate::SimulatorPrograms;
use crate::explore::{ExploreOptions, explore};
use crate::invariants::Invariant;
use crate::prove::{ProofOutcome, ProveOptions, prove};
use crate::simulate::{ResponsePolicy, SimulateOptions, simulate};
use crate::test_file::{self, TestFile};

const INVARIANTS: &str = "invariants:
  - { name: charge after verification, never: steps.charge.started && !steps.verified.completed }
  - name: refund
    always: status == 'completed' || !steps.charge.completed || steps.charge.compensated
";

/// Returns a sign-up whose `verified` has this handler and whose `charge` has this compensation.
fn sign_up(handler: &str, undo: &str) -> Arc<dyn Program> {
    let text = format!(
        "# orlog: allow-file OL03 because the tests are about other invariants
saga: sign-up
version: 1
start: SignedUp
{INVARIANTS}steps:
  - {{ id: verified, do: {{ event: MailVerified }}, timeout: 1d, on_timeout: {handler} }}
  - {{ id: charge, do: {{ effect: payments.charge }}{undo} }}
  - {{ id: welcome, do: {{ effect: mail.welcome }} }}
  - {{ id: farewell, after: [verified], do: {{ effect: mail.farewell }} }}
"
    );
    let text = if handler == "continue" {
        text.replace("after: [verified]", "after: [welcome]")
    } else {
        text
    };
    let compiled = compile_yaml(&text, "sign-up.saga.yaml");
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems:#?}")))
}

const UNDO: &str = ", undo: { effect: payments.refund }";

fn outcome(program: &Arc<dyn Program>) -> ProofOutcome {
    let options = ProveOptions {
        max_states: 100_000,
        max_steps: 100,
        disturbances: 1,
        threads: NonZeroUsize::MIN,
    };
    prove(program, options).unwrap().outcome
}

fn run_test(program: &Arc<dyn Program>, text: &str) -> Vec<(usize, String)> {
    let file = TestFile::parse(text, "t").unwrap_or_else(|found| panic!("{text}\n{found:#?}"));
    let invariants = file.compile_invariants(program.as_ref(), "t").unwrap();
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));
    let saga = SagaName::new("sign-up").unwrap();
    test_file::run(&file.cases[0], &saga, &programs, &invariants)
        .into_iter()
        .map(|mismatch| (mismatch.line, mismatch.message))
        .collect()
}

#[test]
fn proof_finds_the_shortest_run_that_violates_an_invariant() {
    let program = sign_up("continue", UNDO);
    let ProofOutcome::Violated(found) = outcome(&program) else {
        panic!("the charge precedes the verification")
    };
    assert_eq!(found.violation.rule, Invariant::Defined(0));
    assert_eq!(
        found.violation.message,
        "charge after verification: never steps.charge.started && !steps.verified.completed"
    );
    let steps: Vec<_> = found.steps.iter().map(ToString::to_string).collect();
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!(steps[1], r#"{ "advance": "1d" }"#);

    // The printed test fails at the input that violates the invariant.
    let text = found.test_case("sign-up.saga.yaml", "orlog prove");
    let mismatches = run_test(&program, &text);
    assert_eq!(mismatches.len(), 1, "{text}\n{mismatches:?}");
    assert!(
        mismatches[0]
            .1
            .starts_with("invariant violated: charge after verification"),
        "{mismatches:?}"
    );
}

#[test]
fn exploration_finds_and_shrinks_a_violation() {
    let options = ExploreOptions {
        seed: 1,
        max_runs: 300,
        steps: 40,
    };
    let found = explore(&sign_up("continue", UNDO), options)
        .counterexample
        .unwrap();
    assert_eq!(found.violation.rule, Invariant::Defined(0));
    assert!(found.steps.len() <= 3, "{:?}", found.steps);
    assert_eq!(found.to_json()["invariant"], "Defined");

    assert!(
        explore(&sign_up("{ then: farewell }", UNDO), options)
            .counterexample
            .is_none()
    );
}

#[test]
fn valid_saga_is_proved_with_its_invariants() {
    let outcome = outcome(&sign_up("{ then: farewell }", UNDO));
    assert!(matches!(outcome, ProofOutcome::Proved), "{outcome:#?}");
}

#[test]
fn end_of_a_run_violates_an_invariant_without_a_compensation() {
    let ProofOutcome::Violated(found) = outcome(&sign_up("{ then: farewell }", "")) else {
        panic!("the charge remains")
    };
    assert_eq!(found.violation.rule, Invariant::Defined(1));
    assert!(
        found
            .violation
            .message
            .starts_with("refund: always status == 'completed'"),
        "{:?}",
        found.violation
    );
}

#[test]
fn test_file_states_invariants() {
    let program = sign_up("{ then: farewell }", UNDO);
    let text = |invariant: &str| {
        format!(
            "saga: sign-up.saga.yaml
invariants:
  - {{ name: no farewell, {invariant} }}
tests:
  - name: n
    given:
      - SignedUp
      - timeout: verified
      - ok: farewell
    expect: {{ status: completed }}
"
        )
    };
    let violated = run_test(&program, &text("never: steps.farewell.started"));
    assert_eq!(
        violated,
        [(
            8,
            "invariant violated: no farewell: never steps.farewell.started".to_owned()
        )]
    );
    assert_eq!(
        run_test(&program, &text("always: steps.farewell.completed")),
        []
    );

    let file = TestFile::parse(&text("never: steps.goodbye.started"), "t").unwrap();
    let found = file.compile_invariants(program.as_ref(), "t").unwrap_err();
    assert_eq!(
        found[0].to_string(),
        "t:3:1: invariants[0].never: there is no step `goodbye`"
    );
}

/// Compiles a saga with these fields after its header.
fn saga(text: &str) -> Arc<dyn Program> {
    let text = format!(
        "# orlog: allow-file OL03 because the tests are about other invariants\nsaga: sign-up\nversion: 1\nstart: Go\n{text}"
    );
    let compiled = compile_yaml(&text, "t");
    Arc::new(compiled.unwrap_or_else(|problems| panic!("{text}\n{problems:#?}")))
}

#[test]
fn run_that_restarts_is_checked_at_its_end() {
    let counter = |invariant: &str| {
        saga(&format!(
            "vars: {{ n: =event.n }}
invariants: [{{ name: i, {invariant} }}]
steps:
  - {{ id: work, do: {{ event: Worked }}, save: {{ done: =event.done }}, timeout: 1h }}
  - {{ id: again, do: {{ restart_as_new: Go, data: {{ n: =vars.n + 1 }} }} }}
"
        ))
    };
    let run = |invariant: &str| {
        run_test(
            &counter(invariant),
            "saga: t\ntests:\n  - name: n\n    given:\n      - Go: { n: 1 }\n      - Worked: { done: 7 }\n    expect: { status: running }\n",
        )
    };

    // The step completes in the transition that replaces the run.
    assert_eq!(run("always: steps.work.completed && vars.done == 7"), []);
    assert_eq!(run("always: status == 'completed' && vars.n == 1"), []);
    assert_eq!(
        run("always: vars.done != 7"),
        [(6, "invariant violated: i: always vars.done != 7".to_owned())]
    );
    assert_eq!(run("never: steps.work.completed").len(), 1);
}

#[test]
fn foreach_over_an_empty_list_is_skipped() {
    let run = |invariant: &str| {
        let program = saga(&format!(
            "vars: {{ items: =event.items }}
invariants: [{{ name: i, {invariant} }}]
steps:
  - {{ id: pay, foreach: {{ in: =vars.items, as: item }}, do: {{ effect: e.pay }}, undo: {{ effect: u.pay }} }}
  - {{ id: end, do: {{ effect: e.end }} }}
"
        ));
        let text = "saga: t\ntests:\n  - name: n\n    given:\n      - Go: { items: [] }\n      - ok: end\n    expect: { status: completed }\n";
        run_test(&program, text)
    };
    assert_eq!(run("never: steps.pay.started || steps.pay.completed"), []);
    assert_eq!(run("always: steps.pay.skipped"), []);
    assert_eq!(run("always: steps.pay.completed").len(), 1);
}

#[test]
fn names_of_invariants_are_unique_in_a_test_file() {
    let program = sign_up("{ then: farewell }", UNDO);
    let text = |name: &str| {
        format!(
            "saga: sign-up.saga.yaml
invariants:
  - {{ name: a, never: status == 'stuck' }}
  - {{ name: {name}, never: status == 'stuck' }}
tests:
  - name: n
    given:
      - SignedUp
    expect: {{ status: running }}
"
        )
    };
    // The second one is an invariant of the definition.
    for twice in ["a", "refund"] {
        let file = TestFile::parse(&text(twice), "t").unwrap();
        let found = file.compile_invariants(program.as_ref(), "t").unwrap_err();
        assert_eq!((found.len(), found[0].line), (1, 4), "{found:?}");
        assert_eq!(
            found[0].message,
            format!("the invariant `{twice}` is stated twice, here or in the definition")
        );
    }
    let file = TestFile::parse(&text("b"), "t").unwrap();
    assert!(file.compile_invariants(program.as_ref(), "t").is_ok());
}

#[test]
fn undo_without_a_value_is_a_finding() {
    let program = |allow: &str| {
        saga(&format!(
            "steps:
  - {{ id: charge, do: {{ effect: e.charge }}, save: {{ id: =event.id }}, undo: {{ effect: u.charge, data: =vars.id{allow} }} }}
"
        ))
    };
    let explored = |program: &Arc<dyn Program>| {
        let options = ExploreOptions {
            seed: 1,
            max_runs: 100,
            steps: 20,
        };
        explore(program, options).undo_without_value
    };
    let proved = |program: &Arc<dyn Program>| {
        let options = ProveOptions {
            max_states: 10_000,
            max_steps: 100,
            disturbances: 1,
            threads: NonZeroUsize::MIN,
        };
        let report = prove(program, options).unwrap();
        assert!(
            matches!(report.outcome, ProofOutcome::Proved),
            "{:#?}",
            report.outcome
        );
        report.undo_without_value
    };

    let found = program("");
    assert_eq!(explored(&found), ["charge"]);
    assert_eq!(proved(&found), ["charge"]);
    let allowed = program(", allow_null: id");
    assert_eq!(explored(&allowed), Vec::<String>::new());
    assert_eq!(proved(&allowed), Vec::<String>::new());
}

#[test]
fn simulation_counts_the_runs_that_violate_an_invariant() {
    let event = |kind: &str, case: &str, day: i64| Event {
        id: EventId::new(format!("{kind}-{case}")).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:test".to_owned(),
        subject: None,
        time: Timestamp::from_millis(day * 86_400_000),
        correlation: Some(CorrelationId::new(case).unwrap()),
        causation: None,
        trace: None,
        schema_version: 1,
        data: serde_json::json!({}),
        user: None,
        attributes: None,
    };
    let events = [
        event("SignedUp", "a", 0),
        event("MailVerified", "a", 0),
        event("SignedUp", "b", 1),
        event("SignedUp", "c", 2),
    ];
    let options = SimulateOptions {
        responses: ResponsePolicy::ok(),
        run_on_for: Duration::from_hours(240),
        record_work: false,
    };
    let simulated = |handler: &str| {
        let programs = SimulatorPrograms::new([sign_up(handler, UNDO)]);
        simulate(Arc::new(programs), &events, &options)
    };
    let report = simulated("continue");
    let violations = &report.violations["sign-up"];
    // By name: the message can differ from run to run.
    let names: Vec<_> = violations.keys().collect();
    assert_eq!(names, ["charge after verification"]);
    let found = &violations["charge after verification"];
    assert_eq!((found.count, found.first.as_str()), (2, "b"));
    assert!(simulated("{ then: farewell }").violations.is_empty());
}

#[test]
fn example_is_proved_and_passes_its_tests() {
    const DEFINITION: &str = include_str!("../../../../../examples/sign-up/sign-up.saga.yaml");
    const TESTS: &str = include_str!("../../../../../examples/sign-up/sign-up.saga.test.yaml");
    let compiled = compile_yaml(DEFINITION, "sign-up.saga.yaml");
    let program: Arc<dyn Program> =
        Arc::new(compiled.unwrap_or_else(|problems| panic!("{problems:#?}")));

    let member = GroupMember {
        program: program.as_ref(),
        file: "sign-up.saga.yaml",
    };
    let warnings = DefinitionGroup::new(vec![member]).warnings(&program.definition_ref().saga);
    assert_eq!(warnings, []);

    let file = TestFile::parse(TESTS, "t").unwrap_or_else(|found| panic!("{found:#?}"));
    let invariants = file.compile_invariants(program.as_ref(), "t").unwrap();
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    for case in &file.cases {
        let saga = &program.definition_ref().saga;
        let mismatches = test_file::run(case, saga, &programs, &invariants);
        assert_eq!(mismatches, [], "{}", case.name);
    }

    let outcome = outcome(&program);
    assert!(matches!(outcome, ProofOutcome::Proved), "{outcome:#?}");

    // The counterexample that the README of the example describes.
    let broken = DEFINITION.replace("on_timeout: { then: farewell }", "on_timeout: continue");
    assert_ne!(broken, DEFINITION);
    let broken: Arc<dyn Program> = Arc::new(compile_yaml(&broken, "t").unwrap());
    let ProofOutcome::Violated(found) = self::outcome(&broken) else {
        panic!("the customer is charged without a verification")
    };
    assert_eq!(found.violation.rule, Invariant::Defined(0));
    assert_eq!(found.steps.len(), 3, "{:?}", found.steps);
}
