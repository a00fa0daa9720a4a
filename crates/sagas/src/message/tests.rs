//! Transitions of messages: statuses, timers, withdrawal, and a property of both programs over a network that repeats, delays and loses.

mod mail;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SagaName, Status, TenantId,
    TimerChange, Timestamp, Work, WorkOutcome,
};
use orlog_program::{Context, Program, ProgramInput, ProgramOutput, SagaState as _};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const DAY: Duration = Duration::from_hours(24);

/// Instance of one of the programs, with its pending work by tag and its timers.
struct Harness {
    program: Box<dyn Program>,
    key: InstanceKey,
    version: u64,
    now: Timestamp,
    state: Option<Vec<u8>>,
    status: Status,
    work: BTreeMap<String, Work>,
    timers: BTreeMap<String, Timestamp>,
}

impl Harness {
    fn new(program: impl Program, saga: &str, id: CorrelationId) -> Self {
        Self {
            program: Box::new(program),
            key: InstanceKey {
                tenant: TenantId::default(),
                saga: SagaName::new(saga).unwrap(),
                correlation: id,
            },
            version: 0,
            now: Timestamp::from_millis(1_000_000),
            state: None,
            status: Status::Running,
            work: BTreeMap::new(),
            timers: BTreeMap::new(),
        }
    }

    /// Returns the outbox instance of a message that was sent.
    fn sent(kind: MessageType) -> Self {
        let mut this = Self::new(program(), SAGA, CorrelationId::new("m-1").unwrap());
        this.signal(SEND, json!(submission(kind))).unwrap();
        this
    }

    fn inbox() -> Self {
        let message = submission(MessageType::Chat).message;
        Self::new(
            inbox_program(),
            INBOX_SAGA,
            inbox_id(&message.from, &message.id),
        )
    }

    /// Returns the inbox instance of a message that was delivered.
    fn received(kind: MessageType) -> Self {
        let mut this = Self::inbox();
        this.signal(DELIVER, json!(Harness::sent(kind).message().delivery()))
            .unwrap();
        this
    }

    fn message(&self) -> SentMessage {
        SentMessage::decode(self.state.as_ref().unwrap()).unwrap()
    }

    fn inbox_message(&self) -> ReceivedMessage {
        ReceivedMessage::decode(self.state.as_ref().unwrap()).unwrap()
    }

    fn signal(&mut self, kind: &str, data: Value) -> Result<(), String> {
        let event = Event {
            id: EventId::new("e").unwrap(),
            tenant: TenantId::default(),
            kind: EventType::new(kind).unwrap(),
            source: "orlog:signal".to_owned(),
            subject: None,
            time: Timestamp::from_millis(1),
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data,
            user: Some("bob".to_owned()),
            attributes: None,
        };
        self.apply(&ProgramInput::Event(&event))
    }

    /// Applies an input; returns the reason if it changes nothing.
    fn apply(&mut self, input: &ProgramInput<'_>) -> Result<(), String> {
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now: self.now,
            pending_work: &[],
            attempts: 0,
        };
        let transition = match self.program.apply(self.state.as_deref(), input, &context) {
            Ok(ProgramOutput::Applied(transition)) => transition,
            Ok(ProgramOutput::Ignored(reason) | ProgramOutput::Rejected(reason)) => {
                return Err(reason.into_owned());
            }
            Err(error) => return Err(error.to_string()),
        };
        assert_eq!(
            transition.waits.is_empty(),
            transition.status.is_final(),
            "a message waits until its end"
        );
        (self.state, self.status, self.version) =
            (Some(transition.state), transition.status, self.version + 1);
        for work in transition.work {
            let tag = work
                .tag()
                .map_or_else(|| "cancel".to_owned(), ToString::to_string);
            self.work.insert(tag, work);
        }
        for timer in transition.timers {
            match timer {
                TimerChange::Arm { name, due } => drop(self.timers.insert(name.to_string(), due)),
                TimerChange::Cancel { name } => drop(self.timers.remove(name.as_str())),
            }
        }
        if self.status.is_final() {
            self.timers.clear();
        }
        Ok(())
    }

    fn succeed(&mut self, tag: &str, payload: Value) -> Result<(), String> {
        let outcome = WorkOutcome::Succeeded {
            event: None,
            payload,
            schema_version: 1,
        };
        self.work.remove(tag).expect("the work is pending");
        self.apply(&ProgramInput::WorkResult {
            tag,
            outcome: &outcome,
        })
    }

    fn fail(&mut self, tag: &str) -> Result<(), String> {
        let failure = Failure {
            code: "OR0111".to_owned(),
            message: "not permitted".to_owned(),
        };
        let outcome = WorkOutcome::Failed {
            event: None,
            failure,
            payload: Value::Null,
        };
        self.work.remove(tag).expect("the work is pending");
        self.apply(&ProgramInput::WorkResult {
            tag,
            outcome: &outcome,
        })
    }

    fn fire(&mut self, timer: &str) -> Result<(), String> {
        if let Some(due) = self.timers.remove(timer) {
            self.now = self.now.max(due);
        }
        self.apply(&ProgramInput::Timer { name: timer })
    }

    /// Returns the armed timer and the time until it is due.
    fn timer(&self) -> Option<(&str, Duration)> {
        assert!(
            self.timers.len() <= 1,
            "each timeout begins when the one before ends: {:?}",
            self.timers
        );
        self.timers
            .first_key_value()
            .map(|(name, due)| (name.as_str(), due.duration_since(self.now)))
    }
}

fn submission(kind: MessageType) -> SendMessage {
    let message = Message {
        id: CorrelationId::new("m-1").unwrap(),
        from: "a@one".parse().unwrap(),
        to: "b@two".parse().unwrap(),
        kind,
        format: MessageFormat::Text,
        thread: "t-1".to_owned(),
        subject: None,
        body: "jobs: [{ id: a, type: t, script: s }]".to_owned(),
        user: Some("ann".to_owned()),
        sent_at: Timestamp::from_millis(0),
    };
    let timeouts = Timeouts {
        result: Some(7 * DAY),
        ..Timeouts::of(kind)
    };
    SendMessage {
        message,
        timeouts,
        acts_for_receiver: false,
    }
}

fn report(status: MessageStatus) -> Value {
    json!(Report {
        status,
        result: Value::Null,
        failure: None,
        lines: Vec::new(),
        total_lines: 0
    })
}

/// Requirements: F6.
#[test]
fn each_timeout_begins_when_the_one_before_ends() {
    let mut sent = Harness::sent(MessageType::Chat);
    assert_eq!(sent.timer(), Some(("delivery", 7 * DAY)));
    sent.now = sent.now.saturating_add(DAY);
    sent.succeed("deliver", report(MessageStatus::Dispatched))
        .unwrap();
    assert_eq!(sent.timer(), Some(("acknowledgement", DAY)));
    sent.now = sent.now.saturating_add(DAY / 2);
    sent.signal(REPORT, report(MessageStatus::Acknowledged))
        .unwrap();
    assert_eq!(sent.timer(), Some(("result", 7 * DAY)));
    sent.signal(REPORT, report(MessageStatus::Processed))
        .unwrap();
    assert_eq!((sent.timer(), sent.status), (None, Status::Completed));
}

/// Requirements: F6.
#[test]
fn each_timer_ends_the_message_with_its_own_code() {
    for (reached, timer) in [
        (None, "delivery"),
        (Some(MessageStatus::Dispatched), "acknowledgement"),
        (Some(MessageStatus::Acknowledged), "result"),
    ] {
        for kind in [MessageType::Job, MessageType::Chat] {
            let mut sent = Harness::sent(kind);
            if let Some(status) = reached {
                sent.succeed("deliver", report(status)).unwrap();
            }
            for other in ["delivery", "acknowledgement", "result"]
                .iter()
                .filter(|other| **other != timer)
            {
                assert_eq!(sent.fire(other), Err("the timer is not armed".to_owned()));
            }
            sent.fire(timer).unwrap();
            let state = sent.message();
            let failure = state.failure.unwrap();
            assert_eq!(
                (state.status, failure.code),
                (MessageStatus::Error, format!("{timer}_timeout"))
            );
            assert!(failure.message.contains("b@two"), "{}", failure.message);
            assert_eq!(sent.status, Status::Failed);
            assert_eq!(
                sent.work.contains_key("withdraw"),
                kind == MessageType::Job,
                "only a job is stopped"
            );
        }
    }
}

#[test]
fn default_timeouts_of_a_conversation_do_not_limit_the_result() {
    let limits = |kind| {
        let Timeouts {
            delivery,
            acknowledgement,
            result,
        } = Timeouts::of(kind);
        (delivery, acknowledgement, result)
    };
    assert_eq!(
        limits(MessageType::Job),
        (7 * DAY, Some(DAY), Some(7 * DAY))
    );
    assert_eq!(limits(MessageType::Chat), (7 * DAY, Some(DAY), None));
    assert_eq!(limits(MessageType::Mail), (7 * DAY, Some(DAY), None));
}

#[test]
fn rejected_delivery_ends_the_message_with_the_reason_of_the_receiver() {
    for kind in [MessageType::Job, MessageType::Chat] {
        let mut sent = Harness::sent(kind);
        sent.fail("deliver").unwrap();
        assert_eq!(sent.message().failure.unwrap().message, "not permitted");
        assert_eq!((sent.status, sent.timer()), (Status::Failed, None));
        assert_eq!(
            sent.work.contains_key("withdraw"),
            kind == MessageType::Job,
            "only a job is stopped"
        );
    }
}

#[test]
fn job_that_an_earlier_attempt_stored_is_stopped_when_its_delivery_fails() {
    let (mut sent, mut inbox) = (
        Harness::sent(MessageType::Job),
        Harness::received(MessageType::Job),
    );
    sent.fail("deliver").unwrap();
    inbox
        .signal(DELIVER, json!(sent.message().withdrawal()))
        .unwrap();
    assert!(
        matches!(inbox.work["cancel"], Work::CancelChild(_)),
        "{:?}",
        inbox.work
    );
    assert_eq!(inbox.status, Status::Cancelled);
    // Neither a repetition nor its end has a further effect.
    let again = inbox.signal(DELIVER, json!(sent.message().withdrawal()));
    assert_eq!(again, Err("the message has ended".to_owned()));
    for is_success in [true, false] {
        let mut sent = Harness::sent(MessageType::Job);
        sent.fail("deliver").unwrap();
        let ended = if is_success {
            sent.succeed("withdraw", Value::Null)
        } else {
            sent.fail("withdraw")
        };
        assert_eq!(ended, Err("the message has ended".to_owned()));
        assert!(sent.work.is_empty(), "{:?}", sent.work);
    }
}

#[test]
fn withdrawal_does_not_end_another_message_with_the_same_id() {
    let mut inbox = Harness::received(MessageType::Job);
    // The sender reuses the id after its retention.
    let mut sent = Harness::new(program(), SAGA, CorrelationId::new("m-1").unwrap());
    sent.now = sent.now.saturating_add(DAY);
    sent.signal(SEND, json!(submission(MessageType::Job)))
        .unwrap();
    sent.fail("deliver").unwrap();
    let withdrawn = inbox.signal(DELIVER, json!(sent.message().withdrawal()));
    assert_eq!(
        withdrawn,
        Err("it is not the message that is withdrawn".to_owned())
    );
    assert_eq!(
        (inbox.status, inbox.work.contains_key("cancel")),
        (Status::Running, false)
    );
}

#[test]
fn report_proves_a_delivery_whose_answer_was_lost() {
    let mut sent = Harness::sent(MessageType::Job);
    sent.signal(REPORT, report(MessageStatus::Acknowledged))
        .unwrap();
    assert_eq!(sent.timer(), Some(("result", 7 * DAY)));
    assert_eq!(
        sent.fail("deliver"),
        Err("the message is delivered".to_owned())
    );
    assert_eq!(
        sent.signal(REPORT, report(MessageStatus::Dispatched)),
        Err("the report is not new".to_owned())
    );
    assert_eq!(sent.message().status, MessageStatus::Acknowledged);
}

#[test]
fn nodes_are_distributed_among_the_effects_beside_the_own_one() {
    let effect = |harness: &Harness, tag: &str| {
        let Work::Effect(effect) = &harness.work[tag] else {
            panic!("{:?}", harness.work)
        };
        effect.name.to_string()
    };
    let delivery = |from: &str, to: &str| {
        let mut sent = Harness::new(program(), SAGA, CorrelationId::new("m-1").unwrap());
        let mut submission = submission(MessageType::Chat);
        (submission.message.from, submission.message.to) =
            (from.parse().unwrap(), to.parse().unwrap());
        sent.signal(SEND, json!(submission)).unwrap();
        sent.apply(&ProgramInput::Cancel { reason: "" }).unwrap();
        assert_eq!(
            effect(&sent, "withdraw"),
            effect(&sent, "deliver"),
            "one node, one effect"
        );
        effect(&sent, "deliver")
    };
    assert_eq!(delivery("a@one", "b@one"), EFFECT);
    let found: BTreeSet<_> = (0..200)
        .map(|number| delivery("a@one", &format!("b@n{number}")))
        .collect();
    let others: BTreeSet<_> = EFFECTS[1..].iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, others);
    let mut inbox = Harness::received(MessageType::Chat);
    inbox.signal(ACKNOWLEDGE, Value::Null).unwrap();
    assert_eq!(
        effect(&inbox, "report"),
        delivery("b@two", "a@one"),
        "a report goes to the sender"
    );
}

#[test]
fn repeated_submission_has_no_effect_and_another_content_is_rejected() {
    let mut sent = Harness::sent(MessageType::Chat);
    sent.now = sent.now.saturating_add(DAY);
    let again = sent.signal(SEND, json!(submission(MessageType::Chat)));
    assert_eq!(again, Err("the message exists".to_owned()));
    let other = sent.signal(SEND, json!(submission(MessageType::Mail)));
    assert_eq!(
        other,
        Err("a message with this id and another content exists".to_owned())
    );
}

#[test]
fn cancelled_message_is_withdrawn_and_its_later_delivery_changes_nothing() {
    let mut sent = Harness::sent(MessageType::Job);
    let late = sent.message().delivery();
    sent.apply(&ProgramInput::Cancel {
        reason: "wrong address",
    })
    .unwrap();
    assert_eq!((sent.status, sent.timer()), (Status::Cancelled, None));
    let mut inbox = Harness::inbox();
    inbox
        .signal(DELIVER, json!(sent.message().withdrawal()))
        .unwrap();
    assert_eq!(
        inbox.signal(DELIVER, json!(late)),
        Err("the message exists".to_owned())
    );
    let state = inbox.inbox_message();
    assert_eq!(
        (state.status, inbox.status, inbox.work.len()),
        (MessageStatus::Error, Status::Cancelled, 0)
    );
    assert!(state.failure.unwrap().message.contains("wrong address"));
    assert_eq!(
        state.message.body, "",
        "the content of a withdrawn message is not sent"
    );
}

#[test]
fn withdrawal_stops_the_flow_of_a_job() {
    let mut inbox = Harness::received(MessageType::Job);
    let mut sent = Harness::sent(MessageType::Job);
    sent.apply(&ProgramInput::Cancel { reason: "" }).unwrap();
    inbox
        .signal(DELIVER, json!(sent.message().withdrawal()))
        .unwrap();
    let Work::CancelChild(cancel) = &inbox.work["cancel"] else {
        panic!("{:?}", inbox.work)
    };
    assert_eq!(cancel.correlation, inbox.key.correlation);
    assert_eq!(
        inbox.fail("flow"),
        Err("it changes nothing of the message".to_owned())
    );
    assert_eq!(inbox.status, Status::Cancelled);
}

#[test]
fn job_at_its_limit_is_stored() {
    let body = "\"".repeat(MAX_MESSAGE_BYTES);
    let mut sent = submission(MessageType::Job);
    sent.message.body = body.clone();

    let mut outbox = Harness::new(program(), SAGA, CorrelationId::new("m-1").unwrap());
    outbox.signal(SEND, json!(sent)).unwrap();
    let delivery = outbox.message().delivery();

    let mut inbox = Harness::inbox();
    inbox.signal(DELIVER, json!(delivery)).unwrap();
    assert_eq!(inbox.inbox_message().message.body, body);
}

/// Requirements: F6.
#[test]
fn job_starts_a_flow_and_reports_its_results() {
    let mut inbox = Harness::received(MessageType::Job);
    let Work::StartChild(start) = &inbox.work["flow"] else {
        panic!("{:?}", inbox.work)
    };
    assert_eq!(
        (start.saga.as_str(), &start.correlation),
        ("orlog.flow", &inbox.key.correlation)
    );
    assert_eq!(start.data["user"], "a@one");
    assert_eq!(
        inbox.inbox_message().report().status,
        MessageStatus::Acknowledged
    );
    let not_by_hand = inbox.signal(PROCESS, json!({ "result": 1 })).unwrap_err();
    assert!(
        not_by_hand.contains("the flow of a job ends it"),
        "{not_by_hand}"
    );
    inbox.succeed("flow", json!({ "a": 7 })).unwrap();
    assert_eq!(
        (inbox.status, inbox.inbox_message().report().result),
        (Status::Completed, json!({ "a": 7 }))
    );
    assert!(inbox.work.contains_key("report"));
}

#[test]
fn failed_flow_is_reported_as_an_error() {
    let mut inbox = Harness::received(MessageType::Job);
    inbox.fail("flow").unwrap();
    let report = inbox.inbox_message().report();
    assert_eq!(
        (report.status, report.failure.unwrap().code.as_str()),
        (MessageStatus::Error, "OR0111")
    );
}

/// Requirements: F6.
#[test]
fn member_acknowledges_and_processes_a_conversation_with_lines() {
    let mut inbox = Harness::received(MessageType::Chat);
    inbox.signal(LINE, json!({ "text": "read" })).unwrap();
    inbox.signal(ACKNOWLEDGE, Value::Null).unwrap();
    assert_eq!(
        inbox.signal(ACKNOWLEDGE, Value::Null),
        Err("it is already acknowledged".to_owned())
    );
    for number in 0..MAX_LINES {
        inbox
            .signal(
                LINE,
                json!({ "text": format!("{number}{}", "x".repeat(2 * MAX_LINE_BYTES)) }),
            )
            .unwrap();
    }
    inbox.signal(PROCESS, json!({ "result": "ok" })).unwrap();
    let state = inbox.inbox_message();
    assert_eq!(
        (state.by.as_deref(), state.total_lines, state.lines.len()),
        (Some("bob"), 101, MAX_LINES)
    );
    assert_eq!(state.lines[0].text.len(), MAX_LINE_BYTES);
    assert_eq!(
        inbox.signal(REJECT, json!({ "reason": "no" })),
        Err("the message has ended: processed".to_owned())
    );
    let mut sent = Harness::sent(MessageType::Chat);
    sent.signal(REPORT, json!(state.report())).unwrap();
    let sent = sent.message();
    assert_eq!(
        (sent.status, sent.result, sent.total_lines),
        (MessageStatus::Processed, json!("ok"), 101)
    );
}

#[test]
fn ids_of_received_messages_differ_by_sender_and_keep_the_time() {
    let [one, two, other]: [orlog_model::ContextAddress; 3] =
        ["a@one", "a@two", "b@one"].map(|text| text.parse().unwrap());
    let id = check_id("0190f3a8-6d3c-7c11-9d8e-3f1f0a7b2a51").unwrap();
    let ids = [&one, &two, &other].map(|from| inbox_id(from, &id).to_string());
    assert!(
        ids.iter().all(|id| id.starts_with("in-0190f3a8-6d3c-7")),
        "{ids:?}"
    );
    assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
    assert_eq!(inbox_id(&one, &id), inbox_id(&one, &id));
    assert!(
        check_id(&ids[0])
            .unwrap_err()
            .contains("starts with \"in-\"")
    );
    assert!(
        check_id(&"x".repeat(101)).is_err() && check_id("a\nb").is_err() && check_id("..").is_err()
    );
}

/// Event of the network, of a user or of the clock.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The delivery reaches the receiver; the flag tells whether the answer reaches the sender.
    Deliver(bool),
    /// A copy of an earlier delivery arrives.
    DeliverCopy,
    /// A report reaches the sender.
    Report(bool),
    /// A copy of an earlier report arrives.
    ReportCopy(usize),
    Withdraw,
    Acknowledge,
    Process,
    Reject,
    Line,
    FlowEnds(bool),
    Cancel,
    Timer,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(Step::Deliver),
        2 => Just(Step::DeliverCopy),
        4 => any::<bool>().prop_map(Step::Report),
        2 => any::<usize>().prop_map(Step::ReportCopy),
        1 => Just(Step::Withdraw),
        2 => Just(Step::Acknowledge),
        1 => Just(Step::Process),
        1 => Just(Step::Reject),
        2 => Just(Step::Line),
        2 => any::<bool>().prop_map(Step::FlowEnds),
        1 => Just(Step::Cancel),
        1 => Just(Step::Timer),
    ];
    proptest::collection::vec(step, 0..30)
}

/// Both instances of a message, and what the network may repeat.
struct Network {
    sent: Harness,
    inbox: Harness,
    copies: Vec<Delivery>,
    reports: Vec<Report>,
}

impl Network {
    /// Makes an attempt of the delivery, as the executor of the effect does. Returns the outcome, unless the answer is lost.
    fn deliver(&mut self, is_answered: bool) {
        if !self.sent.work.contains_key("deliver") {
            return;
        }
        let state = self.sent.message();
        if state.status.is_final() {
            drop(self.sent.fail("deliver"));
            return;
        }
        self.copies.push(state.delivery());
        drop(self.inbox.signal(DELIVER, json!(state.delivery())));
        if is_answered {
            drop(
                self.sent
                    .succeed("deliver", json!(self.inbox.inbox_message().report())),
            );
        }
    }

    fn report(&mut self, is_answered: bool) {
        if !self.inbox.work.contains_key("report") {
            return;
        }
        let report = self.inbox.inbox_message().report();
        self.reports.push(report.clone());
        drop(self.sent.signal(REPORT, json!(report)));
        if is_answered {
            drop(self.inbox.succeed("report", Value::Null));
        }
    }

    fn withdraw(&mut self) {
        if self.sent.work.contains_key("withdraw") {
            drop(
                self.inbox
                    .signal(DELIVER, json!(self.sent.message().withdrawal())),
            );
            drop(self.sent.succeed("withdraw", Value::Null));
        }
    }

    fn apply(&mut self, step: Step) {
        let exists = self.inbox.state.is_some();
        match step {
            Step::Deliver(is_answered) => self.deliver(is_answered),
            Step::DeliverCopy => {
                if let Some(copy) = self.copies.last() {
                    drop(self.inbox.signal(DELIVER, json!(copy)));
                }
            }
            Step::Report(is_answered) => self.report(is_answered),
            Step::ReportCopy(number) => {
                if !self.reports.is_empty() {
                    let copy = &self.reports[number % self.reports.len()];
                    drop(self.sent.signal(REPORT, json!(copy)));
                }
            }
            Step::Withdraw => self.withdraw(),
            Step::Acknowledge if exists => drop(self.inbox.signal(ACKNOWLEDGE, Value::Null)),
            Step::Process if exists => drop(self.inbox.signal(PROCESS, json!({ "result": 1 }))),
            Step::Reject if exists => drop(self.inbox.signal(REJECT, json!({ "reason": "no" }))),
            Step::Line if exists => drop(self.inbox.signal(LINE, json!({ "text": "x" }))),
            Step::FlowEnds(is_success) if self.inbox.work.contains_key("flow") => {
                drop(if is_success {
                    self.inbox.succeed("flow", json!(2))
                } else {
                    self.inbox.fail("flow")
                });
            }
            Step::Cancel => drop(self.sent.apply(&ProgramInput::Cancel { reason: "" })),
            Step::Timer => {
                if let Some(timer) = self.sent.timers.keys().next().cloned() {
                    self.sent
                        .fire(&timer)
                        .expect("an armed timer changes the message");
                }
            }
            Step::Acknowledge | Step::Process | Step::Reject | Step::Line | Step::FlowEnds(_) => {}
        }
    }

    /// Lets everything arrive that still waits.
    fn settle(&mut self) {
        self.deliver(true);
        self.withdraw();
        drop(
            self.inbox
                .work
                .remove("cancel")
                .map(|_| self.inbox.work.remove("flow")),
        );
        self.apply(Step::FlowEnds(true));
        self.report(true);
    }
}

proptest! {
    /// Requirements: F6.
    #[test]
    fn any_order_of_inputs_ends_in_one_final_status(is_job: bool, steps in steps()) {
        let kind = if is_job { MessageType::Job } else { MessageType::Chat };
        let mut network = Network {
            sent: Harness::sent(kind), inbox: Harness::inbox(), copies: Vec::new(), reports: Vec::new(),
        };
        let mut statuses = (MessageStatus::Dispatched, MessageStatus::Dispatched);
        let mut ended: (Option<SentMessage>, Option<ReceivedMessage>) = (None, None);
        for step in steps {
            network.apply(step);
            let sent = network.sent.message();
            prop_assert!(sent.status >= statuses.0, "the status only increases");
            prop_assert_eq!(network.sent.timers.is_empty(), sent.status.is_final(), "a timer runs until the end");
            statuses.0 = sent.status;
            if let Some(before) = &ended.0 {
                prop_assert_eq!(before, &sent, "an ended message does not change");
            }
            ended.0 = Some(sent).filter(|sent| sent.status.is_final());
            if network.inbox.state.is_some() {
                let received = network.inbox.inbox_message();
                prop_assert!(received.status >= statuses.1, "the status only increases");
                statuses.1 = received.status;
                if let Some(before) = &ended.1 {
                    prop_assert_eq!(before.status, received.status, "an ended message does not change");
                    prop_assert_eq!(&before.result, &received.result);
                }
                ended.1 = Some(received).filter(|received| received.status.is_final());
            }
        }
        network.settle();
        let sent = network.sent.message();
        prop_assert!(!network.sent.work.contains_key("deliver") && !network.sent.work.contains_key("withdraw"));
        if network.inbox.state.is_none() {
            prop_assert_eq!(sent.status, MessageStatus::Error, "only a message that ended first has no receiver");
            return Ok(());
        }
        let received = network.inbox.inbox_message();
        if is_job {
            prop_assert!(received.status.is_final() && sent.status.is_final(), "a job ends on both sides");
        }
        let ended_first = sent.failure.as_ref().is_some_and(|it| it.code == "cancelled" || it.code.ends_with("_timeout"));
        if received.status.is_final() && !ended_first {
            prop_assert_eq!((sent.status, sent.result, sent.failure), (received.status, received.result, received.failure));
        }
        prop_assert!(!network.inbox.work.contains_key("report"), "every report was delivered");
    }
}
