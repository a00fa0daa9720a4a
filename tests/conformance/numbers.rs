//! Numbers of a cluster: two pods draw from one counter in the bucket of the leases.

use std::collections::BTreeSet;

use orlog_bus::nats::{Connection, Leases, Options, SharedNumbers, StreamSet, apply};
use orlog_model::Timestamp;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::{until, within};
use tokio::task::JoinSet;

const BUCKET: &str = "cluster";

async fn pod(nats: &NatsServer) -> SharedNumbers {
    let options = Options {
        servers: vec![nats.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let connection = &until("a connection", || async {
        Connection::open(&options).await.ok()
    })
    .await;
    let plan = &StreamSet::from(Leases::plan(BUCKET, 1));
    until("the bucket", || async move {
        apply(connection, plan, Timestamp::default()).await.ok()?;
        SharedNumbers::open(connection, BUCKET).await.ok()
    })
    .await
}

#[tokio::test]
async fn no_number_is_drawn_twice_and_a_later_one_is_larger() {
    let nats = NatsServer::start();
    within("the numbers", async {
        let mut pods = JoinSet::new();
        for _ in 0..2 {
            let numbers = pod(&nats).await;
            pods.spawn(async move {
                let mut drawn = Vec::new();
                for _ in 0..20 {
                    drawn.push(numbers.next("deployment", 0).await.unwrap());
                }
                drawn
            });
        }

        let drawn = pods.join_all().await;
        for of_pod in &drawn {
            assert!(of_pod.is_sorted(), "{of_pod:?}");
        }
        let all: BTreeSet<u64> = drawn.into_iter().flatten().collect();
        assert_eq!(all, (1..=40).collect());
    })
    .await;
}

#[tokio::test]
async fn number_is_larger_than_those_that_a_pod_has_chosen_itself() {
    let nats = NatsServer::start();
    within("the numbers", async {
        let numbers = pod(&nats).await;
        assert_eq!(numbers.last("deployment").await.unwrap(), 0);
        assert_eq!(numbers.next("deployment", 4).await.unwrap(), 5);
        numbers.raise("deployment", 9).await.unwrap();
        numbers.raise("deployment", 7).await.unwrap();
        assert_eq!(numbers.last("deployment").await.unwrap(), 9);
        assert_eq!(numbers.next("deployment", 2).await.unwrap(), 10);
        assert_eq!(numbers.next("deployment.acme", 0).await.unwrap(), 1);
    })
    .await;
}
