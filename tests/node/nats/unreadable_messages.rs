//! A message at which the connection of the client always ends does not stop its stream.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_bus::membership::{Membership as _, Pod};
use orlog_bus::nats::{LeaseOptions, Leases, apply};
use orlog_bus::{Bus as _, ScanStart};
use orlog_model::Timestamp;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::{until, within};
use uuid::Uuid;

use super::cutting_proxy::CuttingProxy;
use super::fixture::{
    connect, numbers, open, open_as, open_on, publish, subscribe, subscription, take,
};

/// Number and text of the message at which the connection ends. A response in JSON contains it in base64 only.
const SUSPECT: u64 = 3_141_592_653_589;

/// Publishes messages before and after the suspect, and returns all numbers.
async fn publish_around_suspect(server: &NatsServer) -> Vec<u64> {
    let bus = open_as(&[server.url()], 1, "publisher").await;
    publish(&bus, 0..3).await;
    publish(&bus, SUSPECT..SUSPECT + 1).await;
    publish(&bus, 3..6).await;
    vec![0, 1, 2, SUSPECT, 3, 4, 5]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_passes_a_message_at_which_the_connection_always_ends() {
    let server = NatsServer::start();
    let expected = publish_around_suspect(&server).await;
    let proxy = CuttingProxy::to(server.port, &[&SUSPECT.to_string()]).await;
    let connection = connect(std::slice::from_ref(&proxy.url)).await;
    let bus = open_on(&connection, 1, "pod-1").await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    let read = take(&mut *consumer, expected.len()).await;
    assert_eq!(numbers(&read), expected);
    assert!(
        read.iter().all(|delivery| delivery.defect.is_none()),
        "the client can parse it"
    );
    assert_eq!(connection.read_failure(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_passes_a_message_at_which_the_connection_always_ends() {
    let server = NatsServer::start();
    let expected = publish_around_suspect(&server).await;
    let proxy = CuttingProxy::to(server.port, &[&SUSPECT.to_string()]).await;
    let bus = open(std::slice::from_ref(&proxy.url), 1).await;
    let start = bus.scan(vec!["s.>".to_owned()], ScanStart::Sequence(1));
    let mut scan = start.await.unwrap();
    let mut read = Vec::new();
    loop {
        let next = within("the scan", scan.next()).await.unwrap();
        if next.is_empty() {
            break;
        }
        read.extend(numbers(&next));
    }
    assert_eq!(read, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_cannot_pass_a_message_reports_its_position() {
    let server = NatsServer::start();
    let expected = publish_around_suspect(&server).await;
    let text = SUSPECT.to_string();
    let alone = STANDARD.encode(&text);
    let proxy = CuttingProxy::to(server.port, &[&text, &alone]).await;
    let connection = connect(std::slice::from_ref(&proxy.url)).await;
    let bus = open_on(&connection, 1, "pod-1").await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    assert_eq!(numbers(&take(&mut *consumer, 3).await), [0, 1, 2]);

    let failure = until("the failure", || async { connection.read_failure() }).await;
    assert!(
        failure.contains("stream S is not read after sequence 3"),
        "{failure}"
    );
    proxy.cut_at(&[&text]);
    let rest = take(&mut *consumer, 4).await;
    assert_eq!(numbers(&rest), expected[3..]);
    let recovered = || async { connection.read_failure().is_none().then_some(()) };
    until("no failure", recovered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_with_a_record_at_which_the_connection_always_ends_is_read() {
    let server = NatsServer::start();
    open_bucket(&server).await;
    for (name, url) in [
        ("a", "http://a"),
        ("b", &*SUSPECT.to_string()),
        ("c", "http://c"),
    ] {
        announce(&server, name, url).await;
    }

    let proxy = CuttingProxy::to(server.port, &[&SUSPECT.to_string()]).await;
    let connection = connect(std::slice::from_ref(&proxy.url)).await;
    let leases = Leases::open(&connection, lease_options()).await.unwrap();
    let mut view = leases.view();
    let read = view.wait_for(|view| view.current && view.pods.len() == 3);
    within("all records", read).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_reads_the_last_message_although_it_was_lost_with_its_connection() {
    let server = NatsServer::start();
    let publisher = open_as(&[server.url()], 1, "publisher").await;
    publish(&publisher, 0..3).await;
    let proxy = CuttingProxy::cutting_once(server.port, &SUSPECT.to_string()).await;
    let bus = open(std::slice::from_ref(&proxy.url), 1).await;
    let mut consumer = subscribe(&bus, subscription("c", None)).await;
    assert_eq!(numbers(&take(&mut *consumer, 3).await), [0, 1, 2]);

    publish(&publisher, SUSPECT..SUSPECT + 1).await;
    assert_eq!(numbers(&take(&mut *consumer, 1).await), [SUSPECT]);
    assert_eq!(proxy.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_shows_the_last_record_although_it_was_lost_with_its_connection() {
    let server = NatsServer::start();
    open_bucket(&server).await;
    announce(&server, "a", "http://a").await;
    let proxy = CuttingProxy::cutting_once(server.port, &SUSPECT.to_string()).await;
    let connection = connect(std::slice::from_ref(&proxy.url)).await;
    let leases = Leases::open(&connection, lease_options()).await.unwrap();
    let mut view = leases.view();
    let first = view.wait_for(|view| view.current && view.pods.len() == 1);
    within("the first record", first).await.unwrap();

    announce(&server, "b", &SUSPECT.to_string()).await;
    let second = view.wait_for(|view| view.current && view.pods.len() == 2);
    within("the second record", second).await.unwrap();
    assert_eq!(proxy.count(), 1);
}

const BUCKET: &str = "leases";

fn lease_options() -> LeaseOptions {
    LeaseOptions {
        bucket: BUCKET.to_owned(),
        ttl: Duration::from_mins(10),
    }
}

async fn open_bucket(server: &NatsServer) {
    let connection = connect(&[server.url()]).await;
    let plan = Leases::plan(BUCKET, 1).into();
    apply(&connection, &plan, Timestamp::default())
        .await
        .unwrap();
}

/// Announces a pod, as a process of its own: each process announces one.
async fn announce(server: &NatsServer, name: &str, url: &str) {
    let pod = Pod {
        name: name.to_owned(),
        incarnation: Uuid::new_v4(),
        url: url.to_owned(),
        draining: false,
        node_keys: Vec::new(),
    };
    let connection = connect(&[server.url()]).await;
    let leases = Leases::open(&connection, lease_options()).await.unwrap();
    assert!(leases.announce(&pod).await.unwrap());
}
