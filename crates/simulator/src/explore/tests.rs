//! Tests of the explorer: it finds no violation in valid definitions, and it finds each injected bug.

use orlog_program::{CompiledDefinition, compile_yaml};

use super::*;
use crate::mutants::{InjectedBug, MutantProgram};
use crate::step::EventStep;
use crate::test_file::{self, TestFile};

const TRIP: &str = "
saga: trip
version: 1
start: Requested
vars: { total: =event.total }
steps:
  - { id: hotel, do: { command: hotels.Book }, ok: Booked, fail: Full, undo: { command: hotels.Cancel, ok: Cancelled } }
  - { id: car, after: [], do: { effect: cars.rent }, undo: { effect: cars.return }, timeout: 10m }
  - { id: gift, after: [hotel, car], when: =vars.total > 100, do: { effect: gifts.send }, undo: { effect: gifts.fetch } }
  - { id: pay, do: { effect: payments.charge }, timeout: 1h }
completed: { fact: TripBooked }
failed: { fact: TripCancelled }
";

/// Returns the trip saga with an operator decision for effects in doubt.
fn trip_with_in_doubt_tasks() -> String {
    let with_in_doubt = |effect: &str| format!("{{ effect: {effect} }}, in_doubt: ask");
    ["cars.rent", "gifts.send"]
        .iter()
        .fold(TRIP.to_owned(), |text, effect| {
            text.replace(&format!("{{ effect: {effect} }}"), &with_in_doubt(effect))
        })
}

fn compiled(text: &str) -> CompiledDefinition {
    compile_yaml(text, "trip.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn run(program: &Arc<dyn Program>, runs: usize) -> ExploreReport {
    explore(
        program,
        ExploreOptions {
            seed: 7,
            max_runs: runs,
            steps: 40,
        },
    )
}

#[test]
fn valid_definition_has_full_coverage_and_no_counterexample() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    let report = run(&program, 300);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
    assert!(report.states > 50, "{}", report.states);
}

#[test]
fn in_doubt_tasks_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(&trip_with_in_doubt_tasks()));
    let report = run(&program, 600);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
    for reached in ["car in doubt", "gift in doubt"] {
        assert!(
            report.covered.iter().any(|item| item == reached),
            "{:?}",
            report.covered
        );
    }
}

/// Saga with each kind of work that can succeed after it has ended.
const LATE: &str = "
saga: loan
version: 1
start: Begun
on: [{ event: Off, then: cancel }]
steps:
  - { id: file, do: { command: loans.OpenFile }, timeout: 5m, undo: { command: loans.CloseFile } }
  - { id: score, after: [], do: { effect: scores.order }, timeout: 5m, undo: { effect: scores.cancel } }
  - { id: check, after: [], do: { saga: audit, data: {} }, timeout: 5m, undo: { effect: audits.revoke } }
  - { id: scan, after: [], do: { job: { type: js, script: scan } }, timeout: 5m, undo: { effect: scans.delete } }
  - { id: stock, after: [], do: { command: stock.Reserve }, ok: Reserved, timeout: 5m, undo: { command: stock.Release } }
";

#[test]
fn late_success_of_every_kind_of_work_is_compensated() {
    let program: Arc<dyn Program> = Arc::new(compiled(LATE));
    let report = run(&program, 600);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert!(
        report.statuses.contains_key("cancelled"),
        "{:?}",
        report.statuses
    );
}

/// Saga with a child saga for each policy of `on_parent_end`.
const CHILDREN: &str = "
saga: hire
version: 1
start: Begun
on: [{ event: Off, then: cancel }, { event: Enough, then: complete }]
steps:
  - { id: file, do: { effect: e.file }, undo: { effect: u.file } }
  - { id: stop, after: [file], do: { saga: kit, data: {} }, timeout: 5m, undo: { effect: u.stop } }
  - { id: leave, after: [file], do: { saga: kit, data: {}, on_parent_end: abandon }, timeout: 5m, undo: { effect: u.leave } }
  - { id: wait, after: [file], do: { saga: kit, data: {}, on_parent_end: wait }, timeout: 5m, undo: { effect: u.wait } }
  - { id: race, after: { count: 2, of: [stop, leave, wait] }, do: { effect: e.race }, undo: { effect: u.race } }
";

#[test]
fn policies_of_child_sagas_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(CHILDREN));
    let report = run(&program, 900);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
}

/// Saga that restarts as new, with a discarded branch and handler actions whose results can arrive late.
const SUBSCRIPTION: &str = "
saga: subscription
version: 1
start: Begun
timeout: 40d
vars: { month: =event.month }
on: [{ event: Noted, do: { effect: e.note } }]
steps:
  - { id: bill, do: { effect: e.bill }, save: { last: =event.last }, undo: { effect: u.bill } }
  - { id: card, after: [bill], do: { effect: e.card }, undo: { effect: u.card } }
  - { id: bank, after: [bill], do: { saga: debit, data: {} }, timeout: 5d, undo: { effect: u.bank } }
  - { id: paid, after: { any: [card, bank] }, do: { event: Paid }, timeout: 5d }
  - { id: route, do: { switch: [{ when: vars.last == 7, then: close }, { then: next }] } }
  - { id: close, do: { effect: e.close }, undo: { effect: u.close } }
  - { id: next, after: [route], do: { restart_as_new: Begun, data: { month: =vars.month } } }
completed: { fact: Closed }
failed: { fact: Broken }
";

#[test]
fn restarts_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(SUBSCRIPTION));
    let report = run(&program, 900);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
}

/// Saga with a loop: parallel branches, a task, waits, and a step of which a late success is possible.
const LOOP: &str = "
saga: search
version: 1
start: Begun
steps:
  - { id: open, do: { effect: e.open }, undo: { effect: u.open } }
  - { id: a, after: [open], do: { effect: e.a, data: =round }, timeout: 5m, undo: { effect: u.a, data: =round } }
  - { id: b, after: [open], do: { command: x.B }, ok: Found, undo: { command: x.U, ok: Released } }
  - { id: best, after: { any: [a, b] }, do: { effect: e.best }, in_doubt: ask, save: { fits: =event.fits }, undo: { effect: u.best } }
  - { id: approve, do: { human: { title: ok } }, ok: Yes, fail: No, timeout: 1d }
  - { id: pause, do: { wait: 1m } }
  - { id: rounds, do: { repeat: [a, b], while: vars.fits == 7, max: 3 } }
  - { id: book, do: { effect: e.book } }
completed: { fact: Booked }
failed: { fact: NotBooked }
";

#[test]
fn loops_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(LOOP));
    let report = explore(
        &program,
        ExploreOptions {
            seed: 7,
            max_runs: 900,
            steps: 60,
        },
    );
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
    assert!(
        report.covered.iter().any(|part| part == "a repeated"),
        "{:?}",
        report.covered
    );
}

#[test]
fn long_loop_is_no_dead_end() {
    let poll = "
saga: poll
version: 1
start: Begun
steps:
  - { id: go, pivot: true, do: { effect: e.go } }
  - { id: ask, do: { effect: e.ask } }
  - { id: polled, do: { repeat: ask, while: round < 999, max: 1000 } }
";
    let program: Arc<dyn Program> = Arc::new(compiled(poll));
    let report = run(&program, 20);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
}

#[test]
fn same_seed_is_reproducible() {
    let program: Arc<dyn Program> = Arc::new(compiled(TRIP));
    assert_eq!(run(&program, 20).to_json(), run(&program, 20).to_json());
}

#[track_caller]
fn check(bug: InjectedBug, expected: &[Invariant]) {
    check_in(TRIP, bug, expected);
}

#[track_caller]
fn check_in(definition: &str, bug: InjectedBug, expected: &[Invariant]) {
    let program: Arc<dyn Program> = Arc::new(MutantProgram::new(compiled(definition), bug));
    let report = run(&program, 300);
    let found = report
        .counterexample
        .unwrap_or_else(|| panic!("{bug:?} was not found"));
    assert!(
        expected.contains(&found.violation.rule),
        "{bug:?}: {:?}",
        found.violation
    );
    assert!(
        found.steps.len() <= 8 && found.steps.len() <= found.original_steps,
        "{bug:?}: {:?}",
        found.steps
    );

    let text = found.test_case("trip.saga.yaml", "explore with seed 7");
    let file =
        TestFile::parse(&text, "found.saga.test.yaml").unwrap_or_else(|p| panic!("{text}\n{p:?}"));
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let saga = program.definition_ref().saga.clone();
    let mismatches = test_file::run(&file.cases[0], &saga, &programs, &Arc::default());
    assert!(
        mismatches
            .iter()
            .any(|mismatch| mismatch.message.starts_with("invariant violated")),
        "{text}\n{mismatches:?}"
    );
    let valid: Arc<dyn Program> = Arc::new(compiled(definition));
    let mismatches = test_file::run(
        &file.cases[0],
        &saga,
        &Arc::new(SimulatorPrograms::new([valid])),
        &Arc::default(),
    );
    assert!(
        mismatches.is_empty(),
        "the valid program violates it too: {mismatches:?}\n{text}"
    );
}

#[test]
fn finds_a_dropped_compensation() {
    check(
        InjectedBug::DropsCompensation,
        &[Invariant::CompensationRequested, Invariant::EndReachable],
    );
}

#[test]
fn finds_a_duplicate_compensation() {
    check(InjectedBug::CompensatesTwice, &[Invariant::CompensatedOnce]);
}

#[test]
fn finds_out_of_order_compensations() {
    check(
        InjectedBug::CompensatesOutOfOrder,
        &[
            Invariant::CompensatedInReverse,
            Invariant::CompensatedOnce,
            Invariant::CompensationRequested,
        ],
    );
}

#[test]
fn finds_non_determinism() {
    check(InjectedBug::NonDeterministic, &[Invariant::Deterministic]);
}

#[test]
fn finds_a_dead_end() {
    check(InjectedBug::IgnoresResult, &[Invariant::EndReachable]);
}

#[test]
fn finds_a_dropped_late_success() {
    check(
        InjectedBug::DropsLateSuccess,
        &[
            Invariant::LateSuccessHandled,
            Invariant::UnknownOutcomeHandled,
        ],
    );
}

#[test]
fn finds_new_work_while_compensating() {
    check(
        InjectedBug::StartsWorkWhileCompensating,
        &[Invariant::NoNewWorkWhileCompensating],
    );
}

#[test]
fn finds_a_leaked_timer() {
    check(InjectedBug::LeaksTimer, &[Invariant::NoIdleTimers]);
}

#[test]
fn finds_a_missing_in_doubt_task() {
    check_in(
        &trip_with_in_doubt_tasks(),
        InjectedBug::SkipsInDoubtTask,
        &[Invariant::InDoubtTaskOpened],
    );
}

#[test]
fn finds_a_retried_in_doubt_effect() {
    check_in(
        &trip_with_in_doubt_tasks(),
        InjectedBug::RetriesInDoubt,
        &[Invariant::InDoubtTaskOpened],
    );
}

#[test]
fn finds_a_duplicate_final_fact() {
    check(
        InjectedBug::EmitsFinalFactTwice,
        &[Invariant::FinalFactEmittedOnce],
    );
}

/// Saga that stays active, starts a child saga for each line, and whose start event also matters later.
pub(crate) const OPEN: &str = "
saga: order
version: 1
start: Ordered
vars: { n: 0, limit: =event.limit }
keep_active: true
on:
  - { event: Ordered, save: { n: =vars.n + 1 } }
  - { event: LineAdded, do: { saga: shipment, on_parent_end: wait } }
  - { event: Closed, then: complete }
  - { event: Lost, then: fail }
steps:
  - { id: reserve, do: { effect: stock.reserve }, timeout: =vars.limit, undo: { effect: stock.release } }
  - { id: signed, do: { event: Signed, count: 2 }, fail: Rejected, timeout: \"=vars.n > 0 ? duration('5m') : duration('1h')\" }
";

#[test]
fn saga_that_stays_active_is_explored_to_its_end() {
    let program: Arc<dyn Program> = Arc::new(compiled(OPEN));
    let report = run(&program, 600);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
}

/// Saga with a handler that selects a step, and one that continues.
const SIGN_UP: &str = "
saga: sign-up
version: 1
start: SignedUp
steps:
  - { id: verified, do: { event: Verified }, timeout: 24h, on_timeout: { save: { why: =failure.code }, then: farewell } }
  - { id: account, do: { effect: accounts.create }, undo: { effect: accounts.delete } }
  - { id: charge, do: { effect: payments.charge }, timeout: 1h, undo: { effect: payments.refund }, on_failure: continue }
  - { id: welcome, do: { effect: mail.welcome } }
  - { id: farewell, do: { effect: mail.farewell, data: =vars.why } }
";

#[test]
fn failure_handlers_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(SIGN_UP));
    let report = run(&program, 300);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
}

/// Saga with reminders of an event, a task and a retried command.
const REMINDED: &str = "
saga: reminded
version: 1
start: Ordered
steps:
  - { id: reserve, do: { command: stock.Reserve }, ok: Reserved, fail: Rejected, retry: { max_attempts: 2, initial_backoff: 1h }, timeout: 9d, remind: { every: 1d, max: 900, do: { effect: chat.post } }, undo: { effect: stock.release } }
  - { id: paid, do: { event: Paid }, timeout: 10d, on_timeout: { then: ask }, remind: { every: 3d, max: 2, do: { effect: mail.remind, data: { number: =reminder } } } }
  - { id: ship, pivot: true, do: { effect: shipping.ship } }
  - { id: ask, do: { human: { title: Ask } }, ok: Answered, timeout: 20d, remind: { every: 1h, max: 900, do: { command: crm.Call } } }
";

#[test]
fn reminders_are_explored() {
    let program: Arc<dyn Program> = Arc::new(compiled(REMINDED));
    let report = run(&program, 400);
    assert!(
        report.counterexample.is_none(),
        "{:#?}",
        report.counterexample
    );
    assert_eq!(report.not_covered, Vec::<String>::new());
}

/// A failed reminder is in the history, and its instance waits on.
#[test]
fn failure_of_a_reminder_is_recorded() {
    let program: Arc<dyn Program> = Arc::new(compiled(REMINDED));
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let mut runner = scenario_runner(&program, &programs);
    let event = |kind: &str| {
        let kind = kind.parse().expect("a valid event type");
        SimulationStep::Event(EventStep {
            correlation: Some("o1".to_owned()),
            ..EventStep::new(kind, json!({}))
        })
    };
    let steps = [
        event("Ordered"),
        event("Reserved"),
        SimulationStep::Advance(std::time::Duration::from_hours(72)),
        SimulationStep::Fail {
            tag: "remind:paid:1".to_owned(),
            event: None,
            code: Some("no_mailbox".to_owned()),
            message: None,
            data: json!(null),
        },
    ];
    for step in &steps {
        runner
            .run_step(step, None, &mut ())
            .unwrap_or_else(|error| panic!("{step}: {error}"));
    }

    let key = runner.instance().expect("the instance has started");
    let entry = runner.simulator.simulated_instance(key);
    let entry = entry.expect("the instance has started");
    let last = entry.history().last().expect("the result is recorded");
    let failure = last.failure.as_ref().and_then(|of| of.failure.as_ref());
    assert_eq!(
        failure.map(|failure| failure.code.as_str()),
        Some("no_mailbox")
    );
    assert_eq!(last.note, "the reminder failed; its step is not affected");
    let instance = entry.instance().expect("the instance has started");
    let mut pending = instance.pending_work.iter();
    assert!(pending.all(|work| work.tag.as_str() == "reserve"));
    let timers: Vec<_> = instance
        .timers
        .iter()
        .map(|timer| timer.name.as_str())
        .collect();
    assert_eq!(timers, ["paid", "remind:paid"]);
}

/// An ended instance is purged and started again without the results of its reminders and handlers.
#[test]
fn ended_instance_awaits_no_reminder_and_no_action_of_a_handler() {
    let text = "
saga: trip
version: 1
start: Ordered
on: [{ event: Noted, do: { effect: crm.note } }]
steps:
  - { id: paid, do: { event: Paid }, timeout: 9d, remind: { every: 1d, max: 2, do: { effect: mail.remind } } }
";
    let program: Arc<dyn Program> = Arc::new(compiled(text));
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let mut runner = scenario_runner(&program, &programs);
    let event = |kind: &str| {
        let kind = kind.parse().expect("a valid event type");
        SimulationStep::Event(EventStep {
            correlation: Some("o1".to_owned()),
            ..EventStep::new(kind, json!({}))
        })
    };
    let steps = [
        event("Ordered"),
        event("Noted"),
        SimulationStep::Advance(std::time::Duration::from_hours(24)),
        event("Paid"),
    ];
    for step in &steps {
        runner
            .run_step(step, None, &mut ())
            .unwrap_or_else(|error| panic!("{step}: {error}"));
    }

    let key = runner.instance().expect("the instance has started");
    let entry = runner.simulator.simulated_instance(key);
    let entry = entry.expect("the instance has started");
    assert_eq!(entry.requested_work().count(), 2);
    let instance = entry.instance().expect("the instance has started");
    assert!(instance.status.is_final() && instance.pending_work.is_empty());
}

/// A reminder without a result delays no restart.
#[test]
fn pending_reminder_delays_no_restart() {
    let text = "
saga: subscription
version: 1
start: Started
steps:
  - { id: paid, do: { event: Paid }, timeout: 9d, remind: { every: 1d, max: 2, do: { effect: mail.remind } } }
  - { id: next, do: { restart_as_new: Started } }
";
    let case = "
saga: trip.saga.yaml
tests:
  - name: restarts
    given: [Started: {}, advance: 1d, Paid: {}]
    expect: { state: { run: 2 }, timers: [paid, remind:paid], invariants: true }
";
    let program: Arc<dyn Program> = Arc::new(compiled(text));
    let file = TestFile::parse(case, "trip.saga.test.yaml").expect("the test is valid");
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let saga = program.definition_ref().saga.clone();
    let mismatches = test_file::run(&file.cases[0], &saga, &programs, &Arc::default());
    assert!(mismatches.is_empty(), "{mismatches:?}");
}

/// A payment that arrives during a pause comes before the reminder and the timeout, which were due.
#[test]
fn events_of_a_pause_come_before_its_timers() {
    let text = "
saga: invoice
version: 1
start: Started
steps:
  - { id: paid, do: { event: Paid }, timeout: 9d, on_timeout: { then: late }, remind: { every: 2d, max: 4, do: { effect: mail.remind } } }
  - { id: ship, do: { effect: e.ship } }
  - { id: late, do: { effect: e.late } }
";
    let case = "
saga: trip.saga.yaml
tests:
  - name: pays
    given: [Started: {}, pause, advance: 10d, Paid: {}, resume]
    expect: { work: [effect e.ship], waits: [ship], timers: [] }
  - name: reminded too late
    given: [Started: {}, pause, advance: 10d, resume]
    expect: { work: ['timer remind:paid', timer paid, effect e.late], waits: [late], timers: [] }
  - name: reminded once
    given: [Started: {}, pause, advance: 5d, resume]
    expect: { work: ['timer remind:paid', effect mail.remind], waits: [Paid], timers: [paid, remind:paid] }
";
    let program: Arc<dyn Program> = Arc::new(compiled(text));
    let file = TestFile::parse(case, "trip.saga.test.yaml").expect("the test is valid");
    let programs = Arc::new(SimulatorPrograms::new([Arc::clone(&program)]));
    let saga = program.definition_ref().saga.clone();
    for case in &file.cases {
        let mismatches = test_file::run(case, &saga, &programs, &Arc::default());
        assert!(mismatches.is_empty(), "{}: {mismatches:?}", case.name);
    }
}

/// Saga that waits for an event after other work.
const ORDER: &str = "
saga: order
version: 1
start: Ordered
steps:
  - { id: reserve, do: { effect: stock.reserve }, undo: { effect: stock.release } }
  - { id: paid, do: { event: Paid }, timeout: 9d }
";

#[test]
fn finds_a_lost_early_event() {
    check_in(ORDER, InjectedBug::LosesEarlyEvent, &[Invariant::EventKept]);
}

/// The check of a state ends before these elements do: that is no dead end.
#[test]
fn many_elements_are_no_dead_end() {
    let text = "
saga: trip
version: 1
start: Ordered
steps:
  - { id: pack, do: { effect: parcel.pack }, undo: { effect: parcel.unpack } }
  - { id: each, foreach: { in: '=lists.range(100)', as: n }, do: { effect: parcel.send, data: =n }, undo: { effect: parcel.fetch, data: =n } }
";
    let program: Arc<dyn Program> = Arc::new(compiled(text));
    let report = run(&program, 1);
    let counterexample = report.counterexample.map(|found| found.violation.message);
    assert_eq!(counterexample, None);
    let expected =
        "states lead to an end: the saga went on, and the check of each state is limited";
    assert!(report.limits[0].ends_with(expected), "{:?}", report.limits);
}
