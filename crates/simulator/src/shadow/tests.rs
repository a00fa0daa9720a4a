//! Each kind of difference, with the recording of one order.

use std::sync::Arc;
use std::time::Duration;

use orlog_engine::{Decision, DecisionContext, decide};
use orlog_model::{
    ControlAction, ControlRequest, CorrelationId, Event, EventId, EventType, Failure, Input,
    Instance, InstanceKey, Name, OutboxKey, SagaName, TaskAction, TenantId, TimerChange,
    TimerFired, Timestamp, Transition, WorkItem, WorkOutcome, WorkResult,
};
use orlog_program::{Context, Manifest, Program, ProgramError, ProgramInput, ProgramOutput, load};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

const LIVE: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId, total: =event.total, card: =event.card }
steps:
  - id: charge
    do: { effect: payments.charge, data: { amount: =vars.total, card: { number: =vars.card } } }
    undo: { effect: payments.refund, data: { amount: =vars.total } }
    timeout: 30m
    save: { receipt: =event.id }
  - id: check
    when: vars.total > 100
    do: { effect: fraud.check, data: {} }
  - id: approve
    do: { human: { title: Approve the order, roles: [clerk] } }
    ok: Approved
    fail: Denied
  - id: ship
    do: { event: Shipped }
    timeout: 1h
completed: { fact: OrderCompleted, data: { total: =vars.total } }
failed: { fact: OrderFailed }
";

/// Step of a recording.
enum Entry {
    Event(&'static str, Value),
    Succeeded(&'static str, Value),
    Failed(&'static str),
    Complete(&'static str),
    Due(&'static str),
}
use Entry::{Complete, Due, Failed, Succeeded};

/// Recorded instance.
struct Recorded {
    key: InstanceKey,
    instance: Instance,
    inputs: Vec<(Timestamp, Input)>,
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000).saturating_add(Duration::from_secs(second))
}

fn program(text: &str) -> Arc<dyn Program> {
    Arc::new(load(text, "order.saga.yaml").unwrap())
}

fn event(kind: &str, data: Value, time: Timestamp) -> Event {
    Event {
        id: EventId::new(format!("{kind}-{time}")).unwrap(),
        tenant: TenantId::default_tenant(),
        kind: EventType::new(kind).unwrap(),
        source: "urn:shop".to_owned(),
        subject: None,
        time,
        correlation: None,
        causation: None,
        trace: None,
        schema_version: 1,
        data,
        user: None,
        attributes: None,
    }
}

fn result(items: &[WorkItem], tag: &str, outcome: WorkOutcome, at: Timestamp) -> Input {
    let item = items
        .iter()
        .rev()
        .find(|item| item.work.tag().is_some_and(|own| own.as_str() == tag));
    let item = item.unwrap_or_else(|| panic!("{tag} is not requested"));
    Input::WorkResult(WorkResult {
        work_id: item.id,
        outbox_key: OutboxKey {
            destination: item.destination(),
            sequence: 1,
        },
        outcome,
        requested_at: item.created_at,
        attempts: 1,
        at,
        facts: Vec::new(),
        publishes: false,
        trace: None,
        attempt_log: None,
    })
}

/// Runs the live definition; a second passes for each entry, and the time of a timer until it is due.
fn record(text: &str, entries: Vec<Entry>) -> Recorded {
    let program = program(text);
    let key = InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new("o-1").unwrap(),
    };
    let (mut instance, mut work, mut inputs) = (None::<Instance>, Vec::new(), Vec::new());
    let mut now = at(0);
    for entry in entries {
        now = now.saturating_add(Duration::from_secs(1));
        let input = match entry {
            Entry::Event(kind, data) => Input::Event(event(kind, data, now)),
            Succeeded(tag, payload) => {
                result(&work, tag, WorkOutcome::succeeded(None, payload), now)
            }
            Failed(tag) => {
                let failure = Failure {
                    code: "declined".to_owned(),
                    message: "no".to_owned(),
                };
                let outcome = WorkOutcome::Failed {
                    event: None,
                    failure,
                    payload: Value::Null,
                };
                result(&work, tag, outcome, now)
            }
            Complete(outcome) => {
                let id = instance.as_ref().unwrap().tasks[0].id;
                let order = TaskAction::Complete {
                    outcome: Some(EventType::new(outcome).unwrap()),
                    data: json!({}),
                };
                Input::Control(ControlRequest {
                    id: EventId::new("task-1").unwrap(),
                    action: ControlAction::Task {
                        id,
                        order,
                        roles: vec!["clerk".to_owned()],
                    },
                    expected_version: None,
                    at: now,
                    user: Some("ada".to_owned()),
                    reason: None,
                    trace: None,
                    wait_token: None,
                })
            }
            Due(name) => {
                let timers = &instance.as_ref().unwrap().timers;
                let timer = timers
                    .iter()
                    .find(|timer| timer.name.as_str() == name)
                    .unwrap();
                now = timer.due;
                Input::Timer(TimerFired {
                    name: timer.name.clone(),
                    token: timer.token,
                    due: timer.due,
                })
            }
        };
        let context = DecisionContext {
            key: &key,
            instance: instance.as_ref(),
            program: program.as_ref(),
            now,
            node: "n",
            buffered: &[],
            history_payload_bytes: 0,
        };
        let Decision::Commit(commit) = decide(&context, &input) else {
            panic!("no commit: {input:?}")
        };
        work.extend(commit.work);
        instance = commit.instance.map(Arc::unwrap_or_clone);
        inputs.push((now, input));
    }
    Recorded {
        key,
        instance: instance.unwrap(),
        inputs,
    }
}

impl Recorded {
    fn compare_with(
        &self,
        live: &dyn Program,
        candidate: &dyn Program,
        more: &[(Timestamp, Event)],
    ) -> Comparison {
        let Self {
            key,
            instance,
            inputs,
        } = self;
        compare(
            &ShadowCase {
                key,
                instance,
                inputs,
                additional: more,
                live,
                candidate,
            },
            &|| false,
        )
    }

    fn differences(&self, candidate: &dyn Program) -> Vec<Difference> {
        match self.compare_with(program(LIVE).as_ref(), candidate, &[]) {
            Comparison::Equal => Vec::new(),
            Comparison::Different(found) => found,
            Comparison::Skipped(reason) => panic!("skipped: {reason}"),
        }
    }

    /// Returns the kinds of differences of LIVE with replaced texts.
    #[track_caller]
    fn kinds(&self, replacements: &[(&str, &str)]) -> Vec<String> {
        self.differences(program(&edited(replacements)).as_ref())
            .into_iter()
            .map(|one| one.kind)
            .collect()
    }
}

#[track_caller]
fn edited(replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(
        LIVE.replace("version: 1", "version: 2"),
        |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        },
    )
}

fn placed(total: u32) -> Entry {
    Entry::Event(
        "OrderPlaced",
        json!({ "orderId": "o-1", "total": total, "card": "4242" }),
    )
}

fn shipped() -> Entry {
    Entry::Event("Shipped", json!({ "orderId": "o-1" }))
}

/// An order that completes, with a fraud check if the total is more than 100.
fn completed(total: u32) -> Recorded {
    let mut entries = vec![placed(total), Succeeded("charge", json!({ "id": 7 }))];
    if total > 100 {
        entries.push(Succeeded("check", json!({})));
    }
    entries.extend([Complete("Approved"), shipped()]);
    record(LIVE, entries)
}

/// An order that is not shipped in time, so that it is compensated.
fn unshipped() -> Recorded {
    let paid = [
        placed(1),
        Succeeded("charge", json!({ "id": 7 })),
        Complete("Approved"),
    ];
    record(
        LIVE,
        paid.into_iter()
            .chain([Due("ship"), Succeeded("compensate:charge", json!({}))])
            .collect(),
    )
}

#[test]
fn same_definition_is_equal() {
    for recorded in [
        completed(50),
        completed(500),
        record(LIVE, vec![placed(1), Failed("charge")]),
        unshipped(),
        record(
            LIVE,
            vec![
                placed(1),
                Succeeded("charge", json!({ "id": 7 })),
                Complete("Denied"),
            ],
        ),
        record(LIVE, vec![placed(1)]),
    ] {
        assert_eq!(recorded.kinds(&[]), <[&str; 0]>::default());
    }
}

#[test]
fn another_payload_is_a_difference_and_the_candidate_continues() {
    let found = completed(50).differences(
        program(&edited(&[(
            "amount: =vars.total, card",
            "amount: =vars.total * 2, card",
        )]))
        .as_ref(),
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].kind,
        "step charge: payload of payments.charge differs at .amount"
    );
    assert_eq!(found[0].path, ["amount"]);
    assert_eq!(
        (&found[0].live, &found[0].candidate),
        (&Some(json!(50)), &Some(json!(100)))
    );
}

#[test]
fn another_effect_ends_the_comparison() {
    let kinds = completed(50).kinds(&[
        ("payments.charge", "bank.charge"),
        ("OrderCompleted", "Done"),
    ]);
    assert_eq!(
        kinds,
        ["step charge: calls bank.charge instead of payments.charge"]
    );
}

#[test]
fn additional_effect_ends_the_comparison() {
    let kinds = completed(50).kinds(&[("vars.total > 100", "vars.total > 10")]);
    assert_eq!(
        kinds,
        [
            "step check: calls fraud.check, the live instance does not",
            "task approve: only from the live instance"
        ]
    );
}

#[test]
fn missing_effect_and_the_condition_are_differences() {
    let kinds = completed(500).kinds(&[("vars.total > 100", "vars.total > 1000")]);
    assert_eq!(
        kinds,
        [
            "step check: the live instance calls fraud.check, the candidate does not",
            "step check: skipped instead of completed"
        ]
    );
}

#[test]
fn options_of_an_effect_are_compared() {
    let with_retry = (
        "timeout: 30m\n",
        "timeout: 30m\n    retry: { max_attempts: 9 }\n",
    );
    let kinds = completed(50).kinds(&[with_retry]);
    assert_eq!(
        kinds,
        ["step charge: options of payments.charge differs at .retry"]
    );
}

#[test]
fn another_timeout_is_a_difference() {
    let kinds = completed(50).kinds(&[("timeout: 1h", "timeout: 2h")]);
    assert_eq!(kinds, ["timer ship: is due at another time"]);
}

#[test]
fn shorter_timeout_of_the_candidate_fires() {
    let entries = vec![
        placed(1),
        Succeeded("charge", json!({ "id": 7 })),
        Complete("Approved"),
        shipped(),
    ];
    let mut recorded = record(LIVE, entries);
    // The shipment arrives after ten minutes.
    let last = recorded.inputs.last_mut().unwrap();
    last.0 = last.0.saturating_add(Duration::from_mins(10));
    let kinds = recorded.kinds(&[("timeout: 1h", "timeout: 5m")]);
    assert!(
        kinds.contains(
            &"compensation of step charge: calls payments.refund, the live instance does not"
                .to_owned()
        ),
        "{kinds:?}"
    );
}

#[test]
fn event_that_the_candidate_does_not_consume_is_a_difference() {
    let kinds = completed(50).kinds(&[("event: Shipped", "event: Delivered")]);
    assert!(
        kinds.contains(&"event Shipped: not consumed".to_owned()),
        "{kinds:?}"
    );
    assert!(
        kinds.contains(&"ends running instead of completed".to_owned()),
        "{kinds:?}"
    );
}

#[test]
fn event_that_only_the_candidate_consumes_is_applied() {
    let recorded = record(
        LIVE,
        vec![
            placed(1),
            Succeeded("charge", json!({ "id": 7 })),
            Complete("Approved"),
        ],
    );
    let candidate = program(&edited(&[("event: Shipped", "event: Delivered")]));
    let more = [(
        at(9),
        event("Delivered", json!({ "orderId": "o-1" }), at(9)),
    )];
    let Comparison::Different(found) =
        recorded.compare_with(program(LIVE).as_ref(), candidate.as_ref(), &more)
    else {
        panic!("it is different")
    };
    assert!(
        found
            .iter()
            .any(|one| one.kind == "ends completed instead of running"),
        "{found:?}"
    );
}

#[test]
fn another_correlation_is_a_difference() {
    let kinds = completed(50).kinds(&[(
        "correlate: orderId",
        "correlate: { OrderPlaced: card, Shipped: orderId }",
    )]);
    assert_eq!(kinds[0], "event OrderPlaced: belongs to another instance");
    assert_eq!(kinds[1], "event OrderPlaced: does not start the candidate");
}

#[test]
fn another_start_event_is_a_difference() {
    let kinds = completed(50).kinds(&[("start: OrderPlaced", "start: OrderCreated")]);
    assert_eq!(
        kinds[..2],
        [
            "event OrderPlaced: not consumed",
            "event OrderPlaced: does not start the candidate"
        ]
    );
}

#[test]
fn facts_result_and_variables_are_compared() {
    let kinds = completed(50).kinds(&[(
        "data: { total: =vars.total } }\nfailed",
        "data: { total: 0 } }\nfailed",
    )]);
    assert_eq!(
        kinds,
        [
            "fact OrderCompleted: data differs at .total",
            "result differs at .data.total"
        ]
    );
    let kinds = completed(50).kinds(&[("receipt: =event.id", "receipt: =event.id + 1")]);
    assert_eq!(kinds, ["variable receipt differs"]);
    let kinds = completed(50).kinds(&[("fact: OrderCompleted", "fact: Done")]);
    assert_eq!(
        kinds[..2],
        [
            "fact OrderCompleted: only from the live instance",
            "fact Done: only from the candidate"
        ]
    );
}

#[test]
fn another_outcome_of_a_task_changes_the_end() {
    let kinds = completed(50).kinds(&[(
        "ok: Approved\n    fail: Denied",
        "ok: Denied\n    fail: Approved",
    )]);
    assert!(
        kinds.contains(
            &"compensation of step charge: calls payments.refund, the live instance does not"
                .to_owned()
        ),
        "{kinds:?}"
    );
}

#[test]
fn task_is_compared_and_its_decision_is_applied() {
    let kinds = completed(50).kinds(&[("roles: [clerk]", "roles: [manager]")]);
    assert_eq!(kinds[0], "control request complete: not applied");
    assert!(
        kinds.contains(&"task approve differs at .roles[]".to_owned()),
        "{kinds:?}"
    );
}

/// A program that panics, or that arms a timer in every transition.
struct Broken {
    inner: Arc<dyn Program>,
    panics: bool,
    last: Mutex<Option<Transition>>,
}

impl Broken {
    fn new(panics: bool) -> Self {
        Self {
            inner: program(LIVE),
            panics,
            last: Mutex::new(None),
        }
    }
}

impl Program for Broken {
    fn definition_ref(&self) -> &orlog_model::DefinitionRef {
        self.inner.definition_ref()
    }

    fn manifest(&self) -> &Manifest {
        self.inner.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.inner.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        assert!(!self.panics || state.is_none(), "a broken candidate");
        let (name, due) = (
            Name::new("again").unwrap(),
            context.now.saturating_add(Duration::from_millis(1)),
        );
        let is_own = matches!(input, ProgramInput::Timer { name: "again" });
        let mut output = if is_own {
            ProgramOutput::Applied(Box::new(self.last.lock().take().expect("a transition")))
        } else {
            self.inner.apply(state, input, context)?
        };
        if let ProgramOutput::Applied(transition) = &mut output
            && !self.panics
        {
            transition.timers = vec![TimerChange::Arm { name, due }];
            let next = Transition {
                work: Vec::new(),
                ..(**transition).clone()
            };
            *self.last.lock() = Some(next);
        }
        Ok(output)
    }
}

#[test]
fn panic_of_the_candidate_is_a_difference() {
    let broken = Broken::new(true);
    let kinds: Vec<_> = completed(50)
        .differences(&broken)
        .into_iter()
        .map(|one| one.kind)
        .collect();
    assert_eq!(kinds[0], "result of payments.charge: the candidate panics");
}

#[test]
fn candidate_that_never_rests_is_a_difference() {
    let recorded = unshipped();
    let broken = Broken::new(false);
    let kinds: Vec<_> = recorded
        .differences(&broken)
        .into_iter()
        .map(|one| one.kind)
        .collect();
    assert_eq!(
        kinds[0],
        "more than 1000 timers fire that the live instance does not have"
    );
}

#[test]
fn instance_that_its_record_does_not_reproduce_is_skipped() {
    let mut recorded = completed(50);
    let live = program(LIVE);
    let skipped =
        |recorded: &Recorded| match recorded.compare_with(live.as_ref(), live.as_ref(), &[]) {
            Comparison::Skipped(reason) => reason,
            other => panic!("{other:?}"),
        };
    let last = recorded.inputs.pop().unwrap();
    assert_eq!(skipped(&recorded), "its record does not reproduce it");
    recorded.inputs.push(last);
    let Recorded {
        key,
        instance,
        inputs,
    } = &recorded;
    let case = ShadowCase {
        key,
        instance,
        inputs,
        additional: &[],
        live: live.as_ref(),
        candidate: live.as_ref(),
    };
    assert_eq!(
        compare(&case, &|| true),
        Comparison::Skipped("the computation took too long")
    );
}
