//! Rolling change of the allowed tenants: a pod with the new list accepts events whose shards other pods own.

use std::collections::BTreeSet;

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::cluster::pods::Pods;
use crate::cluster::within;

const PODS: [&str; 3] = ["a", "b", "c"];
/// Tenants of the new list only; `big` is key-sharded.
const NEW_TENANTS: [&str; 9] = ["big", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"];
const ORDERS: usize = 3;
const NOTES: usize = 2;

/// Sets the list of the pods that start from now on.
fn allow(pods: &mut Pods, tenants: &[&str]) {
    let variables = [
        ("ORLOG_TENANTS__MODE", "allowlist".to_owned()),
        ("ORLOG_TENANTS__ALLOWED", tenants.join(",")),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    pods.variables.extend(variables);
}

async fn restart(pods: &mut Pods, name: &str) {
    pods.stop(name).await;
    pods.start(name).await;
    pods.until_spread().await;
}

/// Publishes an event of an order through a pod that must accept it.
async fn publish(pods: &Pods, pod: &str, tenant: &str, order: &str, kind: &str, note: usize) {
    let event = json!({
        "specversion": "1.0", "id": format!("{kind}-{order}-{note}"), "source": "urn:test", "type": kind,
        "data": { "orderId": order, "n": note },
    });
    let request = pods
        .ask(pod, "POST", "/v1/events")
        .header("content-type", "application/cloudevents+json")
        .header("x-tenant-id", tenant)
        .body(event.to_string());
    assert_eq!(request.send().await.unwrap().status(), 202, "{event}");
}

/// Returns the notes of an order from a pod; `None` if it has no instance.
async fn notes(pods: &Pods, pod: &str, tenant: &str, order: &str) -> Option<Vec<Value>> {
    let request = pods
        .ask(pod, "GET", &format!("/v1/sagas/order/{order}"))
        .header("x-tenant-id", tenant);
    let instance: Value = request.send().await.ok()?.json().await.ok()?;
    instance["state"]["vars"]["notes"].as_array().cloned()
}

/// Returns the number of messages that a pod did not apply because of its list.
async fn rejected(pods: &Pods, pod: &str) -> usize {
    let metrics = pods.metrics(pod).await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("orlog_events_rejected_total "));
    line.and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_change_of_the_allowed_tenants_applies_every_accepted_event_once() {
    let nats = NatsServer::start();
    within("the rolling change", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        allow(&mut pods, &["t0"]);
        pods.start_all(&PODS).await;

        let [first, others @ ..] = PODS;
        let all: Vec<_> = NEW_TENANTS.iter().copied().chain(["t0"]).collect();
        allow(&mut pods, &all);
        restart(&mut pods, first).await;

        let mut orders = Vec::new();
        for tenant in NEW_TENANTS {
            for number in 0..ORDERS {
                let order = format!("{tenant}-{number}");
                publish(&pods, first, tenant, &order, "OrderPlaced", 0).await;
                for note in 1..=NOTES {
                    publish(&pods, first, tenant, &order, "Noted", note).await;
                }
                orders.push((tenant, order));
            }
        }

        // Each event was applied by the updated pod, or rejected by one of the others.
        until("every event is read", async || {
            let mut read = 0;
            for (tenant, order) in &orders {
                let applied = notes(&pods, first, tenant, order).await;
                read += applied.map_or(0, |notes| 1 + notes.len());
            }
            let rejected_by_others = [
                rejected(&pods, others[0]).await,
                rejected(&pods, others[1]).await,
            ];
            assert_ne!(
                read,
                orders.len() * (1 + NOTES),
                "the others own shards of the new tenants"
            );
            read += rejected_by_others.iter().sum::<usize>();
            (read >= orders.len() * (1 + NOTES)).then_some(())
        })
        .await;
        for pod in others {
            restart(&mut pods, pod).await;
        }

        for (tenant, order) in &orders {
            let label = format!("the notes of {order}");
            let mut found = until(&label, async || {
                let notes = notes(&pods, first, tenant, order).await?;
                (notes.len() >= NOTES).then_some(notes)
            })
            .await;
            // Notes of the same millisecond have no order in the dead letters.
            found.sort_by_key(Value::as_u64);
            assert_eq!(found, [json!(1), json!(2)], "{order}: each note once");
        }

        let charges = until("the charge of each order", async || {
            let keys = pods.upstream.keys();
            (keys.len() == orders.len()).then_some(keys)
        })
        .await;
        let executed: BTreeSet<_> = charges.keys().map(|(_, order)| order.clone()).collect();
        let accepted: BTreeSet<_> = orders.into_iter().map(|(_, order)| order).collect();
        assert_eq!(executed, accepted);
        assert!(
            charges.values().all(|keys| keys.len() == 1),
            "an order started twice: {charges:?}"
        );
    })
    .await;
}
