//! The table of inputs against statuses, row by row, with a program that answers by script.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use orlog_engine::{Decision, Refusal, Subject, decide};
use orlog_model::{
    Action, ArmedTimer, Command, Commit, Confirmation, Control, CorrelationId, Effect, EffectName, Event,
    EventId, EventType, Fact, Failure, Input, Instance, InstanceKey, Lane, Name, OutboxKey, Outcome,
    ProgramRef, SagaName, Status, TenantId, Timer, TimerChange, TimerFired, Timestamp, Transition, Verdict,
    Work, WorkKind,
};
use orlog_program::{Context, Fault, Manifest, Program, Reaction, Stimulus, Trigger};
use serde_json::{Value, json};
use std::time::Duration;

/// Answers by the event's type or the stimulus; its state is a text.
struct Scripted {
    reference: ProgramRef,
    manifest: Manifest,
}

impl Scripted {
    fn new() -> Self {
        Self {
            reference: ProgramRef { saga: SagaName::new("order").unwrap(), version: 1, hash: [7; 16] },
            manifest: Manifest {
                triggers: vec![
                    Trigger { kind: kind("Endless"), starts: true },
                    Trigger { kind: kind("Placed"), starts: true },
                    Trigger { kind: kind("Paid"), starts: false },
                ],
                ..Manifest::default()
            },
        }
    }
}

fn step(status: Status, work: Vec<Work>, timers: Vec<TimerChange>) -> Reaction {
    Reaction::Applied(Box::new(Transition {
        state: b"next".to_vec(),
        status,
        work,
        timers,
        tasks: vec![],
        waits: vec![],
        reference: None,
        failure: None,
        note: "stepped".to_owned(),
    }))
}

impl Program for Scripted {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, _: &Event) -> Result<CorrelationId, Fault> {
        Ok(CorrelationId::new("o-1").unwrap())
    }

    fn apply(
        &self,
        _: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let arm = |name: &str| TimerChange::Arm { name: self::name(name), due: context.now.after(MINUTE) };
        match stimulus {
            Stimulus::Event(event) => match event.kind.as_str() {
                "Placed" => {
                    Ok(step(Status::Running, vec![charge(), reserve()], vec![arm("pay"), arm("other")]))
                }
                "Rearm" => Ok(step(Status::Running, vec![charge()], vec![arm("pay")])),
                "End" => Ok(step(Status::Completed, vec![], vec![])),
                "Bad" => Err(Fault::Schema("orderId is missing".to_owned())),
                "Broken" => Err(Fault::Program("division by zero".to_owned())),
                "Endless" => Err(Fault::Broken("it used all its fuel".to_owned())),
                _ => Ok(Reaction::Ignored("unknown".into())),
            },
            Stimulus::Outcome { tag, .. } if *tag == "charge" => Ok(step(Status::Running, vec![], vec![])),
            Stimulus::Cancel { .. } => Ok(step(Status::Cancelled, vec![], vec![])),
            Stimulus::Timer { .. } | Stimulus::Retry | Stimulus::Skip | Stimulus::ForceComplete => {
                Ok(step(Status::Compensating, vec![], vec![]))
            }
            Stimulus::Outcome { .. } => Ok(Reaction::Ignored("no such tag".into())),
        }
    }
}

const MINUTE: Duration = Duration::from_mins(1);

fn kind(text: &str) -> EventType {
    EventType::new(text).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn charge() -> Work {
    Work::Effect(Effect {
        tag: name("charge"),
        name: EffectName::new("payments.charge").unwrap(),
        payload: json!({"amount": 5}),
        timeout: Some(MINUTE),
        retry: None,
        in_doubt: None,
    })
}

fn reserve() -> Work {
    Work::Command(Command {
        tag: name("reserve"),
        aggregate_type: name("inventory"),
        aggregate_id: "o-1".to_owned(),
        name: name("Reserve"),
        payload: Value::Null,
        confirmation: Confirmation::RefusalOnly,
        timeout: None,
    })
}

fn key() -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new("acme").unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o-1").unwrap(),
    }
}

fn event(kind_of: &str, millis: i64) -> Input {
    Input::Event(Event {
        id: EventId::new(format!("{kind_of}-{millis}")).unwrap(),
        tenant: TenantId::new("acme").unwrap(),
        kind: kind(kind_of),
        source: "test".to_owned(),
        subject: None,
        time: at(millis),
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data: Value::Null,
    })
}

fn outcome(work_id: uuid::Uuid) -> Input {
    let lane = Lane { kind: WorkKind::Effect, name: "payments.charge".into() };
    Input::Outcome(Outcome {
        work_id,
        outbox: OutboxKey { lane, sequence: 9 },
        verdict: Verdict::Succeeded { event: None, payload: Value::Null },
        attempts: 1,
        at: at(2_000),
        facts: Vec::new(),
        trace: None,
    })
}

fn control(action: Action) -> Input {
    Input::Control(Control {
        id: EventId::new("c-1").unwrap(),
        action,
        expected_version: None,
        at: at(3_000),
        by: None,
        reason: None,
        trace: None,
    })
}

#[track_caller]
fn commit(instance: Option<&Instance>, input: &Input) -> Commit {
    match decided(instance, input) {
        Decision::Commit(commit) => *commit,
        other => panic!("expected a commit, got {other:?}"),
    }
}

fn decided(instance: Option<&Instance>, input: &Input) -> Decision {
    let program = Scripted::new();
    decide(
        &Subject { key: &key(), instance, program: &program, now: input.at(), node: "n1", early: &[] },
        input,
    )
}

fn started() -> Instance {
    commit(None, &event("Placed", 1_000)).instance.unwrap()
}

fn paused() -> Instance {
    Instance { paused: true, ..started() }
}

#[test]
fn a_start_makes_an_instance_with_work_timers_marker_and_history() {
    let commit = commit(None, &event("Placed", 1_000));
    let instance = commit.instance.as_ref().unwrap();
    assert_eq!((instance.version, instance.status, instance.created_at), (1, Status::Running, at(1_000)));
    assert_eq!(commit.work.len(), 2);
    assert_eq!(commit.work[0].deadline, Some(at(61_000)));
    assert_eq!(
        commit.arm.iter().map(|t| (t.name.as_str(), t.token)).collect::<Vec<_>>(),
        [("pay", 1), ("other", 1)]
    );
    assert_eq!(commit.applied.as_ref().unwrap().as_str(), "Placed-1000");
    assert_eq!(commit.history.as_ref().unwrap().note, "stepped");
    assert_eq!(instance.open.iter().map(|o| o.tag.as_str()).collect::<Vec<_>>(), ["charge", "reserve"]);
}

#[test]
fn the_same_input_on_the_same_snapshot_makes_the_same_commit() {
    assert_eq!(commit(None, &event("Placed", 1_000)), commit(None, &event("Placed", 1_000)));
    let ids = |c: &Commit| c.work.iter().map(|w| w.id).collect::<Vec<_>>();
    let (a, b) = (commit(None, &event("Placed", 1_000)), commit(Some(&started()), &event("Placed", 1_000)));
    assert_ne!(ids(&a), ids(&b), "another version has other ids");
    assert!(a.work.iter().all(|w| w.id.get_version_num() == 7));
}

#[test]
fn a_late_decision_gives_steps_their_whole_time_under_the_same_ids() {
    let program = Scripted::new();
    let input = event("Placed", 1_000);
    let at_time = |now| {
        let subject =
            Subject { key: &key(), instance: None, program: &program, now: at(now), node: "n1", early: &[] };
        let Decision::Commit(commit) = decide(&subject, &input) else { panic!("no commit") };
        *commit
    };
    let (prompt, late) = (at_time(1_000), at_time(9_000_000));
    assert_eq!(late.work[0].deadline, Some(at(9_060_000)));
    assert_eq!(late.arm[0].due, at(9_060_000));
    assert_eq!(late.work[0].id, prompt.work[0].id);
}

#[test]
fn an_event_that_starts_nothing_is_ignored_where_there_is_no_instance() {
    assert!(matches!(decided(None, &event("Paid", 1)), Decision::Ignore { clear: None, .. }));
}

#[test]
fn an_outcome_closes_its_work_and_settles_its_row() {
    let instance = started();
    let commit = commit(Some(&instance), &outcome(instance.open[0].id));
    assert_eq!(commit.settles.unwrap().sequence, 9);
    assert_eq!(commit.instance.unwrap().open.len(), 1);
    assert_eq!(commit.applied, None);
}

/// The outcome, and two facts besides.
fn telling(work_id: uuid::Uuid) -> Input {
    let Input::Outcome(outcome) = outcome(work_id) else { unreachable!("it is an outcome") };
    let fact = |of: &str| Fact { kind: kind(of), data: json!({"of": of}) };
    Input::Outcome(Outcome { facts: vec![fact("PointsEarned"), fact("LimitReached")], ..outcome })
}

#[track_caller]
fn check_told(decision: Decision) -> Commit {
    let (Decision::Commit(commit) | Decision::Ignore { clear: Some(commit), .. }) = decision else {
        panic!("{decision:?}")
    };
    let labels: Vec<_> = commit.work.iter().map(|item| item.work.label()).collect();
    assert_eq!(labels, ["PointsEarned", "LimitReached"]);
    assert_ne!(commit.work[0].id, commit.work[1].id);
    *commit
}

#[test]
fn what_a_handler_tells_besides_goes_out_whatever_becomes_of_its_answer() {
    let instance = started();
    let open = instance.open[0].id;
    let applied = check_told(decided(Some(&instance), &telling(open)));
    assert_eq!(applied.history.as_ref().unwrap().work.len(), 2);
    let late = check_told(decided(Some(&instance), &telling(uuid::Uuid::nil())));
    assert!(late.instance.is_none() && late.settles.is_some());
    check_told(decided(None, &telling(open)));
    let again = check_told(decided(Some(&instance), &telling(open)));
    assert_eq!(again.work, applied.work, "a second delivery makes the same");
}

#[test]
fn what_is_held_tells_nothing_a_second_time() {
    let instance = paused();
    let held = check_told(decided(Some(&instance), &telling(instance.open[0].id)));
    let Some(Input::Outcome(kept)) = held.hold else { panic!("{held:?}") };
    assert!(kept.facts.is_empty());
}

#[test]
fn an_outcome_of_work_that_is_not_open_only_settles_its_row() {
    let decision = decided(Some(&started()), &outcome(uuid::Uuid::nil()));
    let Decision::Ignore { clear: Some(clear), .. } = decision else { panic!("{decision:?}") };
    assert!(clear.settles.is_some() && clear.instance.is_none());
}

#[test]
fn a_stale_timer_only_loses_its_row() {
    let stale = Input::Timer(TimerFired { name: name("pay"), token: 99, due: at(5) });
    let decision = decided(Some(&started()), &stale);
    let Decision::Ignore { clear: Some(clear), .. } = decision else { panic!("{decision:?}") };
    assert_eq!(clear.disarm, [Timer { due: at(5), name: name("pay"), token: 99 }]);
}

#[test]
fn an_armed_timer_fires_once_and_its_row_goes() {
    let instance = started();
    let ArmedTimer { name, token, due, .. } = instance.timers[0].clone();
    let commit = commit(Some(&instance), &Input::Timer(TimerFired { name: name.clone(), token, due }));
    assert_eq!(commit.disarm, [Timer { due, name, token }]);
    assert_eq!(commit.instance.as_ref().unwrap().status, Status::Compensating);
    assert_eq!(commit.instance.unwrap().timers.len(), 1);
}

#[test]
fn arming_a_name_anew_replaces_its_timer() {
    let commit = commit(Some(&started()), &event("Rearm", 2_000));
    assert_eq!(commit.disarm, [Timer { due: at(61_000), name: name("pay"), token: 1 }]);
    assert_eq!(commit.arm, [Timer { due: at(62_000), name: name("pay"), token: 2 }]);
    assert_eq!(commit.instance.unwrap().timers.len(), 2);
}

#[test]
fn work_under_a_tag_that_is_open_replaces_it() {
    let before = started();
    let commit = commit(Some(&before), &event("Rearm", 2_000));
    let open = commit.instance.unwrap().open;
    assert_eq!(open.iter().filter(|o| o.tag.as_str() == "charge").count(), 1);
    assert_ne!(open.iter().find(|o| o.tag.as_str() == "charge").unwrap().id, before.open[0].id);
}

#[test]
fn an_instance_that_ends_keeps_no_timer_and_only_effects_open() {
    let commit = commit(Some(&started()), &event("End", 2_000));
    let instance = commit.instance.unwrap();
    assert!(instance.timers.is_empty());
    assert_eq!(commit.disarm.len(), 2);
    assert_eq!(instance.open.iter().map(|o| o.kind).collect::<Vec<_>>(), [WorkKind::Effect]);
}

#[test]
fn a_paused_instance_keeps_what_comes_and_settles_its_row() {
    let instance = paused();
    let kept = commit(Some(&instance), &event("Rearm", 2_000));
    assert_eq!(kept.hold, Some(event("Rearm", 2_000)));
    assert!(kept.instance.is_none() && kept.applied.is_some());
    let kept = commit(Some(&instance), &outcome(instance.open[0].id));
    assert!(kept.hold.is_some() && kept.settles.is_some());
}

#[test]
fn pause_and_resume_set_the_flag_without_asking_the_program() {
    let commit_of = |instance: &Instance, action| commit(Some(instance), &control(action)).instance.unwrap();
    let instance = commit_of(&started(), Action::Pause);
    assert!(instance.paused && instance.version == 2 && instance.state == b"next");
    assert!(!commit_of(&instance, Action::Resume).paused);
}

#[test]
fn refuses_what_the_status_forbids_and_says_why() {
    #[track_caller]
    fn check(instance: Option<&Instance>, action: Action, text: &str) {
        match decided(instance, &control(action)) {
            Decision::Refuse(refusal) => assert_eq!(refusal.to_string(), text),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    let ended = commit(Some(&started()), &event("End", 2_000)).instance.unwrap();
    let cancel = || Action::Cancel { reason: "test".to_owned() };
    check(None, cancel(), "there is no such saga instance");
    check(Some(&ended), cancel(), "the instance is completed: it has ended");
    check(Some(&ended), Action::Pause, "the instance is completed: it has ended");
    check(Some(&paused()), cancel(), "the instance is running and paused: resume it first");
    check(Some(&started()), Action::Resume, "the instance is running: only a paused instance can be resumed");
    check(Some(&started()), Action::Retry, "the instance is running: only a stuck instance can be retried");
}

#[test]
fn refuses_an_instruction_for_another_version() {
    let instruction = Control {
        id: EventId::new("c").unwrap(),
        action: Action::Pause,
        expected_version: Some(9),
        at: at(1),
        by: None,
        reason: None,
        trace: None,
    };
    let decision = decided(Some(&started()), &Input::Control(instruction));
    assert_eq!(decision, Decision::Refuse(Refusal::Version { expected: 9, actual: 1 }));
}

#[test]
fn a_signal_is_an_event_for_this_instance_alone() {
    let signal = control(Action::Signal { kind: kind("Rearm"), data: json!({}) });
    let commit = commit(Some(&started()), &signal);
    assert_eq!(commit.applied.unwrap().as_str(), "c-1");
    assert_eq!(commit.history.unwrap().label, "Rearm");
}

#[test]
fn a_fault_sets_the_input_aside_and_leaves_the_instance() {
    for (what, reason) in [("Bad", "schema_mismatch"), ("Broken", "program_error")] {
        let commit = commit(Some(&started()), &event(what, 5));
        let letter = commit.dead_letter.unwrap();
        assert_eq!(letter.reason.as_str(), reason);
        assert_eq!(letter.instance, Some(key()));
        assert!(commit.instance.is_none() && commit.applied.is_none(), "it can be sent again");
    }
}

#[test]
fn a_program_that_breaks_down_pauses_its_instance_and_changes_nothing_else() {
    let before = started();
    let commit = commit(Some(&before), &event("Endless", 5));
    let letter = commit.dead_letter.unwrap();
    assert_eq!(letter.reason.as_str(), "program_error");
    assert_eq!(letter.message, "it used all its fuel");
    assert!(commit.applied.is_none(), "it can be sent again");
    assert!(commit.work.is_empty() && commit.arm.is_empty() && commit.disarm.is_empty());
    let history = commit.history.unwrap();
    assert_eq!((history.version, history.note.as_str()), (2, "paused: it used all its fuel"));
    let after = commit.instance.unwrap();
    let failure = Failure { code: "program_broken".to_owned(), message: "it used all its fuel".to_owned() };
    let flagged = Instance {
        version: 2,
        paused: true,
        last_error: Some(failure),
        updated_at: after.updated_at,
        ..before.clone()
    };
    assert_eq!(after, flagged);
    let kept = self::commit(Some(&after), &event("Rearm", 6));
    assert!(kept.hold.is_some() && kept.instance.is_none(), "what comes later is kept");
}

#[test]
fn a_program_that_breaks_down_over_the_first_event_begins_nothing() {
    let commit = commit(None, &event("Endless", 5));
    assert!(commit.instance.is_none() && commit.history.is_none() && commit.hold.is_none());
    assert_eq!(commit.dead_letter.unwrap().message, "it used all its fuel");
}

#[test]
fn an_error_is_remembered_until_there_is_another() {
    let failure = Failure { code: "x".to_owned(), message: "y".to_owned() };
    let instance = Instance { last_error: Some(failure.clone()), ..started() };
    let commit = commit(Some(&instance), &event("Rearm", 2_000));
    assert_eq!(commit.instance.unwrap().last_error, Some(failure));
}
