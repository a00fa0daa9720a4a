//! Suite over all backends: the contract of [`Backend`].

use std::sync::Arc;

use bytes::Bytes;
use orlog_testkit::servers;
use orlog_testkit::wait::within;
use orlog_workflow::backend::{
    After, BackendError, Claim, NEVER_MS, NewInstance, Save, StoredInstance,
};
use orlog_workflow::{Backend, PostgresBackend};

use crate::support::{BackendKind, TestBackend};

macro_rules! suite {
    ($($name:ident => $kind:expr;)*) => {
        $(mod $name {
            use super::*;

            const KIND: BackendKind = $kind;

            tests! {
                an_id_is_created_once,
                only_the_current_epoch_can_save,
                a_fetched_instance_is_not_claimed,
                an_expired_claim_is_taken_by_another_worker,
                an_extended_claim_is_not_available,
                a_released_instance_is_due_at_its_time,
                a_signal_wakes_an_instance_until_a_save_consumes_it,
                signals_of_several_processes_are_visible_in_the_order_of_their_numbers,
                an_ended_instance_is_not_available_and_is_purged,
                unended_instances_are_listed_in_pages,
                a_takeover_fences_off_a_valid_claim,
                a_group_of_requests_distinguishes_the_holders,
                graphs_are_stored_by_hash,
                the_hub_reports_changes,
                instances_survive_reopening,
            }
        })*
    };
}

macro_rules! tests {
    ($($name:ident,)*) => {
        $(#[tokio::test]
        async fn $name() {
            within("the backend responds", super::$name(KIND.open().await)).await;
        })*
    };
}

suite! {
    memory => BackendKind::Memory;
    embedded => BackendKind::Embedded;
    postgres => BackendKind::Postgres;
    nats => BackendKind::Nats;
}

/// The backend needs sessions of its own: a pooler in transaction mode delivers notifications to
/// any of its clients.
#[tokio::test]
async fn postgres_backend_rejects_a_transaction_pooler() {
    let pooler = servers::pgbouncer();
    let url = format!("postgres://orlog@127.0.0.1:{}/postgres", pooler.port);
    let connected = within("the backend responds", PostgresBackend::connect(&url)).await;
    let error = connected.expect_err("notifications are lost").to_string();
    assert!(error.contains("session mode"), "{error}");
}

fn instance(id: &str) -> NewInstance {
    NewInstance {
        id: id.into(),
        workflow: "order".into(),
        hash: "h1".into(),
        state: Bytes::from_static(b"s0"),
        wake_ms: 0,
        holder: None,
    }
}

fn claim(holder: &str, now_ms: u64, until_ms: u64) -> Claim {
    Claim {
        holder: holder.into(),
        now_ms,
        until_ms,
    }
}

fn save(stored: &StoredInstance, state: &'static str, then: After) -> Save {
    let (id, hash) = (Arc::clone(&stored.id), Arc::clone(&stored.hash));
    Save {
        id,
        epoch: stored.epoch,
        hash,
        state: Bytes::from_static(state.as_bytes()),
        last_signal: 0,
        then,
    }
}

async fn claimed(
    backend: &dyn Backend,
    id: &str,
    holder: &str,
    now_ms: u64,
    until_ms: u64,
) -> StoredInstance {
    let mut claimed = backend
        .claim(&[id.into()], &claim(holder, now_ms, until_ms))
        .await
        .expect("claims");
    assert_eq!(claimed.len(), 1, "{id} is available");
    claimed.remove(0)
}

async fn available(backend: &dyn Backend, now_ms: u64) -> Vec<String> {
    let fetched = backend.fetch(100, now_ms).await.expect("lists");
    fetched.ids.iter().map(ToString::to_string).collect()
}

async fn an_id_is_created_once(test: TestBackend) {
    let backend = &*test.backend;
    assert!(backend.create(instance("a")).await.expect("stores"));
    assert!(!backend.create(instance("a")).await.expect("responds"));
    let stored = backend.load("a").await.expect("reads").expect("exists");
    assert_eq!(
        (&*stored.workflow, &*stored.hash, &*stored.state),
        ("order", "h1", &b"s0"[..])
    );
    assert_eq!(backend.load("b").await.expect("reads"), None);
}

async fn only_the_current_epoch_can_save(test: TestBackend) {
    let backend = &*test.backend;
    backend.create(instance("a")).await.expect("stores");
    let first = claimed(backend, "a", "w1", 10, 20).await;
    backend
        .save(save(&first, "s1", After::Keep))
        .await
        .expect("holds the claim");
    let second = claimed(backend, "a", "w2", 30, 40).await;
    assert!(second.epoch > first.epoch);
    assert_eq!(&*second.state, b"s1");
    let fenced = backend.save(save(&first, "s2", After::Keep)).await;
    assert!(
        matches!(fenced, Err(BackendError::Fenced { .. })),
        "{fenced:?}"
    );
    backend
        .save(save(&second, "s3", After::Release { wake_ms: 0 }))
        .await
        .expect("holds the claim");
    let released = backend.save(save(&second, "s4", After::Keep)).await;
    assert!(
        matches!(released, Err(BackendError::Fenced { .. })),
        "{released:?}"
    );
    assert_eq!(
        &*backend
            .load("a")
            .await
            .expect("reads")
            .expect("exists")
            .state,
        b"s3"
    );
}

/// Requirements: S3.
async fn a_fetched_instance_is_not_claimed(test: TestBackend) {
    let backend = &*test.backend;
    backend.create(instance("a")).await.expect("stores");
    assert_eq!(available(backend, 10).await, ["a"]);
    assert_eq!(available(backend, 10).await, ["a"]);
    claimed(backend, "a", "w2", 10, 20).await;
    assert!(available(backend, 10).await.is_empty());
    assert!(
        backend
            .claim(&["a".into()], &claim("w1", 10, 20))
            .await
            .expect("responds")
            .is_empty()
    );
}

/// Requirements: S3.
async fn an_expired_claim_is_taken_by_another_worker(test: TestBackend) {
    let backend = &*test.backend;
    backend.create(instance("a")).await.expect("stores");
    let first = claimed(backend, "a", "w1", 10, 20).await;
    let fetched = backend.fetch(100, 19).await.expect("lists");
    assert!(fetched.ids.is_empty());
    assert_eq!(fetched.next_ms, 20);
    assert_eq!(available(backend, 20).await, ["a"]);
    claimed(backend, "a", "w2", 20, 30).await;
    let lost = backend
        .extend(&[("a".into(), first.epoch)], 50)
        .await
        .expect("responds");
    assert_eq!(lost, ["a".into()]);
    assert_eq!(available(backend, 30).await, ["a"]);
}

/// Requirements: S3.
async fn an_extended_claim_is_not_available(test: TestBackend) {
    let backend = &*test.backend;
    backend.create(instance("a")).await.expect("stores");
    let first = claimed(backend, "a", "w1", 10, 20).await;
    assert!(
        backend
            .extend(&[("a".into(), first.epoch)], 50)
            .await
            .expect("responds")
            .is_empty()
    );
    assert!(available(backend, 49).await.is_empty());
    assert_eq!(available(backend, 50).await, ["a"]);
}

async fn a_released_instance_is_due_at_its_time(test: TestBackend) {
    let backend = &*test.backend;
    for id in ["a", "b", "c"] {
        backend.create(instance(id)).await.expect("stores");
    }
    for (id, wake_ms) in [("a", 300), ("b", 200), ("c", NEVER_MS)] {
        let stored = claimed(backend, id, "w1", 10, 20).await;
        backend
            .save(save(&stored, "s1", After::Release { wake_ms }))
            .await
            .expect("holds the claim");
    }
    let fetched = backend.fetch(100, 100).await.expect("lists");
    assert_eq!((fetched.ids.len(), fetched.next_ms), (0, 200));
    assert_eq!(available(backend, 300).await, ["b", "a"]);
    assert_eq!(
        backend.fetch(1, 300).await.expect("lists").ids,
        ["b".into()]
    );
}

async fn a_signal_wakes_an_instance_until_a_save_consumes_it(test: TestBackend) {
    let backend = &*test.backend;
    assert!(
        !backend
            .send_signal("a", "go", Bytes::new())
            .await
            .expect("responds")
    );
    backend
        .create(NewInstance {
            wake_ms: NEVER_MS,
            ..instance("a")
        })
        .await
        .expect("stores");
    assert!(available(backend, 10).await.is_empty());
    assert!(
        backend
            .send_signal("a", "go", Bytes::from_static(b"1"))
            .await
            .expect("stores")
    );
    assert_eq!(available(backend, 10).await, ["a"]);
    let stored = claimed(backend, "a", "w1", 10, 20).await;
    assert!(stored.last_signal > 0);
    assert!(
        backend
            .send_signal("a", "stop", Bytes::from_static(b"2"))
            .await
            .expect("stores")
    );
    let signals = backend.signals("a", 0).await.expect("reads");
    let found: Vec<_> = signals
        .iter()
        .map(|signal| (&*signal.name, &*signal.payload))
        .collect();
    assert_eq!(found, [("go", &b"1"[..]), ("stop", &b"2"[..])]);
    let (first, second) = (signals[0].number, signals[1].number);
    assert_eq!(stored.last_signal, first);
    assert_eq!(backend.signals("a", first).await.expect("reads").len(), 1);

    // The second signal is not part of the snapshot: the instance is due at once.
    let release = After::Release { wake_ms: NEVER_MS };
    backend
        .save(Save {
            last_signal: first,
            ..save(&stored, "s1", release)
        })
        .await
        .expect("holds the claim");
    assert_eq!(available(backend, 10).await, ["a"]);
    let stored = claimed(backend, "a", "w1", 10, 20).await;
    assert_eq!(backend.signals("a", 0).await.expect("reads").len(), 1);
    backend
        .save(Save {
            last_signal: second,
            ..save(&stored, "s2", release)
        })
        .await
        .expect("holds the claim");
    assert!(available(backend, 1000).await.is_empty());
}

/// An instance that has received a signal receives no earlier one.
async fn signals_of_several_processes_are_visible_in_the_order_of_their_numbers(test: TestBackend) {
    let (backend, other) = (&*test.backend, &*test.other);
    backend
        .create(NewInstance {
            wake_ms: NEVER_MS,
            ..instance("a")
        })
        .await
        .expect("stores");
    let numbers = async || -> Vec<u64> {
        let signals = backend.signals("a", 0).await.expect("reads");
        signals.iter().map(|signal| signal.number).collect()
    };
    let mut visible = Vec::new();
    for _ in 0..6 {
        let others = (0..60).map(|_| other.send_signal("a", "other", Bytes::new()));
        let own = async {
            for _ in 0..5 {
                assert!(
                    backend
                        .send_signal("a", "own", Bytes::new())
                        .await
                        .expect("stores")
                );
                visible.push(numbers().await);
            }
        };
        tokio::join!(own, futures::future::join_all(others));
    }
    assert!(
        backend
            .send_signal("a", "last", Bytes::new())
            .await
            .expect("stores")
    );
    let all = numbers().await;
    assert_eq!(all.len(), 6 * 65 + 1);
    for found in visible {
        assert_eq!(found, all[..found.len()]);
    }
}

async fn an_ended_instance_is_not_available_and_is_purged(test: TestBackend) {
    let backend = &*test.backend;
    for (id, at_ms) in [("a", 100), ("b", 200)] {
        backend.create(instance(id)).await.expect("stores");
        let stored = claimed(backend, id, "w1", 10, 20).await;
        backend
            .save(save(&stored, "end", After::End { at_ms }))
            .await
            .expect("holds the claim");
    }
    assert!(available(backend, 1000).await.is_empty());
    assert!(
        !backend
            .send_signal("a", "go", Bytes::new())
            .await
            .expect("responds")
    );
    assert!(
        backend
            .take_over("a", "w2")
            .await
            .expect("responds")
            .is_none()
    );
    assert_eq!(backend.purge(200).await.expect("deletes"), 1);
    assert_eq!(backend.load("a").await.expect("reads"), None);
    assert_eq!(
        &*backend
            .load("b")
            .await
            .expect("reads")
            .expect("exists")
            .state,
        b"end"
    );
}

async fn unended_instances_are_listed_in_pages(test: TestBackend) {
    let backend = &*test.backend;
    for id in ["c", "a", "d", "b"] {
        backend.create(instance(id)).await.expect("stores");
    }
    let stored = claimed(backend, "b", "w1", 10, 20).await;
    backend
        .save(save(&stored, "end", After::End { at_ms: 10 }))
        .await
        .expect("holds the claim");
    let first = backend.unended(None, 2).await.expect("lists");
    assert_eq!(first, ["a".into(), "c".into()]);
    assert_eq!(
        backend.unended(Some("c"), 2).await.expect("lists"),
        ["d".into()]
    );
}

async fn a_takeover_fences_off_a_valid_claim(test: TestBackend) {
    let backend = &*test.backend;
    backend
        .create(NewInstance {
            holder: Some("r1".into()),
            ..instance("a")
        })
        .await
        .expect("stores");
    assert!(available(backend, NEVER_MS - 1).await.is_empty());
    let first = backend.load("a").await.expect("reads").expect("exists");
    backend
        .save(save(&first, "s1", After::Keep))
        .await
        .expect("holds the claim");
    let second = backend
        .take_over("a", "r2")
        .await
        .expect("responds")
        .expect("not ended");
    assert_eq!(&*second.state, b"s1");
    assert!(backend.save(save(&first, "s2", After::Keep)).await.is_err());
    backend
        .save(save(&second, "s3", After::Keep))
        .await
        .expect("holds the claim");
    assert!(
        backend
            .take_over("b", "r2")
            .await
            .expect("responds")
            .is_none()
    );
}

/// The requests of one moment form a group.
async fn a_group_of_requests_distinguishes_the_holders(test: TestBackend) {
    let backend = &*test.backend;
    backend
        .create(NewInstance {
            holder: Some("r1".into()),
            ..instance("a")
        })
        .await
        .expect("stores");
    let former = backend.load("a").await.expect("reads").expect("exists");
    let current = backend
        .take_over("a", "r2")
        .await
        .expect("responds")
        .expect("not ended");
    let extend = async |epoch| {
        backend
            .extend(&[("a".into(), epoch)], 50)
            .await
            .expect("responds")
    };
    let (of_former, of_current) = tokio::join!(extend(former.epoch), extend(current.epoch));
    assert_eq!((of_former, of_current), (vec!["a".into()], Vec::new()));
    let (of_former, of_current) = tokio::join!(
        backend.save(save(&former, "end", After::End { at_ms: 10 })),
        backend.save(save(&current, "s1", After::Keep)),
    );
    assert!(
        matches!(of_former, Err(BackendError::Fenced { .. })),
        "{of_former:?}"
    );
    of_current.expect("holds the claim");
    assert_eq!(
        &*backend
            .load("a")
            .await
            .expect("reads")
            .expect("exists")
            .state,
        b"s1"
    );
}

async fn graphs_are_stored_by_hash(test: TestBackend) {
    let backend = &*test.backend;
    backend
        .put_graph("h1", Bytes::from_static(b"g1"))
        .await
        .expect("stores");
    backend
        .put_graph("h1", Bytes::from_static(b"g1"))
        .await
        .expect("stores");
    assert_eq!(
        backend.graph("h1").await.expect("reads").as_deref(),
        Some(&b"g1"[..])
    );
    assert_eq!(backend.graph("h2").await.expect("reads"), None);
}

async fn the_hub_reports_changes(test: TestBackend) {
    let (backend, other) = (&*test.backend, &*test.other);
    let mut free = other.hub().available();
    let mut watcher = other.hub().watch(&"a".into());
    backend.create(instance("a")).await.expect("stores");
    free.changed().await.expect("the hub exists");
    free.borrow_and_update();
    backend
        .send_signal("a", "go", Bytes::new())
        .await
        .expect("stores");
    watcher.changed().await;
    let stored = claimed(backend, "a", "w1", 10, 20).await;
    backend
        .save(save(&stored, "s1", After::Release { wake_ms: 0 }))
        .await
        .expect("holds the claim");
    free.changed().await.expect("the hub exists");
    watcher.changed().await;
    let stored = claimed(backend, "a", "w1", 10, 20).await;
    backend
        .save(save(&stored, "s2", After::End { at_ms: 10 }))
        .await
        .expect("holds the claim");
    watcher.changed().await;
}

async fn instances_survive_reopening(test: TestBackend) {
    let first = {
        let backend = &*test.backend;
        backend.create(instance("a")).await.expect("stores");
        backend
            .put_graph("h1", Bytes::from_static(b"g1"))
            .await
            .expect("stores");
        backend
            .send_signal("a", "go", Bytes::from_static(b"1"))
            .await
            .expect("stores");
        claimed(backend, "a", "w1", 10, 20).await
    };
    let test = test.reopen().await;
    let backend = &*test.backend;
    backend
        .save(save(&first, "s1", After::Keep))
        .await
        .expect("holds the claim");
    assert!(available(backend, 19).await.is_empty());
    assert_eq!(available(backend, 20).await, ["a"]);
    assert_eq!(backend.signals("a", 0).await.expect("reads").len(), 1);
    assert!(backend.graph("h1").await.expect("reads").is_some());
    assert_eq!(
        backend.unended(None, 10).await.expect("lists"),
        ["a".into()]
    );
}
