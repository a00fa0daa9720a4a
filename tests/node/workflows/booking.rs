//! Handlers on a node: their events, facts and failures, with the example.

#[path = "../../../examples/typed/booking.rs"]
mod example;

use std::sync::Arc;

use orlog::AppOverrides;
use orlog::workflow::{Identifier as _, NodeParts, Trigger as _, Workflow, start_event};
use orlog_actors::CommitObserver;
use orlog_effect::{FunctionProvider, Policy, Reply};
use orlog_model::{Commit, EventId, EventType, Timestamp, Work};
use parking_lot::Mutex;
use serde_json::{Value, json};

use self::example::{BookingId, Charge, SeatMap, SeatRequested};
use crate::harness::node::{Node, NodeBuilder};

/// Facts of all commits, in order.
#[derive(Default)]
struct Facts(Mutex<Vec<(String, Value)>>);

impl CommitObserver for Facts {
    fn on_commit(&self, commit: &Commit) {
        for item in &commit.work {
            if let Work::Fact(fact) = &item.work {
                self.0
                    .lock()
                    .push((fact.kind.to_string(), fact.data.clone()));
            }
        }
    }
}

/// Starts a node with the example, whose mail server answers with this event.
async fn node(seats: &SeatMap, mail_event: &'static str) -> (Node, Arc<Facts>) {
    let workflow = example::workflow(seats).unwrap().on_node_by_event();
    let workflow = workflow
        .completed_event("Booked")
        .failed_event("BookingFailed");
    let (facts, mut overrides) = (
        Arc::<Facts>::default(),
        AppOverrides::workflows([workflow]).unwrap(),
    );
    overrides.observer = Some(Arc::clone(&facts) as Arc<dyn CommitObserver>);
    let mail = FunctionProvider::new().effect("mail.ticket", move |call| async move {
        let event = EventType::new(mail_event).unwrap();
        Ok(Reply::with_event(
            event,
            json!({ "seat": call.payload["seat"] }),
        ))
    });
    let node = NodeBuilder::new()
        .overrides(|own| *own = overrides)
        .upstream(mail.upstream("mail", Policy::in_process()));
    (node.start().await, facts)
}

fn requested(booking: &str, card: &str) -> SeatRequested {
    SeatRequested {
        booking: booking.to_owned(),
        seat: 7,
        card: card.to_owned(),
    }
}

async fn book(node: &Node, card: &str) -> Value {
    let id = EventId::new("e-1").unwrap();
    let event = start_event(
        &requested("b-1", card),
        id,
        "urn:test",
        node.app.clock.now(),
    )
    .unwrap();
    node.app.publish(vec![event]).await.unwrap();
    let is_over = |view: &Value| view["status"] == "completed" || view["status"] == "failed";
    node.until("", "/v1/sagas/booking/b-1", is_over).await
}

/// Requirements: T1, T2, T3.
#[tokio::test]
async fn events_of_steps_and_of_the_workflow_are_published() {
    let seats = SeatMap::default();
    let (node, facts) = node(&seats, "TicketSent").await;
    let view = book(&node, "4711").await;
    // The last commit is readable before its observer has seen it.
    node.stop().await;
    assert_eq!(
        view["result"],
        json!({ "event": "Booked", "data": { "seat": 7 } })
    );
    assert_eq!(
        facts.0.lock().clone(),
        [
            (
                "SeatReserved".to_owned(),
                json!({ "seat": 7, "card": "4711" })
            ),
            (
                "Paid".to_owned(),
                json!({ "seat": 7, "receipt": "receipt for 4711" })
            ),
            ("PointsEarned".to_owned(), json!({ "card": "4711" })),
            ("TicketSent".to_owned(), json!({ "seat": 7 })),
            ("Booked".to_owned(), json!({ "seat": 7 })),
        ]
    );
    assert_eq!(seats.lock().iter().copied().collect::<Vec<_>>(), [(7, 1)]);
}

/// Requirements: T2, T3, T5.
#[tokio::test]
async fn failure_event_is_published_and_the_failed_event_names_the_step() {
    let seats = SeatMap::default();
    let (node, facts) = node(&seats, "TicketSent").await;
    let view = book(&node, "0815").await;
    node.stop().await;
    assert_eq!(
        (&view["status"], &view["state"]["failure"]["step"]),
        (&json!("failed"), &json!("charge"))
    );
    let failed =
        json!({ "step": "charge", "code": "CardRejected", "message": "the card is expired" });
    assert_eq!(
        facts.0.lock()[1..],
        [
            (
                "CardRejected".to_owned(),
                json!({ "reason": "the card is expired" })
            ),
            ("BookingFailed".to_owned(), failed),
        ]
    );
    assert!(seats.lock().is_empty());
}

/// Requirements: T4.
#[tokio::test]
async fn answer_with_another_event_is_a_contract_violation() {
    let (node, _) = node(&SeatMap::default(), "TicketLost").await;
    let view = book(&node, "4711").await;
    assert_eq!(
        view["state"]["failure"],
        json!({
            "step": "send", "code": "contract_violation", "message": "step \"send\" was answered with TicketLost, not TicketSent"
        })
    );
    node.stop().await;
}

/// Requirements: T1.
#[tokio::test]
async fn identifier_round_trips_and_an_invalid_one_starts_nothing() {
    let trigger = requested("b-12", "1");
    assert_eq!(
        BookingId::from_text(&trigger.id().text()),
        Ok(BookingId(12))
    );
    let event = start_event(
        &trigger,
        EventId::new("e-1").unwrap(),
        "urn:test",
        Timestamp::from_millis(0),
    )
    .unwrap();
    assert_eq!(event.correlation.as_ref().map(AsRef::as_ref), Some("b-12"));
    let (node, _) = node(&SeatMap::default(), "TicketSent").await;
    let response = node
        .post("/v1/sagas/booking", &json!(requested("seven", "1")))
        .await;
    assert!(response.status.is_client_error());
    assert!(
        response.text.contains(
            "the identifier \\\"seven\\\" of SeatRequested is invalid: an identifier is `b-` and a number"
        ),
        "{}",
        response.text
    );
    node.stop().await;
}

/// Requirements: T2.
#[test]
fn handler_of_two_steps_or_two_workflows_is_rejected_and_the_mapping_lists_each() {
    let booking = || {
        example::workflow(&SeatMap::default())
            .unwrap()
            .on_node_by_event()
    };
    let steps = NodeParts::of([booking()]).unwrap().steps;
    let steps: Vec<_> = steps
        .iter()
        .map(|(effect, step)| format!("{effect}: {step}"))
        .collect();
    assert_eq!(
        steps,
        [
            "bank.charge: step \"charge\" of workflow \"booking\"",
            "booking.charge.undo: step \"charge\" of workflow \"booking\"",
            "booking.reserve.undo: step \"reserve\" of workflow \"booking\"",
            "house.reserve: step \"reserve\" of workflow \"booking\"",
        ]
    );
    let other = Workflow::builder("other")
        .handle("pay", Charge)
        .build()
        .unwrap();
    let error = NodeParts::of([booking(), other.on_node()]).err().unwrap();
    assert_eq!(
        error.problems,
        [
            "workflow \"other\": the effect bank.charge is performed by step \"charge\" of workflow \"booking\" and by step \"pay\" of \
          workflow \"other\"; a function performs one step, give each its own effect"
        ]
    );
    let twice = Workflow::builder("twice")
        .fork(|fork| {
            fork.branch_with("a", |branch| branch.handle("a", Charge))
                .branch_with("b", |branch| branch.handle("b", Charge))
        })
        .join("join", |(paid, _)| async move { Ok(paid) })
        .build()
        .unwrap();
    let error = NodeParts::of([twice.on_node()]).err().unwrap().to_string();
    assert!(
        error.contains(
            "performed by step \"a\" of workflow \"twice\" and by step \"b\" of workflow \"twice\""
        ),
        "{error}"
    );
}
