//! Garbage collection: unused definitions are dropped, used ones stay.

use std::collections::BTreeSet;

use fastrand::Rng;
use orlog_model::Status;
use orlog_testkit::runtime::seed;

use crate::deploy::node::{Node, Saga, order};

#[tokio::test(flavor = "multi_thread")]
async fn only_unused_definitions_are_dropped() {
    let waiting = Saga {
        name: "waiting",
        waits: true,
        ..Saga::order(1)
    };
    let node = Node::start(&[waiting.file(), order(1)]).await;
    node.place(1).await;
    node.until("both are there", |node| {
        node.is_waiting(1) && node.count(Status::Completed) == 1
    })
    .await;
    node.deploy(&[order(2)]).await.unwrap();
    node.deploy(&[order(3)]).await.unwrap();
    node.deploy(&[order(4)]).await.unwrap();
    // Collections run in the background after each deployment; this one is the last.
    let collected = node.app.services.collector.collect(None).await.unwrap();
    assert_eq!(
        collected.retained, 2,
        "one waits, the other has ended and is still stored: {collected:?}"
    );
    let stored = [("order", 1), ("order", 4), ("waiting", 1)]
        .map(|(saga, version)| (saga.to_owned(), version));
    assert_eq!(node.stored(), BTreeSet::from(stored));
    let loaded = node.app.programs.all();
    let loaded = loaded.iter().map(|owned| owned.program.definition_ref());
    let loaded = loaded.map(|program| (program.saga.to_string(), program.version));
    let loaded: BTreeSet<_> = loaded
        .filter(|(saga, _)| !saga.starts_with("orlog."))
        .collect();
    assert_eq!(loaded, node.stored());
    assert_eq!(
        node.app
            .services
            .collector
            .collect(None)
            .await
            .unwrap()
            .dropped,
        []
    );
    let deployment = node.deploy(&[order(4), waiting.file()]).await.unwrap();
    assert_eq!(deployment.added.len(), 1);
    let node = node.restart().await;
    node.publish("Shipped", 1).await;
    node.until("it goes on after a restart", |node| {
        node.count(Status::Completed) == 2
    })
    .await;
}

/// Each instance finds its definition until its end, whatever is deployed and collected while instances
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pinned_definition_is_never_dropped() {
    let mut rng = Rng::with_seed(seed(7));
    let node = Node::start(&[Saga {
        waits: true,
        ..Saga::order(1)
    }
    .file()])
    .await;
    let (mut placed, mut version, mut dropped) = (0, 1, 0);
    for _ in 0..60 {
        for _ in 0..rng.usize(0..4) {
            node.place(placed).await;
            placed += 1;
        }
        if rng.u8(..3) > 0 {
            version += 1;
            let saga = Saga {
                waits: rng.bool(),
                ..Saga::order(version)
            };
            node.deploy(&[saga.file()]).await.unwrap();
        }
        if rng.bool() {
            dropped += node
                .app
                .services
                .collector
                .collect(None)
                .await
                .unwrap()
                .dropped
                .len();
        }
        let stored = node.stored();
        for number in 0..placed {
            if let Some(order) = node.order(number) {
                let pinned = ("order".to_owned(), order.definition.version);
                assert!(
                    stored.contains(&pinned),
                    "o-{number} is pinned to {pinned:?}, there are {stored:?}"
                );
            }
        }
    }
    for number in 0..placed {
        node.publish("Shipped", number).await;
    }
    node.until("every order is completed", |node| {
        node.count(Status::Completed) == placed
    })
    .await;
    assert_eq!(node.dead_letters(), 0);
    let pinned: BTreeSet<_> = (0..placed)
        .map(|n| node.order(n).unwrap().definition.version)
        .collect();
    println!(
        "{placed} orders, {version} versions, {} of them used, {dropped} dropped here",
        pinned.len()
    );
    node.app.services.collector.collect(None).await.unwrap();
    let stored: BTreeSet<_> = node
        .stored()
        .into_iter()
        .map(|(_, version)| version)
        .collect();
    assert_eq!(stored, pinned.into_iter().chain([version]).collect());
}
