//! Sagas that begin others.

use orlog_engine::{Decision, decide_undefined};
use orlog_model::{
    Commit, End, Ended, Fact, Failure, Input, MAX_DEPTH, Parent, Start, Status, Verdict, Work, WorkKind,
    WorkflowCommand, WorkflowOrder,
};
use orlog_program::{Fault, Reaction, Stimulus};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Puppet, Stage, applied, at, event, id, key, kind, name, named, step, with_work};

const WORK: Uuid = Uuid::from_u128(77);

fn puppet() -> Puppet {
    Puppet::new(|stimulus| {
        let fact = || vec![Work::Fact(Fact { kind: kind("Fitted"), data: json!({ "laptop": 3 }) })];
        Ok(match stimulus {
            Stimulus::Event(event) => match event.kind.as_str() {
                "Begun" | "Placed" if event.data == json!("bad") => {
                    return Err(Fault::Schema("no laptop".to_owned()));
                }
                "Begun" => applied(step(Status::Running)),
                "Placed" => with_work(Status::Running, vec![child()]),
                "Done" => with_work(Status::Completed, fact()),
                "Broke" => with_work(Status::Failed, fact()),
                _ => Reaction::Ignored("unknown".into()),
            },
            Stimulus::Outcome { verdict, .. } => match verdict {
                Verdict::Succeeded { event, payload } => applied(orlog_model::Transition {
                    note: format!("{event:?} {payload}"),
                    ..step(Status::Running)
                }),
                Verdict::Failed { failure, .. } => {
                    applied(orlog_model::Transition { note: failure.code.clone(), ..step(Status::Failed) })
                }
                Verdict::Accepted | Verdict::TimedOut { .. } => Reaction::Ignored("no end".into()),
            },
            Stimulus::Cancel { reason: "past the pivot" } => {
                Reaction::Refused("past the point of no return".into())
            }
            Stimulus::Cancel { .. } => applied(step(Status::Cancelled)),
            _ => Reaction::Ignored("nothing".into()),
        })
    })
}

fn child() -> Work {
    let key = named("equipment", "e-1");
    Work::Start(Start {
        tag: name("kit"),
        saga: key.saga,
        correlation: key.correlation,
        event: None,
        data: json!({}),
    })
}

fn order(number: &str, order: WorkflowOrder) -> Input {
    Input::Workflow(WorkflowCommand { id: id(number), at: at(600), trace: None, order })
}

fn begin(event: Option<&str>, depth: u16, data: serde_json::Value) -> Input {
    let parent = Parent { key: named("trip", "t-1"), work_id: WORK, depth };
    order("start", WorkflowOrder::Start { parent, event: event.map(kind), data })
}

fn stop(from: &str, reason: &str) -> Input {
    order("stop", WorkflowOrder::Stop { from: named("trip", from), reason: reason.to_owned() })
}

/// What a commit tells the parent.
#[track_caller]
fn told(commit: &Commit) -> Ended {
    let ends = commit.work.iter().filter_map(|item| match &item.work {
        Work::End(End { to, ended }) if *to == named("trip", "t-1") => Some(ended.clone()),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    let [ended] = &ends[..] else { panic!("{:?}", commit.work) };
    ended.clone()
}

#[track_caller]
fn refusal(commit: &Commit) -> (String, String) {
    let Failure { code, message } = told(commit).failure.unwrap();
    (code, message)
}

#[test]
fn a_child_begins_with_its_first_start_event_or_the_one_named_and_knows_its_parent() {
    let program = puppet();
    for (named_event, label) in [(None, "start"), (Some("Placed"), "start")] {
        let mut stage = Stage::empty(&program);
        let commit = stage.commit(&begin(named_event, 1, json!({})));
        let instance = stage.now_instance();
        assert_eq!(instance.parent.as_ref().unwrap().work_id, WORK);
        assert_eq!((commit.applied, commit.history.unwrap().label.as_str()), (Some(id("start")), label));
        assert_eq!(instance.open.len(), usize::from(named_event.is_some()));
    }
}

#[test]
fn the_same_order_again_changes_nothing_and_another_is_told_that_the_instance_exists() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    stage.commit(&begin(None, 1, json!({})));
    assert_eq!(stage.ignored(&begin(None, 1, json!({}))), "it was begun by this very order");
    let mut stage = Stage::begun(&program);
    let before = stage.instance.clone();
    let commit = stage.commit(&begin(None, 1, json!({})));
    assert_eq!(refusal(&commit).0, "already_exists");
    assert_eq!((commit.instance, commit.applied), (None, Some(id("start"))));
    assert_eq!(stage.instance, before);
}

#[test]
fn what_cannot_begin_is_told_to_the_parent_at_once() {
    let program = puppet();
    let stage = || Stage::empty(&program);
    let commit = stage().commit(&begin(None, MAX_DEPTH + 1, json!({})));
    let why = "17 sagas stand above it, the limit is 16".to_owned();
    assert_eq!(refusal(&commit), ("too_deep".to_owned(), why));
    assert!(commit.instance.is_none());
    assert_eq!(refusal(&stage().commit(&begin(Some("Paid"), 1, json!({})))).0, "no_start_event");
    let (code, message) = refusal(&stage().commit(&begin(None, 1, json!("bad"))));
    assert_eq!((code.as_str(), message.as_str()), ("not_begun", "no laptop"));
    let again = stage().commit(&begin(None, MAX_DEPTH + 1, json!({})));
    assert_eq!(again.work[0].id, commit.work[0].id, "told twice under one id");
    let decision = decide_undefined(&key(), &[], &begin(None, 1, json!({})), at(1)).unwrap();
    let Decision::Commit(commit) = decision else { panic!("{decision:?}") };
    assert_eq!(refusal(&commit).0, "no_such_saga");
}

#[test]
fn a_child_that_ends_tells_its_parent_how_once() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    stage.commit(&begin(None, 1, json!({})));
    let ended = told(&stage.commit(&event("Done", "d")));
    let expected =
        Ended { work_id: WORK, failure: None, event: Some(kind("Fitted")), data: json!({ "laptop": 3 }) };
    assert_eq!(ended, expected);
    assert!(stage.commit(&event("Broke", "x")).work.iter().all(|item| item.work.kind() != WorkKind::Saga));
    let mut stage = Stage::empty(&program);
    stage.commit(&begin(None, 1, json!({})));
    assert_eq!(told(&stage.commit(&event("Broke", "x"))).failure.unwrap().code, "child_failed");
    let mut stage = Stage::begun(&program);
    assert_eq!(stage.commit(&event("Done", "d")).work.len(), 1, "nobody began it");
}

#[test]
fn the_end_of_a_child_is_the_outcome_of_the_work_that_began_it() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    let work_id = stage.commit(&event("Placed", "p")).work[0].id;
    let end = |failure, work_id| {
        let ended = Ended { work_id, failure, event: Some(kind("Fitted")), data: json!(5) };
        order("ended", WorkflowOrder::Ended(ended))
    };
    assert_eq!(stage.ignored(&end(None, WORK)), "nothing waits for the end of this saga");
    assert_eq!(Stage::empty(&program).ignored(&end(None, WORK)), "nothing waits for the end of this saga");
    stage.instance.as_mut().unwrap().paused = true;
    assert_eq!(stage.commit(&end(None, work_id)).hold, Some(end(None, work_id)));
    stage.instance.as_mut().unwrap().paused = false;
    let commit = stage.commit(&end(None, work_id));
    assert_eq!(commit.history.unwrap().note, "Some(\"Fitted\") 5");
    assert!(commit.instance.unwrap().open.is_empty());
    assert_eq!(stage.ignored(&end(None, work_id)), "nothing waits for the end of this saga");
    let mut stage = Stage::empty(&program);
    let work_id = stage.commit(&event("Placed", "p")).work[0].id;
    let failure = Failure { code: "child_failed".to_owned(), message: "no".to_owned() };
    let commit = stage.commit(&end(Some(failure), work_id));
    assert_eq!(commit.history.unwrap().note, "child_failed");
}

#[test]
fn only_the_parent_stops_a_child_and_only_while_that_is_possible() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    assert!(stage.commit(&stop("t-1", "given up")).hold.is_some(), "it overtook the start and is kept");
    stage.commit(&begin(None, 1, json!({})));
    assert_eq!(stage.ignored(&stop("t-2", "x")), "it was not begun by who wants it stopped");
    assert!(stage.refused(&stop("t-1", "past the pivot")).contains("point of no return"));
    let commit = stage.commit(&stop("t-1", "given up"));
    assert_eq!(
        (told(&commit).failure.unwrap().code.as_str(), commit.applied),
        ("child_cancelled", Some(id("stop")))
    );
    assert_eq!(stage.ignored(&stop("t-1", "given up")), "it has ended");
}

#[test]
fn an_instance_that_has_ended_still_hears_of_a_child_that_completes_late() {
    let program = puppet();
    let mut stage = Stage::empty(&program);
    stage.commit(&event("Placed", "p"));
    let commit = stage.commit(&event("Broke", "x"));
    assert_eq!(commit.instance.unwrap().open.len(), 1);
}
