//! Transitions of flows: order, results, failures, retry, rerun, cancel, limits, and diagnostics.

use std::collections::BTreeMap;

use orlog_model::{
    CorrelationId, Event, EventId, EventType, Failure, InstanceKey, SagaName, Status, TenantId,
    TimerChange, Timestamp, Work, WorkOutcome,
};
use orlog_program::{
    Context, MAX_PAYLOAD_BYTES, NativeProgram, Program as _, ProgramInput, ProgramOutput,
};
use serde_json::{Value, json};

use super::*;

/// `a` and `b` start; `c` receives the result of `a`; `d` follows `b` and `c`.
const DIAMOND: &str = "
name: diamond
labels: { team: media }
env: { REGION: eu }
jobs:
  - { id: a, type: python, script: print(1) }
  - { id: b, type: python, script: print(2), timeout: 1m }
  - { id: c, type: sal, script: x, dependencies: [a], args: { frames: =results.a.frames }, env: { REGION: us } }
  - { id: d, type: python, script: y, prerequisites: [b, c], runner: { name: r-1, labels: { gpu: 1 } } }
";

/// A flow, and its pending work by tag.
struct Harness {
    program: NativeProgram<FlowSaga>,
    key: InstanceKey,
    version: u64,
    state: Option<Vec<u8>>,
    status: Status,
    timers: Vec<String>,
    work: BTreeMap<String, (Value, u64)>,
}

impl Harness {
    fn new() -> Self {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new(SAGA).unwrap(),
            correlation: CorrelationId::new("f-1").unwrap(),
        };
        Self {
            program: program(),
            key,
            version: 0,
            state: None,
            status: Status::Running,
            timers: Vec::new(),
            work: BTreeMap::new(),
        }
    }

    fn submitted(source: &str) -> Self {
        let mut this = Self::new();
        this.signal(SUBMIT, json!({ "source": source, "user": "ann" }))
            .expect("the flow is submitted");
        this
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
            user: None,
            attributes: None,
        };
        self.apply(&ProgramInput::Event(&event))
    }

    /// Applies an input; returns the reason if it changes nothing.
    fn apply(&mut self, input: &ProgramInput<'_>) -> Result<(), String> {
        let now = Timestamp::from_millis(1_000_000);
        let context = Context {
            key: &self.key,
            version: self.version + 1,
            now,
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
            "a flow waits until its end"
        );
        (self.state, self.status, self.version) =
            (Some(transition.state), transition.status, self.version + 1);
        for work in transition.work {
            let Work::Effect(effect) = work else {
                panic!("unexpected work {work:?}")
            };
            self.work
                .insert(effect.tag.to_string(), (effect.payload, effect.round));
        }
        for timer in transition.timers {
            match timer {
                TimerChange::Arm { name, .. } => self.timers.push(name.to_string()),
                TimerChange::Cancel { name } => self.timers.retain(|armed| *armed != name.as_str()),
            }
        }
        Ok(())
    }

    fn finish(&mut self, tag: &str, payload: Value) {
        self.work.remove(tag).expect("the job is dispatched");
        let outcome = WorkOutcome::Succeeded {
            event: None,
            payload,
            schema_version: 1,
        };
        self.apply(&ProgramInput::WorkResult {
            tag,
            outcome: &outcome,
        })
        .expect("the result is applied");
    }

    fn fail(&mut self, tag: &str) {
        self.fail_with(tag, "no such file", Value::Null);
    }

    fn fail_with(&mut self, tag: &str, message: &str, payload: Value) {
        self.work.remove(tag).expect("the job is dispatched");
        let failure = Failure {
            code: "exit_1".to_owned(),
            message: message.to_owned(),
        };
        let outcome = WorkOutcome::Failed {
            event: None,
            failure,
            payload,
        };
        self.apply(&ProgramInput::WorkResult {
            tag,
            outcome: &outcome,
        })
        .expect("the result is applied");
    }

    fn view(&self) -> Value {
        self.program
            .view_state(self.state.as_ref().unwrap())
            .unwrap()
    }

    fn status(&self) -> String {
        self.view()["flow"]["status"].as_str().unwrap().to_owned()
    }

    /// Returns the statuses of the jobs, in the order of their ids.
    fn jobs(&self) -> Vec<String> {
        let jobs = self.view()["flow"]["jobs"].as_object().unwrap().clone();
        jobs.values()
            .map(|status| status.as_str().unwrap().to_owned())
            .collect()
    }

    fn dispatched(&self) -> Vec<&str> {
        self.work.keys().map(String::as_str).collect()
    }
}

/// Requirements: F3, F4.
#[test]
fn jobs_start_when_their_prerequisites_end_and_receive_results() {
    let mut flow = Harness::submitted(DIAMOND);
    assert_eq!(
        flow.jobs(),
        [
            "started",
            "started",
            "waiting_for_prerequisites",
            "waiting_for_prerequisites"
        ]
    );
    assert_eq!(
        (flow.dispatched(), &flow.timers[..]),
        (vec!["a", "b"], &["b".to_owned()][..])
    );
    flow.finish("a", json!({ "frames": 250 }));
    let (c, _) = flow.work["c"].clone();
    assert_eq!(
        (&c["args"], &c["results"]),
        (&json!({"frames": 250}), &json!({"a": {"frames": 250}}))
    );
    assert_eq!(
        (&c["env"], &c["type"], &c["script"]),
        (&json!({"REGION": "us"}), &json!("sal"), &json!("x"))
    );
    flow.finish("b", Value::Null);
    flow.finish("c", json!(7));
    assert_eq!(
        (flow.status().as_str(), flow.dispatched()),
        ("started", vec!["d"])
    );
    assert_eq!(
        flow.work["d"].0["runner"],
        json!({ "name": "r-1", "labels": { "gpu": "1" } })
    );
    assert_eq!(c.get("runner"), None);
    flow.finish("d", json!("done"));
    assert_eq!(
        (flow.status().as_str(), flow.status),
        ("finished", Status::Completed)
    );
    let results = json!({ "a": {"frames": 250}, "b": null, "c": 7, "d": "done" });
    let view = flow.view();
    assert_eq!(view["flow"]["results"], results);
    assert_eq!(
        (&view["name"], &view["user"], &view["labels"]["team"]),
        (&json!("diamond"), &json!("ann"), &json!("media"))
    );
}

/// Requirements: F4.
#[test]
fn failed_job_does_not_stop_the_jobs_that_do_not_follow_it() {
    let mut flow = Harness::submitted(DIAMOND);
    flow.fail("b");
    assert_eq!(
        (flow.status().as_str(), flow.dispatched()),
        ("started", vec!["a"])
    );
    flow.finish("a", json!({ "frames": 1 }));
    flow.finish("c", json!(7));
    assert_eq!(
        (flow.status().as_str(), flow.status),
        ("error", Status::Failed)
    );
    assert_eq!(flow.jobs(), ["finished", "error", "finished", "error"]);
    let view = flow.view();
    assert_eq!(
        view["graph"][1]["failure"],
        json!({ "code": "exit_1", "message": "no such file" })
    );
    assert_eq!(view["failure"]["step"], "b");
}

/// Requirements: F4.
#[test]
fn jobs_that_follow_a_failed_job_end_with_it_and_wait_again_after_a_retry() {
    let mut flow = Harness::submitted(
        "
jobs:
  - { id: a, type: t, script: s }
  - { id: b, type: t, script: s, prerequisites: a }
  - { id: c, type: t, script: s, dependencies: b }
  - { id: other, type: t, script: s }
",
    );

    flow.fail("a");
    assert_eq!(flow.status(), "started", "another job is in progress");
    assert_eq!(flow.jobs(), ["error", "error", "error", "started"]);
    let failure = |job: usize| flow.view()["graph"][job]["failure"].clone();
    assert_eq!(failure(0)["code"], "exit_1");
    let because_of = |job: &str| {
        let message = format!("the job cannot start, because the job \"{job}\" has failed");
        json!({ "code": "prerequisite_failed", "message": message })
    };
    assert_eq!(failure(1), because_of("a"));
    assert_eq!(failure(2), because_of("b"));
    assert_eq!(failure(3), Value::Null);

    flow.finish("other", Value::Null);
    assert_eq!(flow.status(), "error");
    assert_eq!(flow.jobs(), ["error", "error", "error", "finished"]);

    flow.signal(RETRY, Value::Null).unwrap();
    let waits = "waiting_for_prerequisites";
    assert_eq!(flow.jobs(), ["started", waits, waits, "finished"]);
    assert_eq!(flow.view()["graph"][1]["failure"], Value::Null);
    flow.finish("a", Value::Null);
    flow.finish("b", Value::Null);
    flow.finish("c", Value::Null);
    assert_eq!(flow.status(), "finished");
}

/// Requirements: F4.
#[test]
fn retry_executes_the_failed_jobs_again_under_new_keys() {
    let mut flow = Harness::submitted(DIAMOND);
    assert_eq!(
        flow.signal(RETRY, Value::Null),
        Err("no job has failed".to_owned())
    );
    flow.finish("a", json!({ "frames": 1 }));
    flow.finish("c", json!(7));
    flow.fail("b");
    flow.signal(RETRY, Value::Null).unwrap();
    assert_eq!(
        (flow.status().as_str(), flow.status),
        ("started", Status::Running)
    );
    assert_eq!((flow.dispatched(), flow.work["b"].1), (vec!["b"], 1));
    assert_eq!(flow.view()["graph"][1]["failure"], Value::Null);
    flow.finish("b", json!(2));
    flow.finish("d", json!(3));
    assert_eq!(flow.status, Status::Completed);
    assert_eq!(flow.view()["flow"]["results"]["b"], 2);
}

/// Requirements: F4.
#[test]
fn rerun_executes_a_job_and_all_that_follow_it_again() {
    let mut flow = Harness::submitted(DIAMOND);
    flow.finish("a", json!({ "frames": 1 }));
    flow.finish("b", json!(2));
    let rerun = |job: &str| json!({ "job": job });
    let running = flow.signal(RERUN, rerun("a")).unwrap_err();
    assert!(running.contains("job \"c\" has not ended"), "{running}");
    flow.finish("c", json!(7));
    flow.finish("d", json!(8));
    assert_eq!(
        flow.signal(RERUN, rerun("e")),
        Err("the flow has no job \"e\"".to_owned())
    );
    flow.signal(RERUN, rerun("a")).unwrap();
    assert_eq!(
        flow.jobs(),
        [
            "started",
            "finished",
            "waiting_for_prerequisites",
            "waiting_for_prerequisites"
        ]
    );
    assert_eq!(flow.view()["flow"]["results"], json!({ "b": 2 }));
    assert_eq!((flow.dispatched(), flow.work["a"].1), (vec!["a"], 1));
    flow.finish("a", json!({ "frames": 2 }));
    assert_eq!(
        (
            &flow.work["c"].0["results"]["a"]["frames"],
            flow.work["c"].1
        ),
        (&json!(2), 1)
    );
    flow.finish("c", json!(9));
    flow.finish("d", json!(10));
    assert_eq!(flow.status, Status::Completed);
}

#[test]
fn cancelled_flow_keeps_its_results_and_can_be_retried() {
    let mut flow = Harness::submitted(DIAMOND);
    flow.finish("a", json!({ "frames": 1 }));
    flow.apply(&ProgramInput::Cancel {
        reason: "no longer needed",
    })
    .unwrap();
    assert_eq!(
        (flow.status().as_str(), flow.status),
        ("error", Status::Cancelled)
    );
    assert_eq!(flow.jobs(), ["finished", "error", "error", "error"]);
    assert_eq!(flow.timers, Vec::<String>::new());
    flow.work.clear();
    flow.signal(RETRY, Value::Null).unwrap();
    assert_eq!(
        (flow.status, flow.dispatched()),
        (Status::Running, vec!["b", "c"])
    );
    flow.finish("b", Value::Null);
    flow.finish("c", Value::Null);
    flow.finish("d", Value::Null);
    assert_eq!(flow.status, Status::Completed);
}

#[test]
fn job_that_times_out_fails_and_its_late_result_changes_nothing() {
    let mut flow = Harness::submitted(DIAMOND);
    flow.apply(&ProgramInput::Timer { name: "b" }).unwrap();
    assert_eq!(flow.view()["graph"][1]["failure"]["code"], "timeout");
    flow.finish("a", json!({ "frames": 1 }));
    flow.finish("c", Value::Null);
    assert_eq!(flow.status, Status::Failed);
    flow.finish("b", json!("late"));
    assert_eq!(
        (flow.status, flow.jobs()[1].as_str()),
        (Status::Failed, "error")
    );
    flow.signal(RETRY, Value::Null).unwrap();
    assert_eq!((flow.dispatched(), flow.work["b"].1), (vec!["b"], 1));
}

#[test]
fn foreach_job_is_executed_again_as_a_whole() {
    let mut flow = Harness::submitted(
        "jobs:\n  - { id: a, type: t, script: s }\n  - { id: e, type: t, script: s, dependencies: a, foreach: { in: results.a, as: n }, args: =n }",
    );
    flow.finish("a", json!([5, 6]));
    assert_eq!(flow.dispatched(), ["e[0]", "e[1]"]);
    flow.finish("e[0]", json!(50));
    flow.fail("e[1]");
    assert_eq!(flow.status, Status::Failed);
    flow.signal(RETRY, Value::Null).unwrap();
    assert_eq!(
        (flow.dispatched(), flow.work["e[0]"].1),
        (vec!["e[0]", "e[1]"], 1)
    );
    flow.finish("e[0]", json!(51));
    flow.finish("e[1]", json!(61));
    assert_eq!(flow.view()["flow"]["results"]["e"], json!([51, 61]));
}

#[test]
fn flow_timeout_ends_a_flow_and_begins_again_with_a_retry() {
    let mut flow = Harness::submitted("timeout: 1h\njobs: [{ id: a, type: t, script: s }]");
    assert_eq!(flow.timers, ["saga"]);
    flow.apply(&ProgramInput::Timer { name: "saga" }).unwrap();
    assert_eq!(
        (flow.status, flow.jobs()),
        (Status::Failed, vec!["error".to_owned()])
    );
    flow.timers.clear();
    flow.signal(RETRY, Value::Null).unwrap();
    assert_eq!(
        (flow.status, &flow.timers[..]),
        (Status::Running, &["saga".to_owned()][..])
    );
}

#[test]
fn repeated_submission_has_no_effect_and_another_content_is_rejected() {
    let mut flow = Harness::submitted(DIAMOND);
    let again = flow.signal(SUBMIT, json!({ "source": DIAMOND }));
    assert_eq!(again, Err("the flow exists".to_owned()));
    let other = flow.signal(
        SUBMIT,
        json!({ "source": "jobs: [{ id: a, type: t, script: s }]" }),
    );
    assert_eq!(
        other,
        Err("a flow with this id and another content exists".to_owned())
    );
}

#[test]
fn results_that_are_too_large_fail_their_job() {
    let mut flow = Harness::submitted(
        "jobs: [{ id: a, type: t, script: s }, { id: b, type: t, script: s }, { id: c, type: t, script: s, prerequisites: b }]",
    );
    flow.finish("a", json!("x".repeat(MAX_PAYLOAD_BYTES / 2)));
    flow.finish("b", json!("x".repeat(MAX_PAYLOAD_BYTES / 2)));
    assert_eq!(flow.status, Status::Failed);
    assert_eq!(
        flow.view()["graph"][1]["failure"]["code"],
        "result_too_large"
    );
    flow.signal(RETRY, Value::Null).unwrap();
    flow.finish("b", json!("small"));
    flow.finish("c", Value::Null);
    assert_eq!(flow.status, Status::Completed);
}

#[test]
fn result_that_the_state_cannot_contain_fails_its_job() {
    let text = "jobs: [{ id: a, type: t, script: s }, { id: b, type: t, script: s }]";
    // Smaller than the limit as JSON, and larger than the state as MessagePack.
    let floats = json!(vec![0.5; MAX_PAYLOAD_BYTES / 8]);
    let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
    for (payload, code) in [(floats, "invalid_result"), (deep, "invalid_result")] {
        let mut flow = Harness::submitted(text);
        flow.finish("a", payload);
        flow.finish("b", json!(7));
        assert_eq!(flow.status, Status::Failed);
        assert_eq!(flow.view()["graph"][0]["failure"]["code"], code);
        flow.signal(RETRY, Value::Null).unwrap();
        flow.finish("a", json!("small"));
        assert_eq!(flow.status, Status::Completed);
    }
}

#[test]
fn failures_of_all_jobs_have_space_in_the_state() {
    let job = |number: usize| json!({ "id": format!("j{number}"), "type": "t", "script": "s" });
    let flow = json!({ "jobs": (0..400).map(job).collect::<Vec<_>>() });
    let mut flow = Harness::submitted(&flow.to_string());
    for number in 0..400 {
        flow.fail_with(
            &format!("j{number}"),
            &"ä".repeat(4000),
            json!("x".repeat(MAX_PAYLOAD_BYTES)),
        );
    }
    assert_eq!(flow.status, Status::Failed);
    let size = flow.state.as_ref().unwrap().len();
    assert!(size < 2 * MAX_PAYLOAD_BYTES, "{size} bytes");
    let failure = flow.view()["graph"][399]["failure"].clone();
    let message = failure["message"].as_str().unwrap();
    assert!(
        failure["code"] == "exit_1" && message.len() > 64 && message.ends_with("ä…"),
        "{failure}"
    );
}

#[test]
fn text_and_results_at_their_limits_are_stored_together() {
    let script = "s".repeat(MAX_FLOW_BYTES - 200);
    let flow = json!({ "jobs": [{ "id": "a", "type": "t", "script": script }] });
    let mut flow = Harness::submitted(&flow.to_string());
    flow.finish("a", json!("x".repeat(MAX_PAYLOAD_BYTES / 2)));
    assert_eq!(flow.status, Status::Completed);
}

#[test]
fn invalid_flow_is_reported_with_its_locations() {
    let report = |text: &str| {
        let found = compile(text, "flow.yaml").expect_err("the flow is invalid");
        found
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let large = "x".repeat(MAX_FLOW_BYTES + 1);
    let texts = [
        "jobs: []",
        "jobs:\n  - { id: a, type: t }\n  - { id: b, typ: t, script: s }",
        "jobs:\n  - { id: a, type: t, script: s, dependencies: c }\n  - { id: b, type: t, script: s, prerequisites: [a, aa] }\n  - { id: c, type: t, script: s, dependencies: [b] }",
        "jobs:\n  - { id: a, type: t, script: s, dependencies: b }\n  - { id: b, type: t, script: s, dependencies: a }",
        "jobs:\n  - { id: a, type: t, script: s }\n  - { id: a, type: t, script: s, args: =vars.x, timeout: fast }",
        "jobs:\n  - { id: a, type: t, script: s, args: =vars.x }",
        "{\"jobs\": [\n {\"id\": \"a\", \"type\": \"t\", \"script\": 5, \"retry\": {\"max_attempts\": 0}}]}",
        &large,
        "- a",
    ];
    insta::assert_snapshot!(texts.map(report).join("\n---\n"));
}

#[test]
fn documented_flows_compile() {
    let page = include_str!("../../../../docs/flows.md");
    let example = page
        .split("```yaml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    for text in [
        example,
        include_str!("../../../../examples/media/flow.yaml"),
    ] {
        let flow = compile(text, "flow.yaml").unwrap_or_else(|found| panic!("{found:?}"));
        assert!(flow.spec().jobs.len() >= 3);
    }
}
