//! Publishes the result of an effect: the commit that receives the result stores it in the outbox.
//!
//! A fact of the same commit carries the result, so that it needs no row of its own, and no message
//! of its own if the data of the fact is the payload of the result. A result that is ignored is not
//! published: the work was requested again, or its result is already stored.

use orlog_model::{
    Commit, EffectName, Fact, Input, InstanceKey, Priority, ResultEvent, Timestamp, Work, WorkItem,
    WorkOutcome, WorkResult,
};
use serde_json::Value;

use crate::decision::Decision;

/// Adds the result to the decision about it. Changes nothing if the input is no result that is
/// published.
pub fn publish_result(key: &InstanceKey, now: Timestamp, input: &Input, decision: &mut Decision) {
    let Input::WorkResult(result) = input else {
        return;
    };

    // An ignored result was requested again, or is already stored.
    let Decision::Commit(commit) = decision else {
        return;
    };
    if !result.publishes {
        return;
    }

    let Ok(effect) = EffectName::new(result.outbox_key.destination.name.as_str()) else {
        return;
    };

    let payload = result.outcome.payload();
    match carrier(commit, payload) {
        Some(fact) => {
            // The payload is stored once. A reader takes it from the data of the fact.
            let has_payload = payload == Some(&fact.data);
            fact.result = Some(Box::new(event(result, effect, has_payload)));
        }
        None => commit
            .work
            .push(item(key, now, input, result, event(result, effect, false))),
    }
}

/// Returns the fact whose data is the payload, or else the first fact.
fn carrier<'a>(commit: &'a mut Commit, payload: Option<&Value>) -> Option<&'a mut Fact> {
    let work = &mut commit.work;
    let with_payload = work
        .iter()
        .position(|item| as_fact(&item.work).is_some_and(|fact| Some(&fact.data) == payload));
    let index =
        with_payload.or_else(|| work.iter().position(|item| as_fact(&item.work).is_some()))?;

    match &mut work[index].work {
        Work::Fact(fact) => Some(fact),
        _ => None,
    }
}

fn as_fact(work: &Work) -> Option<&Fact> {
    match work {
        Work::Fact(fact) => Some(fact),
        _ => None,
    }
}

fn event(result: &WorkResult, effect: EffectName, has_payload_of_fact: bool) -> ResultEvent {
    ResultEvent {
        work_id: result.work_id,
        requested_at: result.requested_at,
        effect,
        outcome: if has_payload_of_fact {
            without_payload(&result.outcome)
        } else {
            result.outcome.clone()
        },
        has_payload_of_fact,
        attempts: result.attempts,
        attempt_log: result.attempt_log.clone(),
    }
}

fn without_payload(outcome: &WorkOutcome) -> WorkOutcome {
    match outcome {
        WorkOutcome::Succeeded {
            event,
            schema_version,
            ..
        } => WorkOutcome::Succeeded {
            event: event.clone(),
            payload: Value::Null,
            schema_version: *schema_version,
        },
        WorkOutcome::Failed { event, failure, .. } => WorkOutcome::Failed {
            event: event.clone(),
            failure: failure.clone(),
            payload: Value::Null,
        },
        WorkOutcome::Accepted | WorkOutcome::TimedOut { .. } => outcome.clone(),
    }
}

fn item(
    key: &InstanceKey,
    now: Timestamp,
    input: &Input,
    result: &WorkResult,
    event: ResultEvent,
) -> WorkItem {
    WorkItem {
        id: event.id(),
        instance: key.clone(),
        work: Work::PublishResult(Box::new(event)),
        deadline: None,
        causation: input.id(),
        trace: result.trace.clone(),
        created_at: now,
        priority: Priority::Normal,
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Destination, EventType, Failure, OutboxKey, TenantId, WorkKind};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(9);

    fn key() -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: "order".parse().unwrap(),
            correlation: "o-1".parse().unwrap(),
        }
    }

    fn result(outcome: WorkOutcome) -> Input {
        let destination = Destination {
            kind: WorkKind::Effect,
            tenant: key().tenant,
            name: "payments.charge".into(),
            priority: Priority::Normal,
        };
        Input::WorkResult(WorkResult {
            work_id: Uuid::from_u128(7),
            outbox_key: OutboxKey {
                destination,
                sequence: 1,
            },
            outcome,
            requested_at: Timestamp::from_millis(1),
            attempts: 2,
            at: Timestamp::from_millis(5),
            facts: Vec::new(),
            publishes: true,
            trace: None,
            attempt_log: None,
        })
    }

    fn charged() -> WorkOutcome {
        WorkOutcome::succeeded(None, json!({ "receipt": 3 }))
    }

    /// Returns the work of a commit with these facts after the result was added.
    fn published(input: &Input, facts: Vec<Fact>) -> Vec<WorkItem> {
        let fact = |fact| WorkItem {
            work: Work::Fact(fact),
            ..item(&key(), NOW, input, &any(), of(&any()))
        };
        let work = facts.into_iter().map(fact).collect();
        let mut decision = Decision::Commit(Box::new(Commit {
            work,
            ..Commit::empty(key(), NOW)
        }));
        publish_result(&key(), NOW, input, &mut decision);
        let Decision::Commit(commit) = decision else {
            panic!("{decision:?}")
        };
        commit.work
    }

    fn any() -> WorkResult {
        let Input::WorkResult(result) = result(charged()) else {
            unreachable!("it is a result")
        };
        result
    }

    fn of(result: &WorkResult) -> ResultEvent {
        event(result, EffectName::new("payments.charge").unwrap(), false)
    }

    #[test]
    fn first_fact_carries_the_result_and_its_payload() {
        let fact = |kind: &str, data: Value| Fact::new(EventType::new(kind).unwrap(), data);
        let facts = vec![
            fact("Charged", json!({ "receipt": 3 })),
            fact("OrderCompleted", json!({})),
        ];
        let work = published(&result(charged()), facts);
        let carried = |item: &WorkItem| match &item.work {
            Work::Fact(fact) => fact.result.as_deref().cloned(),
            other => panic!("{other:?}"),
        };
        let results: Vec<_> = work.iter().map(carried).collect();
        let [Some(event), None] = &results[..] else {
            panic!("{results:?}")
        };
        assert_eq!(
            (event.has_payload_of_fact, event.outcome.payload()),
            (true, Some(&Value::Null))
        );

        let other_data = vec![fact("Charged", json!({ "order": "o-1" }))];
        let work = published(&result(charged()), other_data);
        let Work::Fact(Fact {
            result: Some(event),
            ..
        }) = &work[0].work
        else {
            panic!("{work:?}")
        };
        assert_eq!(
            (event.has_payload_of_fact, &event.outcome),
            (false, &charged())
        );
    }

    #[test]
    fn result_without_a_fact_has_a_row_of_its_own_and_a_stable_id() {
        let failure = Failure {
            code: "no_funds".to_owned(),
            message: "the card is empty".to_owned(),
        };
        let failed = result(WorkOutcome::TimedOut { failure });
        let work = published(&failed, Vec::new());
        let [
            WorkItem {
                id,
                work: Work::PublishResult(event),
                created_at,
                ..
            },
        ] = &work[..]
        else {
            panic!("{work:?}")
        };
        assert_eq!((*id, *created_at, event.attempts), (event.id(), NOW, 2));
        assert_eq!(
            published(&failed, Vec::new()),
            work,
            "a second delivery has the same row"
        );
        let again = ResultEvent {
            requested_at: Timestamp::from_millis(2),
            ..(**event).clone()
        };
        assert_ne!(
            again.id(),
            event.id(),
            "a second request under the same id has another result"
        );
    }

    #[test]
    fn ignored_and_unpublished_results_add_nothing() {
        let mut ignored = Decision::Ignore {
            reason: "stale".into(),
            cleanup: None,
        };
        publish_result(&key(), NOW, &result(charged()), &mut ignored);
        assert!(matches!(ignored, Decision::Ignore { cleanup: None, .. }));
        let stored = Input::WorkResult(WorkResult {
            publishes: false,
            ..any()
        });
        assert_eq!(published(&stored, Vec::new()), []);
    }
}
