//! Load of orders: many tenants, one of them key-sharded; the events of one order are sent in sequence.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::pods::{Pods, Urls};

const NOTES: usize = 5;
/// Maximum number of concurrent orders.
const AT_ONCE: usize = 12;
/// Pause of a sender of an endless load between two orders.
const ORDER_PAUSE: Duration = Duration::from_millis(400);
/// Delay between two attempts without a response.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Orders {
    pub(crate) count: usize,
    placed: watch::Receiver<usize>,
}

/// Returns the tenant of an order; every fourth order belongs to the key-sharded tenant.
fn tenant(order: usize) -> String {
    if order.is_multiple_of(4) {
        "big".to_owned()
    } else {
        format!("t{}", order % 11)
    }
}

impl Orders {
    /// Starts to place orders in the background.
    pub(crate) fn begin(pods: &Pods, count: usize) -> Self {
        let (sender, placed) = watch::channel(0);
        let (sender, permits) = (
            Arc::new(sender),
            Arc::new(tokio::sync::Semaphore::new(AT_ONCE)),
        );
        for order in 0..count {
            let (urls, client) = (Arc::clone(&pods.urls), pods.client.clone());
            let (sender, permits) = (Arc::clone(&sender), Arc::clone(&permits));
            tokio::spawn(async move {
                let _permit = permits.acquire_owned().await.unwrap();
                place(&client, &urls, order).await;
                sender.send_modify(|placed| *placed += 1);
            });
        }
        Self { count, placed }
    }

    /// Waits until all events of this many orders are accepted.
    pub(crate) async fn placed(&self, count: usize) {
        self.placed
            .clone()
            .wait_for(|placed| *placed >= count)
            .await
            .unwrap();
    }

    pub(crate) async fn all_placed(&self) {
        self.placed(self.count).await;
    }

    /// Waits until every order has ended, and checks the results.
    pub(crate) async fn check(&self, pods: &Pods) {
        for order in 0..self.count {
            let instance = ended(pods, order).await;
            let notes: Vec<u64> =
                serde_json::from_value(instance["state"]["vars"]["notes"].clone())
                    .unwrap_or_default();
            let expected: Vec<u64> = (1..=NOTES as u64).collect();
            assert_eq!(notes, expected, "order {order}: {instance:#}");
            assert_eq!(
                instance["status"], "completed",
                "order {order}: {instance:#}"
            );
        }
        let keys = pods.upstream.keys();
        let expected: BTreeSet<(String, String)> = (0..self.count)
            .flat_map(|order| {
                ["charge", "ship"].map(|effect| (effect.to_owned(), format!("o-{order}")))
            })
            .collect();
        assert_eq!(keys.keys().cloned().collect::<BTreeSet<_>>(), expected);
        for (effect, keys) in &keys {
            assert_eq!(keys.len(), 1, "{effect:?} was asked for under {keys:?}");
        }
    }
}

/// Load without a planned end.
pub(crate) struct EndlessOrders {
    next: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    senders: JoinSet<()>,
}

impl EndlessOrders {
    /// Starts to place orders in the background.
    pub(crate) fn begin(pods: &Pods) -> Self {
        let mut load = Self {
            next: Arc::default(),
            stopped: Arc::default(),
            senders: JoinSet::new(),
        };
        for _ in 0..AT_ONCE {
            let (urls, client) = (Arc::clone(&pods.urls), pods.client.clone());
            let (next, stopped) = (Arc::clone(&load.next), Arc::clone(&load.stopped));
            load.senders.spawn(async move {
                let mut pause = tokio::time::interval(ORDER_PAUSE);
                while !stopped.load(Ordering::SeqCst) {
                    place(&client, &urls, next.fetch_add(1, Ordering::SeqCst)).await;
                    pause.tick().await;
                }
            });
        }
        load
    }

    /// Waits until this many further orders have begun.
    pub(crate) async fn more_begun(&self, count: usize) {
        let target = self.next.load(Ordering::SeqCst) + count;
        let mut look = tokio::time::interval(PAUSE);
        while self.next.load(Ordering::SeqCst) < target {
            look.tick().await;
        }
    }

    /// Waits until all events of the orders that were begun are accepted.
    pub(crate) async fn stop(mut self) -> Orders {
        self.stopped.store(true, Ordering::SeqCst);
        while let Some(sender) = self.senders.join_next().await {
            sender.unwrap();
        }
        let count = self.next.load(Ordering::SeqCst);
        Orders {
            count,
            placed: watch::channel(count).1,
        }
    }
}

/// Sends the events of one order, each after the previous one was accepted.
async fn place(client: &reqwest::Client, urls: &Urls, order: usize) {
    send(client, urls, order, "OrderPlaced", 0).await;
    for note in 1..=NOTES {
        send(client, urls, order, "Noted", note).await;
    }
    send(client, urls, order, "Finished", 0).await;
}

/// Sends an event to one pod after another until one accepts it; its constant id makes repetitions
/// no-ops.
async fn send(client: &reqwest::Client, urls: &Urls, order: usize, kind: &str, note: usize) {
    let event = json!({
        "specversion": "1.0", "id": format!("{kind}-{order}-{note}"), "source": "urn:test", "type": kind,
        "data": { "orderId": format!("o-{order}"), "n": note },
    });
    let mut look = tokio::time::interval(PAUSE);
    for attempt in 0.. {
        let known: Vec<String> = urls.lock().values().cloned().collect();
        if let Some(url) = known.get((order + attempt) % known.len().max(1)) {
            let post = client
                .post(format!("{url}/v1/events"))
                .header("content-type", "application/cloudevents+json")
                .header("x-tenant-id", tenant(order))
                .body(event.to_string());
            if post
                .send()
                .await
                .is_ok_and(|response| response.status() == 202)
            {
                return;
            }
        }
        look.tick().await;
    }
}

/// Returns the instance of an ended order from any pod.
async fn ended(pods: &Pods, order: usize) -> Value {
    let mut last = Value::Null;
    let found = async {
        let mut look = tokio::time::interval(PAUSE);
        for attempt in 0.. {
            let known: Vec<String> = pods.urls.lock().values().cloned().collect();
            if let Some(url) = known.get((order + attempt) % known.len().max(1)) {
                let request = pods
                    .client
                    .get(format!("{url}/v1/sagas/order/o-{order}"))
                    .header("x-tenant-id", tenant(order));
                if let Ok(response) = request.send().await {
                    last = response.json().await.unwrap_or_default();
                    if last["status"] == "completed"
                        || last["status"] == "failed"
                        || last["status"] == "stuck"
                    {
                        return;
                    }
                }
            }
            look.tick().await;
        }
    };
    let ended = tokio::time::timeout(WAIT_TIMEOUT, found).await;
    assert!(
        ended.is_ok(),
        "order {order} of {} has not ended: {last:#}; {}",
        tenant(order),
        pods.all_logs_contain()
    );
    last
}
