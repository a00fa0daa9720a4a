//! Tests of the prover: it proves valid definitions, and it finds each broken definition and each broken rule of the
//! engine. Each counterexample fails as a test case of `orlog test`, and passes for the valid definition.

use std::num::NonZeroUsize;

use orlog_program::{CompiledDefinition, compile_yaml};
use serde_json::Value;

use super::state::Move;
use super::timing::{next_timers, schedule};
use super::*;
use crate::explore::Counterexample;
use crate::invariants::Invariant;
use crate::mutants::{InjectedBug, MutantProgram};
use crate::step::SimulationStep;
use crate::test_file::{self, TestFile};

/// Saga with parallel steps, a retried compensation, a handler, timeouts of a step and of the saga.
const TRIP: &str = "
saga: trip
version: 1
start: Requested
correlate: trip
timeout: 1h
vars: { trip: =event.trip }
on: [{ event: Withdrawn, then: cancel }]
steps:
  - { id: hotel, after: [], do: { command: hotels.Book }, ok: Booked, fail: Full, timeout: 10m, undo: { command: hotels.Cancel, ok: Released } }
  - { id: car, after: [], do: { effect: cars.rent }, timeout: 20m, undo: { effect: cars.return, retry: { max_attempts: 2, initial_backoff: 10s } } }
  - { id: pay, after: [hotel, car], do: { effect: payments.charge } }
completed: { fact: TripBooked }
failed: { fact: TripCancelled }
";

fn compiled(text: &str) -> CompiledDefinition {
    compile_yaml(text, "trip.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn options() -> ProveOptions {
    ProveOptions {
        max_states: 50_000,
        max_steps: 200,
        disturbances: 1,
        threads: NonZeroUsize::new(2).unwrap(),
    }
}

fn prove_program(program: impl Program + 'static) -> ProveReport {
    let program: Arc<dyn Program> = Arc::new(program);
    prove(&program, options()).unwrap()
}

#[track_caller]
fn check_proved(text: &str) -> ProveReport {
    let report = prove_program(compiled(text));
    assert!(
        matches!(report.outcome, ProofOutcome::Proved),
        "{:#?}",
        report.outcome
    );
    assert_eq!(report.never_completed, Vec::<String>::new());
    report
}

/// Checks that the prover finds a violation of one of these invariants, and that the counterexample is a failing test.
#[track_caller]
fn check_violated(program: impl Program + 'static, expected: &[Invariant]) -> Counterexample {
    let program: Arc<dyn Program> = Arc::new(program);
    let report = prove(&program, options()).unwrap();
    let ProofOutcome::Violated(found) = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert!(
        expected.contains(&found.violation.rule),
        "{:#?}",
        found.violation
    );
    let mismatches = run_as_test(&found, &program);
    assert!(
        mismatches
            .iter()
            .any(|message| message.starts_with("invariant violated")),
        "{mismatches:?}"
    );
    *found
}

fn run_as_test(found: &Counterexample, program: &Arc<dyn Program>) -> Vec<String> {
    let text = found.test_case("trip.saga.yaml", "prove");
    let file =
        TestFile::parse(&text, "found.saga.test.yaml").unwrap_or_else(|p| panic!("{text}\n{p:?}"));
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(program)]));
    let saga = program.definition_ref().saga.clone();
    test_file::run(&file.cases[0], &saga, &programs, &Arc::default())
        .into_iter()
        .map(|mismatch| mismatch.message)
        .collect()
}

#[track_caller]
fn check_bug(bug: InjectedBug, expected: &[Invariant]) {
    check_bug_in(TRIP, bug, expected);
}

#[track_caller]
fn check_bug_in(definition: &str, bug: InjectedBug, expected: &[Invariant]) {
    let found = check_violated(MutantProgram::new(compiled(definition), bug), expected);
    let valid: Arc<dyn Program> = Arc::new(compiled(definition));
    assert_eq!(run_as_test(&found, &valid), Vec::<String>::new());
}

fn in_doubt_tasks() -> String {
    TRIP.replace(
        "{ effect: cars.rent }",
        "{ effect: cars.rent }, in_doubt: ask",
    )
}

/// Requirements: T3, T4, E4, E6.
#[test]
fn valid_definition_is_proved_for_every_order() {
    let report = check_proved(TRIP);
    assert!(report.states > 200, "{report:?}");
    for status in ["completed", "failed", "cancelled"] {
        assert!(report.ends.contains_key(status), "{:?}", report.ends);
    }
}

#[test]
fn effects_in_doubt_are_proved() {
    check_proved(
        "
saga: trip
version: 1
start: Requested
steps:
  - { id: car, do: { effect: cars.rent }, in_doubt: ask, timeout: 20m, undo: { effect: cars.return } }
  - { id: pay, do: { effect: payments.charge } }
",
    );
}

#[test]
fn result_does_not_depend_on_the_number_of_threads() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    let with_threads = |threads| {
        let options = ProveOptions {
            threads: NonZeroUsize::new(threads).unwrap(),
            max_states: 300,
            ..options()
        };
        prove(&program, options).unwrap().to_json()
    };
    assert_eq!(with_threads(1), with_threads(3));
}

#[test]
fn limit_of_states_is_not_a_proof() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    let report = prove(
        &program,
        ProveOptions {
            max_states: 20,
            ..options()
        },
    )
    .unwrap();
    let ProofOutcome::NotProved { reason } = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert!(reason.contains("the limit of 20 states"), "{reason}");
    assert_eq!(report.states, 20);
    let report = prove(
        &program,
        ProveOptions {
            max_steps: 3,
            ..options()
        },
    )
    .unwrap();
    let ProofOutcome::NotProved { reason } = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert!(
        reason.contains("No run of at most 3 inputs violates an invariant"),
        "{reason}"
    );
}

/// Requirements: T3.
#[test]
fn missing_compensation_is_found() {
    let broken = TRIP.replace(", undo: { command: hotels.Cancel, ok: Released }", "");
    let found = check_violated(compiled(&broken), &[Invariant::AllOrNothing]);
    // Start, the hotel is booked, the instance is cancelled or the car fails.
    assert_eq!(found.steps.len(), 3, "{:?}", found.steps);
    let valid: Arc<dyn Program> = Arc::new(compiled(TRIP));
    assert_eq!(run_as_test(&found, &valid), Vec::<String>::new());
}

#[test]
fn allowed_change_without_compensation_is_proved() {
    let allowed = "
saga: request
version: 1
start: Begun
steps:
  # orlog: allow OL03 because an unused request expires by itself
  - { id: ask, do: { effect: e.ask } }
  - { id: pay, do: { effect: e.pay } }
";
    check_proved(allowed);
    let broken = allowed.replace(
        "  # orlog: allow OL03 because an unused request expires by itself\n",
        "",
    );
    check_violated(compiled(&broken), &[Invariant::AllOrNothing]);
}

/// The handler cancels after a payment that no compensation returns. A pivot prevents it.
#[test]
fn handler_that_cancels_after_an_irreversible_step_is_found() {
    let broken = "
saga: delivery
version: 1
start: Ordered
on: [{ event: Withdrawn, then: cancel }]
steps:
  - { id: reserve, do: { effect: e.reserve }, undo: { effect: u.reserve } }
  - { id: pay, do: { effect: e.pay } }
  - { id: delivered, do: { event: Delivered } }
";
    let found = check_violated(compiled(broken), &[Invariant::AllOrNothing]);
    assert!(
        found
            .steps
            .iter()
            .any(|step| step.to_string().contains("Withdrawn")),
        "{:?}",
        found.steps
    );
    check_proved(&broken.replace("id: pay,", "id: pay, pivot: true,"));
}

/// A payment that succeeds after the saga was cancelled remains: the report names the step.
#[test]
fn late_success_without_a_compensation_is_reported() {
    let report = check_proved(
        "
saga: delivery
version: 1
start: Ordered
steps:
  - { id: reserve, do: { effect: e.reserve }, undo: { effect: u.reserve } }
  - { id: pay, do: { effect: e.pay } }
",
    );
    assert_eq!(report.remaining, ["pay"]);
}

/// The compensation has begun when the pivot succeeds: it continues, and the change of the pivot remains.
#[test]
fn late_success_of_a_pivot_does_not_end_the_compensation() {
    let report = check_proved(
        "
saga: booking
version: 1
start: Ordered
steps:
  - { id: reserve, do: { effect: e.reserve }, undo: { effect: u.reserve } }
  - { id: pay, do: { effect: e.pay }, undo: { effect: u.pay } }
  - { id: tickets, pivot: true, do: { command: t.Issue }, ok: Issued, fail: Rejected, timeout: 1h }
  - { id: send, do: { effect: e.send } }
",
    );
    assert_eq!(report.remaining, ["tickets"]);
}

/// A compensation that waits for an event whose condition no event satisfies.
#[test]
fn compensation_without_end_is_not_proved() {
    let broken = "
saga: trip
version: 1
start: Requested
steps:
  - { id: hotel, do: { effect: hotels.book }, undo: { command: hotels.Cancel, ok: { event: Released, when: event.rooms > 3 && event.rooms < 3 } } }
  - { id: pay, do: { effect: payments.charge } }
";
    let report = prove_program(compiled(broken));
    let ProofOutcome::NotProved { reason } = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert!(reason.contains("waits for Released"), "{reason}");
}

#[test]
fn step_without_end_is_not_proved() {
    let broken = "
saga: poll
version: 1
start: Begun
steps:
  - { id: paid, do: { event: Paid, when: event.amount > 3 && event.amount < 3 } }
";
    let report = prove_program(compiled(broken));
    let ProofOutcome::NotProved { reason } = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert!(
        reason.contains("waits for Paid") && reason.contains("check the conditions"),
        "{reason}"
    );
    assert_eq!(report.never_completed, ["paid"]);
}

#[test]
fn timers_fire_in_every_order_that_a_clock_produces() {
    let saga = "
saga: timers
version: 1
start: Begun
timeout: 12m
steps:
  - { id: first, do: { effect: e.first }, timeout: 5m, undo: { effect: u.first } }
  - { id: second, do: { effect: e.second }, timeout: 10m, undo: { effect: u.second } }
";
    let report = check_proved(saga);
    assert!(report.ends.contains_key("failed"), "{:?}", report.ends);
}

/// Only events with this extension cancel the saga.
#[test]
fn events_have_the_attributes_that_conditions_compare() {
    let report = check_proved(
        "
saga: import
version: 1
start: Begun
vars: { region: =envelope.extensions.region }
on: [{ event: Stopped, when: envelope.extensions.region == 'eu' && envelope.source == 'urn:shop', then: cancel }]
steps:
  - { id: first, do: { event: First }, timeout: 11m }
",
    );
    assert!(report.ends.contains_key("cancelled"), "{:?}", report.ends);
}

/// The timer of the saga was armed first and has the longer delay. It fires before that of the second step only if the
/// first result is late.
#[test]
fn order_of_timers_gets_times() {
    let saga = "
saga: timers
version: 1
start: Begun
timeout: 12m
steps:
  - { id: first, do: { event: First }, timeout: 11m }
  - { id: second, do: { event: Second }, timeout: 2m }
";
    let program: Arc<dyn Program> = Arc::new(compiled(saga));
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let start = ProofState::new(scenario_runner(&program, &programs));
    let event = |kind: &str| orlog_model::EventType::new(kind).unwrap();
    let timer = |name: &str| Move::Timer(orlog_model::Name::new(name).unwrap());
    let begun = Move::Step(SimulationStep::Event(crate::step::EventStep::new(
        event("Begun"),
        Value::Null,
    )));
    let first = SimulationStep::Ok {
        tag: "first".to_owned(),
        event: None,
        data: Value::Null,
    };
    let path = [begun, Move::Step(first)];

    let next = |moves: &[Move]| {
        let timers = next_timers(&start.after(moves).runner.simulator, |_| false);
        timers.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(next(&path[..1]), ["first"]);
    let saga_timer = next(&path)
        .into_iter()
        .find(|name| name != "second")
        .unwrap();

    let late = [&path[..], &[timer(&saga_timer)]].concat();
    let steps = schedule(&start, &late, |_: &str| false).unwrap();
    let texts: Vec<_> = steps.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(
        (texts[1].as_str(), texts[3].as_str()),
        ("{ \"advance\": \"10m\" }", "{ \"advance\": \"2m\" }")
    );
    let early = [path[0].clone(), timer(&saga_timer)];
    assert_eq!(schedule(&start, &early, |_: &str| false), None);
}

#[test]
fn loops_restarts_and_early_events_are_proved() {
    check_proved(
        "
saga: draft
version: 1
start: Begun
steps:
  - { id: write, do: { effect: e.write }, save: { fits: =event.fits }, undo: { effect: u.write } }
  - { id: again, do: { repeat: write, while: vars.fits == 7, max: 3 } }
  - { id: approve, do: { human: { title: ok } }, ok: Yes, fail: No, timeout: 1d }
completed: { fact: Written }
",
    );
    let restarted = prove_program(compiled(
        "
saga: subscription
version: 1
start: Begun
vars: { month: =event.month }
on: [{ event: Stopped, then: complete }]
steps:
  - { id: bill, do: { effect: e.bill }, undo: { effect: u.bill } }
  - { id: paid, do: { event: Paid }, timeout: 5d }
  - { id: next, do: { restart_as_new: Begun, data: { month: =vars.month } } }
",
    ));
    assert!(
        matches!(restarted.outcome, ProofOutcome::Proved),
        "{:#?}",
        restarted.outcome
    );
}

#[test]
fn dropped_compensation_is_found() {
    check_bug(
        InjectedBug::DropsCompensation,
        &[Invariant::CompensationRequested, Invariant::EndReachable],
    );
}

#[test]
fn second_compensation_is_found() {
    check_bug(InjectedBug::CompensatesTwice, &[Invariant::CompensatedOnce]);
}

#[test]
fn compensation_out_of_order_is_found() {
    check_bug(
        InjectedBug::CompensatesOutOfOrder,
        &[
            Invariant::CompensatedInReverse,
            Invariant::CompensatedOnce,
            Invariant::CompensationRequested,
        ],
    );
}

#[test]
fn nondeterminism_is_found() {
    check_bug(InjectedBug::NonDeterministic, &[Invariant::Deterministic]);
}

#[test]
fn ignored_result_is_found() {
    check_bug(InjectedBug::IgnoresResult, &[Invariant::EndReachable]);
}

#[test]
fn lost_late_success_is_found() {
    check_bug(
        InjectedBug::DropsLateSuccess,
        &[
            Invariant::LateSuccessHandled,
            Invariant::UnknownOutcomeHandled,
        ],
    );
}

#[test]
fn new_work_while_compensating_is_found() {
    check_bug(
        InjectedBug::StartsWorkWhileCompensating,
        &[Invariant::NoNewWorkWhileCompensating],
    );
}

#[test]
fn leaked_timer_is_found() {
    check_bug(InjectedBug::LeaksTimer, &[Invariant::NoIdleTimers]);
}

#[test]
fn second_final_fact_is_found() {
    check_bug(
        InjectedBug::EmitsFinalFactTwice,
        &[Invariant::FinalFactEmittedOnce],
    );
}

#[test]
fn another_idempotency_key_is_found() {
    check_bug(
        InjectedBug::ChangesIdempotencyKey,
        &[Invariant::IdempotencyKeyKept],
    );
}

#[test]
fn missing_and_repeated_in_doubt_tasks_are_found() {
    let definition = in_doubt_tasks();
    check_bug_in(
        &definition,
        InjectedBug::SkipsInDoubtTask,
        &[Invariant::InDoubtTaskOpened],
    );
    check_bug_in(
        &definition,
        InjectedBug::RetriesInDoubt,
        &[Invariant::InDoubtTaskOpened],
    );
}

#[test]
fn open_saga_with_counted_events_and_computed_limits_is_proved() {
    let text = "
saga: trip
version: 1
start: Go
vars: { express: =event.express }
keep_active: true
on:
  - { event: Closed, then: complete }
steps:
  - { id: signed, do: { event: Signed, count: 2 }, timeout: \"=vars.express == true ? duration('5m') : duration('1h')\" }
";
    let report = check_proved(text);
    assert!(
        report.ends.keys().any(|status| status == "completed"),
        "{:?}",
        report.ends
    );
}

#[test]
fn child_saga_of_a_handler_is_proved() {
    let text = "
saga: trip
version: 1
start: Go
on: { event: LineAdded, do: { saga: shipment, on_parent_end: wait } }
steps:
  - { id: closed, do: { event: Closed }, timeout: 1h }
";
    check_proved(text);
}

/// Definitions with parallel steps, retries, a race, a task, a loop and variables that only payloads contain.
const SMALL: [&str; 4] = [
    "
saga: trip
version: 1
start: Requested
vars: { trip: =event.trip }
steps:
  - { id: hotel, after: [], do: { command: hotels.Book }, ok: Booked, save: { room: =event.room }, undo: { command: hotels.Cancel, data: { room: =vars.room }, retry: { max_attempts: 3, initial_backoff: 10s } } }
  - { id: car, after: [], do: { effect: cars.rent }, undo: { effect: cars.return } }
  - { id: pay, after: [hotel, car], do: { effect: payments.charge } }
",
    "
saga: race
version: 1
start: Requested
steps:
  - { id: north, after: [], do: { effect: n.book }, undo: { command: n.Cancel, retry: { max_attempts: 3, initial_backoff: 10s } } }
  - { id: south, after: [], do: { effect: s.book }, undo: { effect: s.cancel } }
  - { id: seat, after: { any: [north, south] }, do: { effect: e.seat }, undo: { effect: u.seat } }
",
    "
saga: draft
version: 1
start: Begun
steps:
  - { id: write, do: { effect: e.write }, save: { fits: =event.fits }, undo: { effect: u.write } }
  - { id: again, do: { repeat: write, while: vars.fits == 7, max: 2 } }
  - { id: approve, do: { human: { title: ok } }, ok: Yes, fail: No, timeout: 1d }
",
    "
saga: doubt
version: 1
start: Begun
steps:
  - { id: car, do: { effect: cars.rent }, in_doubt: ask, timeout: 20m, undo: { effect: cars.return } }
  - { id: pay, do: { effect: payments.charge } }
",
];

const BUGS: [InjectedBug; 12] = [
    InjectedBug::DropsCompensation,
    InjectedBug::CompensatesTwice,
    InjectedBug::CompensatesOutOfOrder,
    InjectedBug::NonDeterministic,
    InjectedBug::IgnoresResult,
    InjectedBug::DropsLateSuccess,
    InjectedBug::StartsWorkWhileCompensating,
    InjectedBug::LeaksTimer,
    InjectedBug::EmitsFinalFactTwice,
    InjectedBug::SkipsInDoubtTask,
    InjectedBug::RetriesInDoubt,
    InjectedBug::ChangesIdempotencyKey,
];

/// Returns the outcome, the violated invariant and the number of steps of the counterexample, and what was reached.
/// Outcome, violated invariant with the length of its counterexample, ends, and remaining steps.
type Summary<'r> = (
    &'static str,
    Option<(Invariant, usize)>,
    Vec<&'r String>,
    &'r [String],
);

fn summary(report: &ProveReport) -> Summary<'_> {
    let found = match &report.outcome {
        ProofOutcome::Violated(found) => Some((found.violation.rule, found.steps.len())),
        ProofOutcome::Proved | ProofOutcome::NotProved { .. } => None,
    };
    let reached = if found.is_some() {
        Vec::new()
    } else {
        report.ends.keys().collect()
    };
    (
        report.outcome.as_str(),
        found,
        reached,
        if found.is_some() {
            &[]
        } else {
            &report.never_completed
        },
    )
}

#[track_caller]
fn check_reduction(program: impl Program + 'static, disturbances: u8) -> [usize; 2] {
    let program: Arc<dyn Program> = Arc::new(program);
    let options = ProveOptions {
        disturbances,
        ..options()
    };
    let [reduced, full] = [Exploration::Reduced, Exploration::Full]
        .map(|exploration| prove_with(&program, options, exploration, &mut ()).unwrap());
    assert_eq!(summary(&reduced), summary(&full));
    [reduced.states, full.states]
}

/// The reduced search has the result of the full one, and its counterexamples are as short.
#[test]
fn reduced_search_has_the_result_of_the_full_search() {
    for definition in SMALL {
        let [reduced, full] = check_reduction(compiled(definition), 0);
        assert!(reduced < full, "{reduced} of {full} states");
    }
    for bug in BUGS {
        check_reduction(MutantProgram::new(compiled(SMALL[0]), bug), 0);
        check_reduction(MutantProgram::new(compiled(SMALL[3]), bug), 1);
    }
}

/// The charge follows the verification only; without one, the saga says farewell.
const SIGN_UP: &str = "
saga: sign-up
version: 1
start: SignedUp
correlate: user
steps:
  - { id: verified, do: { event: Verified }, timeout: 24h, on_timeout: { then: farewell } }
  - { id: charge, do: { effect: payments.charge }, timeout: 1h, undo: { effect: payments.refund }, on_failure: continue }
  - { id: open, do: { effect: accounts.open }, undo: { effect: accounts.close } }
  - { id: farewell, pivot: true, do: { effect: mail.farewell } }
";

#[test]
fn failure_handlers_are_proved() {
    check_proved(SIGN_UP);
}

/// The charge requires the verification and the card; a saga without a verification says farewell.
const CHECKED: &str = "
saga: checked
version: 1
start: SignedUp
correlate: user
invariants:
  - { name: charge after verification, never: steps.charge.started && !steps.verified.completed }
  - { name: charge after the card, never: steps.charge.started && !steps.card.completed }
steps:
  - { id: verified, after: [], do: { event: Verified }, timeout: 24h, on_timeout: { then: farewell } }
  - { id: card, after: [], do: { effect: cards.check }, undo: { effect: cards.release } }
  - { id: charge, after: [verified, card], do: { effect: payments.charge }, undo: { effect: payments.refund } }
  - { id: farewell, after: [verified], do: { effect: mail.farewell }, undo: { effect: mail.sorry } }
";

#[test]
fn joins_never_start_without_a_step_that_was_not_reached() {
    check_proved(CHECKED);
    // A step that follows the verification by its position, and a race.
    check_proved(
        &CHECKED
            .replace(
                "  - { id: card,",
                "  - { id: account, do: { effect: a.open }, undo: { effect: a.close } }\n  - { id: card,",
            )
            .replace("after: [verified, card]", "after: [account, card]"),
    );
    check_proved(&CHECKED.replace(
        "after: [verified, card]",
        "after: { count: 2, of: [verified, card] }",
    ));
}

/// Every event arrives in each state, also the confirmation of a command or of a compensation before it is requested:
/// no command is sent whose step has ended, and what was booked is cancelled.
#[test]
fn early_confirmations_are_proved() {
    check_proved(
        "
saga: trip
version: 1
start: Requested
correlate: trip
invariants:
  - { name: no trip without a hotel, always: status != 'completed' || steps.hotel.completed }
  - { name: hotel, always: status == 'completed' || !steps.hotel.completed || steps.hotel.compensated }
steps:
  - { id: check, do: { effect: trips.check }, undo: { effect: trips.release } }
  - { id: hotel, do: { command: hotels.Book }, ok: Booked, fail: Full, timeout: 10m, undo: { command: hotels.Cancel, ok: Released, fail: Kept, timeout: 1h } }
  - { id: pay, do: { effect: payments.charge } }
",
    );
}

/// Saga whose step sends reminders before it times out.
fn reminded(max: u32) -> String {
    format!(
        "
saga: reminded
version: 1
start: Ordered
correlate: order
steps:
  - {{ id: reserve, do: {{ effect: stock.reserve }}, undo: {{ effect: stock.release }} }}
  - {{ id: paid, do: {{ event: Paid }}, timeout: 10d, remind: {{ every: 3d, max: {max}, do: {{ effect: mail.remind, data: {{ number: =reminder }} }} }} }}
  - {{ id: ship, pivot: true, do: {{ effect: shipping.ship }} }}
"
    )
}

#[test]
fn number_of_reminders_does_not_multiply_the_states() {
    let few = check_proved(&reminded(3));
    let many = check_proved(&reminded(1000));
    assert_eq!((many.states, &many.ends), (few.states, &few.ends));
    assert_eq!(many.never_completed, Vec::<String>::new());

    check_reduction(compiled(&reminded(3)), 1);
}

/// Every event is delivered in each state, so that one that is lost before its step starts is found.
#[test]
fn lost_early_event_is_found() {
    let bug = InjectedBug::LosesEarlyEvent;
    let report = prove_program(MutantProgram::new(compiled(&reminded(2)), bug));
    let ProofOutcome::Violated(found) = report.outcome else {
        panic!("{:#?}", report.outcome)
    };
    assert_eq!(found.violation.rule, Invariant::EventKept);
    assert_eq!(found.steps.len(), 2, "{:?}", found.steps);
}

#[test]
fn report_names_combinations_that_are_not_tried() {
    let text = "
saga: many
version: 1
start: Requested
vars: { a: =event.a, b: =event.b, c: =event.c, d: =event.d }
steps:
  - { id: first, do: { effect: e.first }, when: \"=vars.a == 1 && vars.b == 2 && vars.c == 3 && vars.d == 4\" }
";
    let report = prove_program(compiled(text));
    assert_eq!(
        report.limits,
        ["5 of 16 combinations of values are tried for the start event"]
    );
    assert_eq!(prove_program(compiled(TRIP)).limits, Vec::<String>::new());
}

#[test]
fn observer_receives_the_progress_of_a_proof() {
    #[derive(Default)]
    struct Recorder(Vec<ProofProgress>);

    impl ProofObserver for Recorder {
        fn on_progress(&mut self, progress: &ProofProgress) {
            self.0.push(*progress);
        }
    }

    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    let mut recorder = Recorder::default();
    let report = prove_observed(&program, options(), &mut recorder).unwrap();

    let first = recorder.0[0];
    assert_eq!((first.states, first.queued, first.depth), (1, 1, 0));
    let last = recorder.0.last().unwrap();
    assert_eq!((last.states, last.depth), (report.states, report.depth));
    let ascending = recorder
        .0
        .windows(2)
        .all(|two| two[0].states <= two[1].states);
    assert!(
        ascending && recorder.0.len() > report.depth,
        "{:?}",
        recorder.0
    );
}
