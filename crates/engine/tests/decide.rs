//! Tests of the decision table, row by row, with a scripted program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use orlog_engine::{Decision, DecisionContext, Rejection, decide};
use orlog_model::{
    ArmedTimer, Command, Commit, Confirmation, ControlAction, ControlRequest, CorrelationId,
    DefinitionRef, Destination, Effect, EffectName, Event, EventId, EventType, Fact, Failure,
    Input, Instance, InstanceFailure, InstanceKey, Name, OutboxKey, RunChange, SagaName, Status,
    TenantId, Timer, TimerChange, TimerFired, Timestamp, Transition, Work, WorkKind, WorkOutcome,
    WorkResult,
};
use orlog_program::{
    Context, EventSubscription, Manifest, Program, ProgramError, ProgramInput, ProgramOutput,
};
use serde_json::{Value, json};

/// Program whose output depends on the event type or the input kind. Its state is a string.
struct StubProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl StubProgram {
    fn new() -> Self {
        Self {
            reference: DefinitionRef {
                saga: SagaName::new("order").unwrap(),
                version: 1,
                hash: [7; 16],
            },
            manifest: Manifest {
                subscriptions: vec![
                    EventSubscription {
                        kind: kind("Endless"),
                        starts: true,
                    },
                    EventSubscription {
                        kind: kind("Placed"),
                        starts: true,
                    },
                    EventSubscription {
                        kind: kind("Brief"),
                        starts: true,
                    },
                    EventSubscription {
                        kind: kind("Paid"),
                        starts: false,
                    },
                ],
                ..Manifest::default()
            },
        }
    }
}

fn step(status: Status, work: Vec<Work>, timers: Vec<TimerChange>) -> ProgramOutput {
    ProgramOutput::Applied(Box::new(Transition {
        run: RunChange::default(),
        state: b"next".to_vec(),
        status,
        work,
        timers,
        tasks: vec![],
        waits: vec![],
        reference: None,
        variables: Vec::new(),
        failure: None,
        note: "stepped".to_owned(),
    }))
}

impl Program for StubProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, _: &Event) -> Result<CorrelationId, ProgramError> {
        Ok(CorrelationId::new("o-1").unwrap())
    }

    fn apply(
        &self,
        _: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let arm = |name: &str| TimerChange::Arm {
            name: self::name(name),
            due: context.now.saturating_add(MINUTE),
        };
        let running = |work, timers| Ok(step(Status::Running, work, timers));
        match input {
            ProgramInput::Event(event) => match event.kind.as_str() {
                "Placed" => running(vec![charge(), reserve()], vec![arm("pay"), arm("other")]),
                "Brief" => running(vec![charge_with(0, Duration::from_secs(1))], vec![]),
                "NextRound" => running(vec![charge_in_round(1)], vec![arm("pay")]),
                "Confirmed" => running(vec![reserve_with(Confirmation::Acceptance)], vec![]),
                "Rearm" => running(vec![charge()], vec![arm("pay")]),
                "End" => Ok(step(Status::Completed, vec![], vec![])),
                "Bad" => Err(ProgramError::SchemaMismatch(
                    "orderId is missing".to_owned(),
                )),
                "Failing" => Err(ProgramError::Evaluation("division by zero".to_owned())),
                "Endless" => Err(ProgramError::Crashed("out of fuel".to_owned())),
                _ => Ok(ProgramOutput::Ignored("unknown".into())),
            },
            ProgramInput::WorkResult {
                outcome: WorkOutcome::Succeeded { payload, .. },
                ..
            } if payload["bad"] == true => Err(ProgramError::SchemaMismatch(
                "cannot set vars.receipt".to_owned(),
            )),
            ProgramInput::WorkResult { tag, .. } if *tag == "charge" => running(vec![], vec![]),
            ProgramInput::Cancel { .. } => Ok(step(Status::Cancelled, vec![], vec![])),
            ProgramInput::Timer { .. }
            | ProgramInput::Retry
            | ProgramInput::Skip
            | ProgramInput::ForceComplete => Ok(step(Status::Compensating, vec![], vec![])),
            ProgramInput::WorkResult { .. } => Ok(ProgramOutput::Ignored("no such tag".into())),
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
    charge_in_round(0)
}

fn charge_in_round(round: u64) -> Work {
    charge_with(round, MINUTE)
}

fn charge_with(round: u64, timeout: Duration) -> Work {
    Work::Effect(Effect {
        round,
        tag: name("charge"),
        name: EffectName::new("payments.charge").unwrap(),
        payload: json!({"amount": 5}),
        timeout: Some(timeout),
        retry: None,
        schema_version: 1,
        in_doubt: None,
        priority: orlog_model::Priority::Normal,
    })
}

fn reserve() -> Work {
    reserve_with(Confirmation::RejectionOnly)
}

fn reserve_with(confirmation: Confirmation) -> Work {
    Work::Command(Command {
        round: 0,
        tag: name("reserve"),
        aggregate_type: name("inventory"),
        aggregate_id: "o-1".to_owned(),
        name: name("Reserve"),
        payload: Value::Null,
        confirmation,
        timeout: None,
        priority: orlog_model::Priority::Normal,
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
        user: None,
        attributes: None,
    })
}

fn outcome(work_id: uuid::Uuid) -> Input {
    let destination = Destination {
        kind: WorkKind::Effect,
        tenant: key().tenant,
        name: "payments.charge".into(),
        priority: orlog_model::Priority::Normal,
    };
    Input::WorkResult(WorkResult {
        work_id,
        requested_at: at(2_000),
        outbox_key: OutboxKey {
            destination,
            sequence: 9,
        },
        outcome: WorkOutcome::succeeded(None, Value::Null),
        attempts: 1,
        at: at(2_000),
        facts: Vec::new(),
        publishes: false,
        trace: None,
        attempt_log: None,
    })
}

fn control(action: ControlAction) -> Input {
    Input::Control(ControlRequest {
        id: EventId::new("c-1").unwrap(),
        action,
        expected_version: None,
        at: at(3_000),
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    })
}

#[track_caller]
fn commit(instance: Option<&Instance>, input: &Input) -> Commit {
    match decide_with_stub(instance, input) {
        Decision::Commit(commit) => *commit,
        other => panic!("expected a commit, got {other:?}"),
    }
}

fn decide_with_stub(instance: Option<&Instance>, input: &Input) -> Decision {
    let program = StubProgram::new();
    decide(
        &DecisionContext {
            key: &key(),
            instance,
            program: &program,
            now: input.at(),
            node: "n1",
            buffered: &[],
            history_payload_bytes: 2048,
        },
        input,
    )
}

fn started() -> Instance {
    Arc::unwrap_or_clone(commit(None, &event("Placed", 1_000)).instance.unwrap())
}

fn paused() -> Instance {
    Instance {
        paused: true,
        ..started()
    }
}

#[test]
fn start_creates_instance_work_timers_dedupe_key_and_history() {
    let commit = commit(None, &event("Placed", 1_000));
    let instance = commit.instance.as_ref().unwrap();
    assert_eq!(
        (instance.version, instance.status, instance.created_at),
        (1, Status::Running, at(1_000))
    );
    assert_eq!(commit.work.len(), 2);
    assert_eq!(commit.work[0].deadline, Some(at(60_500)));
    assert_eq!(
        commit
            .arm
            .iter()
            .map(|t| t.name.as_str())
            .collect::<Vec<_>>(),
        ["pay", "other"]
    );
    assert_eq!(commit.dedupe_key, event("Placed", 1_000).dedupe_key());
    assert_eq!(commit.history.as_ref().unwrap().note, "stepped");
    assert_eq!(
        instance
            .pending_work
            .iter()
            .map(|o| o.tag.as_str())
            .collect::<Vec<_>>(),
        ["charge", "reserve"]
    );
}

/// The result has the last error only if it arrives before the timer of the step.
#[test]
fn work_with_a_short_timeout_ends_a_tenth_before_it() {
    let commit = commit(None, &event("Brief", 1_000));
    assert_eq!(commit.work[0].deadline, Some(at(1_900)));
}

#[test]
fn decision_is_deterministic() {
    assert_eq!(
        commit(None, &event("Placed", 1_000)),
        commit(None, &event("Placed", 1_000))
    );
    assert!(
        commit(None, &event("Placed", 1_000))
            .work
            .iter()
            .all(|w| w.id.get_version_num() == 7)
    );
}

/// Finding 6 of the audit: an idempotency key depends on the run, the tag and the round, not on times or
/// versions.
#[test]
fn work_id_depends_on_run_tag_and_round_only() {
    let first = commit(None, &event("Placed", 1_000));
    let mut instance = Arc::unwrap_or_clone(first.instance.clone().unwrap());
    instance.version = 7;
    instance.state = b"other".to_vec();
    let again = commit(Some(&instance), &event("Rearm", 5_000));
    assert_eq!(again.work[0].id, first.work[0].id, "the same tag and round");
    assert_ne!(first.work[0].id, first.work[1].id, "another tag");
    let next_round = commit(Some(&instance), &event("NextRound", 5_000));
    assert_ne!(next_round.work[0].id, first.work[0].id, "another round");
    let other_run = commit(None, &event("Placed", 1_001));
    assert_ne!(
        other_run.work[0].id, first.work[0].id,
        "another start event"
    );
}

/// The deadline of an earlier request must not fail a later one with the same key; its success counts.
#[test]
fn failure_of_an_earlier_request_of_the_same_work_is_ignored() {
    let mut instance = started();
    instance.pending_work[0].requested_at = at(9_000);
    let result = |outcome| match self::outcome(instance.pending_work[0].id) {
        Input::WorkResult(result) => Input::WorkResult(WorkResult { outcome, ..result }),
        other => other,
    };
    let failure = Failure {
        code: "timeout".to_owned(),
        message: "late".to_owned(),
    };
    let decision = decide_with_stub(Some(&instance), &result(WorkOutcome::TimedOut { failure }));
    let Decision::Ignore {
        reason,
        cleanup: Some(cleanup),
    } = decision
    else {
        panic!("{decision:?}")
    };
    assert_eq!(reason, "the work was requested again");
    assert!(
        cleanup.settles.is_some() && cleanup.instance.is_none(),
        "the later request stays pending"
    );
    let success = result(WorkOutcome::succeeded(None, Value::Null));
    assert_eq!(
        commit(Some(&instance), &success)
            .instance
            .unwrap()
            .pending_work
            .len(),
        1
    );
}

/// An instance with pending work is never purged, so an ignored result must remove the work.
#[test]
fn ignored_result_removes_its_pending_work() {
    let instance = started();
    let reserve = &instance.pending_work[1];
    let commit = commit(Some(&instance), &outcome(reserve.id));
    let after = commit.instance.unwrap();
    assert_eq!(
        (after.version, after.state.clone()),
        (instance.version + 1, instance.state.clone())
    );
    assert!(
        after.pending_work.iter().all(|open| open.id != reserve.id),
        "{:?}",
        after.pending_work
    );
    assert_eq!(commit.history.unwrap().note, "no such tag");
}

/// Finding 0 of the audit: a command that is accepted after the end must be compensated.
#[test]
fn ended_instance_keeps_a_command_whose_acceptance_is_its_success() {
    let requested = commit(Some(&started()), &event("Confirmed", 1_000))
        .instance
        .unwrap();
    let ended = commit(Some(&requested), &event("End", 2_000))
        .instance
        .unwrap();
    let pending: Vec<_> = ended
        .pending_work
        .iter()
        .map(|open| open.tag.as_str())
        .collect();
    assert_eq!(pending, ["charge", "reserve"]);
}

#[test]
fn late_decision_keeps_full_timeouts_and_ids() {
    let program = StubProgram::new();
    let input = event("Placed", 1_000);
    let at_time = |now| {
        let subject = DecisionContext {
            key: &key(),
            instance: None,
            program: &program,
            now: at(now),
            node: "n1",
            buffered: &[],
            history_payload_bytes: 2048,
        };
        let Decision::Commit(commit) = decide(&subject, &input) else {
            panic!("no commit")
        };
        *commit
    };
    let (prompt, late) = (at_time(1_000), at_time(9_000_000));
    assert_eq!(late.work[0].deadline, Some(at(9_059_500)));
    assert_eq!(late.arm[0].due, at(9_060_000));
    assert_eq!(late.work[0].id, prompt.work[0].id);
}

#[test]
fn event_without_instance_is_ignored_unless_it_starts_one() {
    assert!(matches!(
        decide_with_stub(None, &event("Paid", 1)),
        Decision::Ignore { cleanup: None, .. }
    ));
}

#[test]
fn work_result_closes_work_and_settles_its_row() {
    let instance = started();
    let commit = commit(Some(&instance), &outcome(instance.pending_work[0].id));
    assert_eq!(commit.settles.unwrap().sequence, 9);
    assert_eq!(commit.instance.unwrap().pending_work.len(), 1);
    assert_eq!(commit.dedupe_key, None);
}

/// Returns a work result with two facts.
fn result_with_facts(work_id: uuid::Uuid) -> Input {
    let Input::WorkResult(outcome) = outcome(work_id) else {
        unreachable!("it is a work result")
    };
    let fact = |of: &str| Fact::new(kind(of), json!({"of": of}));
    Input::WorkResult(WorkResult {
        facts: vec![fact("PointsEarned"), fact("LimitReached")],
        ..outcome
    })
}

#[track_caller]
fn check_facts(decision: Decision) -> Commit {
    let (Decision::Commit(commit)
    | Decision::Ignore {
        cleanup: Some(commit),
        ..
    }) = decision
    else {
        panic!("{decision:?}")
    };
    let labels: Vec<_> = commit.work.iter().map(|item| item.work.label()).collect();
    assert_eq!(labels, ["PointsEarned", "LimitReached"]);
    assert_ne!(commit.work[0].id, commit.work[1].id);
    *commit
}

#[test]
fn handler_facts_are_published_regardless_of_the_result() {
    let instance = started();
    let open = instance.pending_work[0].id;
    let applied = check_facts(decide_with_stub(Some(&instance), &result_with_facts(open)));
    assert_eq!(applied.history.as_ref().unwrap().work.len(), 2);
    let late = check_facts(decide_with_stub(
        Some(&instance),
        &result_with_facts(uuid::Uuid::nil()),
    ));
    assert!(late.instance.is_none() && late.settles.is_some());
    check_facts(decide_with_stub(None, &result_with_facts(open)));
    let repeated = check_facts(decide_with_stub(Some(&instance), &result_with_facts(open)));
    assert_eq!(
        repeated.work, applied.work,
        "a second delivery emits the same facts"
    );
}

#[test]
fn buffered_result_does_not_repeat_its_facts() {
    let instance = paused();
    let buffering = check_facts(decide_with_stub(
        Some(&instance),
        &result_with_facts(instance.pending_work[0].id),
    ));
    let Some(Input::WorkResult(buffered)) = buffering.buffer.as_deref() else {
        panic!("{buffering:?}")
    };
    assert!(buffered.facts.is_empty());
}

#[test]
fn result_of_closed_work_only_settles_its_row() {
    let decision = decide_with_stub(Some(&started()), &outcome(uuid::Uuid::nil()));
    let Decision::Ignore {
        cleanup: Some(cleanup),
        ..
    } = decision
    else {
        panic!("{decision:?}")
    };
    assert!(cleanup.settles.is_some() && cleanup.instance.is_none());
}

/// Requirements: E6.
#[test]
fn stale_timer_only_removes_its_row() {
    let stale = Input::Timer(TimerFired {
        name: name("pay"),
        token: 99,
        due: at(5),
    });
    let decision = decide_with_stub(Some(&started()), &stale);
    let Decision::Ignore {
        cleanup: Some(cleanup),
        ..
    } = decision
    else {
        panic!("{decision:?}")
    };
    assert_eq!(
        cleanup.disarm,
        [Timer {
            due: at(5),
            name: name("pay"),
            token: 99
        }]
    );
}

#[test]
fn armed_timer_fires_once_and_its_row_is_removed() {
    let instance = started();
    let ArmedTimer {
        name, token, due, ..
    } = instance.timers[0].clone();
    let commit = commit(
        Some(&instance),
        &Input::Timer(TimerFired {
            name: name.clone(),
            token,
            due,
        }),
    );
    assert_eq!(commit.disarm, [Timer { due, name, token }]);
    assert_eq!(
        commit.instance.as_ref().unwrap().status,
        Status::Compensating
    );
    assert_eq!(commit.instance.unwrap().timers.len(), 1);
}

#[test]
fn rearming_a_timer_replaces_it() {
    let commit = commit(Some(&started()), &event("Rearm", 2_000));
    assert_eq!((commit.disarm.len(), commit.arm.len()), (1, 1));
    let (old, new) = (&commit.disarm[0], &commit.arm[0]);
    assert_eq!((old.due, new.due), (at(61_000), at(62_000)));
    assert!(old.name == new.name && old.token != new.token);
    assert_eq!(commit.instance.unwrap().timers.len(), 2);
}

#[test]
fn work_with_a_pending_tag_replaces_it() {
    let before = started();
    let commit = commit(Some(&before), &event("NextRound", 2_000));
    let open = commit.instance.unwrap().pending_work.clone();
    assert_eq!(
        open.iter().filter(|o| o.tag.as_str() == "charge").count(),
        1
    );
    assert_ne!(
        open.iter().find(|o| o.tag.as_str() == "charge").unwrap().id,
        before.pending_work[0].id
    );
}

#[test]
fn ended_instance_keeps_work_whose_late_success_must_be_compensated() {
    let commit = commit(Some(&started()), &event("End", 2_000));
    let instance = commit.instance.unwrap();
    assert!(instance.timers.is_empty());
    assert_eq!(commit.disarm.len(), 2);
    assert_eq!(
        instance
            .pending_work
            .iter()
            .map(|o| o.kind)
            .collect::<Vec<_>>(),
        [WorkKind::Effect]
    );
}

#[test]
fn paused_instance_buffers_input_and_settles_its_row() {
    let instance = paused();
    let buffered = commit(Some(&instance), &event("Rearm", 2_000));
    assert_eq!(buffered.buffer.as_deref(), Some(&event("Rearm", 2_000)));
    assert!(buffered.instance.is_none() && buffered.dedupe_key.is_some());
    let buffered = commit(Some(&instance), &outcome(instance.pending_work[0].id));
    assert!(buffered.buffer.is_some() && buffered.settles.is_some());
}

/// Buffered inputs come first, so a timer of a paused instance must not be one of them.
#[test]
fn timer_of_a_paused_instance_is_armed_again_by_the_resume() {
    let instance = paused();
    let armed = instance.timers[0].clone();
    let fired = Input::Timer(TimerFired {
        name: armed.name.clone(),
        token: armed.token,
        due: armed.due,
    });
    let Decision::Ignore {
        cleanup: Some(cleanup),
        ..
    } = decide_with_stub(Some(&instance), &fired)
    else {
        panic!("the timer has no effect")
    };
    let row = Timer {
        due: armed.due,
        name: armed.name,
        token: armed.token,
    };
    assert!(cleanup.instance.is_none() && cleanup.buffer.is_none());
    assert_eq!(cleanup.disarm, std::slice::from_ref(&row));

    let resumed = commit(Some(&instance), &control(ControlAction::Resume));
    assert!(resumed.disarm.contains(&row));
    let again = &resumed.arm[0];
    assert_eq!((&again.name, again.due), (&row.name, row.due));
    assert_ne!(again.token, row.token, "the rows of the store never repeat");
    let timers = &resumed.instance.unwrap().timers;
    assert!(timers.iter().any(|timer| timer.token == again.token));
}

#[test]
fn pause_and_resume_do_not_call_the_program() {
    let commit_of =
        |instance: &Instance, action| commit(Some(instance), &control(action)).instance.unwrap();
    let instance = commit_of(&started(), ControlAction::Pause);
    assert!(instance.paused && instance.version == 2 && instance.state == b"next");
    assert!(!commit_of(&instance, ControlAction::Resume).paused);
}

#[test]
fn rejects_actions_the_status_forbids() {
    #[track_caller]
    fn check(instance: Option<&Instance>, action: ControlAction, text: &str) {
        match decide_with_stub(instance, &control(action)) {
            Decision::Reject(rejection) => assert_eq!(rejection.to_string(), text),
            other => panic!("expected a rejection, got {other:?}"),
        }
    }
    let ended = commit(Some(&started()), &event("End", 2_000))
        .instance
        .unwrap();
    let cancel = || ControlAction::Cancel {
        reason: "test".to_owned(),
    };
    check(None, cancel(), "saga instance not found");
    check(
        Some(&ended),
        cancel(),
        "the instance is completed: it has ended",
    );
    check(
        Some(&ended),
        ControlAction::Pause,
        "the instance is completed: it has ended",
    );
    check(
        Some(&paused()),
        cancel(),
        "the instance is running and paused: resume it first",
    );
    check(
        Some(&started()),
        ControlAction::Resume,
        "the instance is running: only a paused instance can be resumed",
    );
    check(
        Some(&started()),
        ControlAction::Retry,
        "the instance is running: only a stuck instance can be retried",
    );
}

#[test]
fn rejects_control_request_for_another_version() {
    let request = ControlRequest {
        id: EventId::new("c").unwrap(),
        action: ControlAction::Pause,
        expected_version: Some(9),
        at: at(1),
        user: None,
        reason: None,
        trace: None,
        wait_token: None,
    };
    let decision = decide_with_stub(Some(&started()), &Input::Control(request));
    assert_eq!(
        decision,
        Decision::Reject(Rejection::VersionMismatch {
            expected: 9,
            actual: 1
        })
    );
}

#[test]
fn signal_reaches_only_its_instance() {
    let signal = control(ControlAction::Signal {
        kind: kind("Rearm"),
        data: json!({}),
        due_at: None,
    });
    let commit = commit(Some(&started()), &signal);
    assert_eq!(commit.dedupe_key, signal.dedupe_key());
    assert_eq!(commit.history.unwrap().input_label, "Rearm");
}

#[test]
fn program_error_dead_letters_the_input_and_keeps_the_instance() {
    for (event_type, reason) in [("Bad", "schema_mismatch"), ("Failing", "program_error")] {
        let commit = commit(Some(&started()), &event(event_type, 5));
        let dead_letter = commit.dead_letter.unwrap();
        assert_eq!(dead_letter.reason.as_str(), reason);
        assert_eq!(dead_letter.instance, Some(key()));
        assert!(
            commit.instance.is_none() && commit.dedupe_key.is_none(),
            "the input can be redriven"
        );
    }
}

#[test]
fn program_crash_pauses_the_instance() {
    let before = started();
    let commit = commit(Some(&before), &event("Endless", 5));
    let dead_letter = commit.dead_letter.unwrap();
    assert_eq!(dead_letter.reason.as_str(), "program_error");
    assert_eq!(dead_letter.message, "out of fuel");
    assert!(commit.dedupe_key.is_none(), "the input can be redriven");
    assert!(commit.work.is_empty() && commit.arm.is_empty() && commit.disarm.is_empty());
    let history = commit.history.unwrap();
    assert_eq!(
        (history.version, history.note.as_str()),
        (2, "paused: out of fuel")
    );
    let after = commit.instance.unwrap();
    let failure = Failure {
        code: "program_crashed".to_owned(),
        message: "out of fuel".to_owned(),
    };
    let flagged = Instance {
        version: 2,
        paused: true,
        last_error: Some(Box::new(InstanceFailure {
            at: Some(after.updated_at),
            ..failure.into()
        })),
        updated_at: after.updated_at,
        ..before.clone()
    };
    assert_eq!(after, Arc::new(flagged));
    let buffered = self::commit(Some(&after), &event("Rearm", 6));
    assert!(
        buffered.buffer.is_some() && buffered.instance.is_none(),
        "later inputs are buffered"
    );
}

#[test]
fn program_crash_on_the_first_event_creates_no_instance() {
    let commit = commit(None, &event("Endless", 5));
    assert!(commit.instance.is_none() && commit.history.is_none() && commit.buffer.is_none());
    assert_eq!(commit.dead_letter.unwrap().message, "out of fuel");
}

/// Returns the result of the pending work, with a payload.
fn result_with(instance: &Instance, payload: Value) -> Input {
    let Input::WorkResult(result) = outcome(instance.pending_work[0].id) else {
        panic!("it is a result")
    };
    Input::WorkResult(WorkResult {
        outcome: WorkOutcome::succeeded(None, payload),
        ..result
    })
}

#[test]
fn result_that_cannot_be_applied_marks_its_work_until_it_is_applied() {
    let before = started();
    let input = result_with(&before, serde_json::json!({ "bad": true }));
    let failed = commit(Some(&before), &input);
    let (letter, marked) = (failed.dead_letter.unwrap(), failed.instance.unwrap());
    assert_eq!(
        (marked.version, marked.status),
        (before.version + 1, before.status)
    );
    assert_eq!(marked.pending_work[0].dead_letter, Some(letter.id));
    let error = marked.last_error.as_ref().unwrap();
    let text = "the result of charge could not be applied: cannot set vars.receipt";
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("schema_mismatch", text)
    );
    let entry = failed.history.unwrap();
    assert_eq!(
        (entry.version, entry.note.as_str()),
        (marked.version, "charge: result dead-lettered")
    );
    let recorded = entry.failure.unwrap().failure.unwrap();
    assert_eq!(
        (&recorded.code, &recorded.message),
        (&error.code, &error.message)
    );
    assert_eq!(
        (error.step.as_ref(), error.attempts, error.at),
        (Some(&name("charge")), Some(1), Some(entry.at))
    );

    let applied = commit(Some(&marked), &result_with(&marked, Value::Null))
        .instance
        .unwrap();
    assert!(!applied.has_unapplied_result());
}
