//! Received requests: responses, subscriptions over restarts of the servers, and requesters that misuse the subject of the response.

use orlog_bus::Message;
use orlog_bus::nats::{ReceivedRequest, Requests};
use orlog_bus::requests::{RequestClient as _, RequestError, Response};
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::{until, within};

use super::fixture::connect;

const SUBJECT: &str = "orlog.node.b";

fn message(body: &'static str) -> Message {
    Message {
        subject: SUBJECT.to_owned(),
        id: None,
        headers: Vec::new(),
        payload: body.into(),
    }
}

async fn next(requests: &mut Requests) -> ReceivedRequest {
    within("a request", requests.next()).await.unwrap()
}

async fn respond(request: ReceivedRequest, body: &'static str) {
    request
        .respond(Response {
            headers: vec![("x".into(), "y".into())],
            payload: body.into(),
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_shared_answered_and_received_again_after_a_restart_of_the_server() {
    let mut server = NatsServer::start();
    let (client, first, second) = (
        connect(&[server.url()]).await,
        connect(&[server.url()]).await,
        connect(&[server.url()]).await,
    );
    let sent = client.request(message("early"), WAIT_TIMEOUT).await;
    assert_eq!(sent, Err(RequestError::NoResponders(SUBJECT.to_owned())));
    let mut first = first.requests(SUBJECT, "group").await.unwrap();
    let ask = || async {
        let sent = until("a subscriber", || async {
            let sent = client.request(message("body"), WAIT_TIMEOUT).await;
            sent.ok()
        });
        sent.await
    };
    let (response, ()) = tokio::join!(ask(), async {
        let request = next(&mut first).await;
        assert_eq!(&*request.message.payload, b"body");
        respond(request, "first").await;
    });
    assert_eq!(
        (&*response.payload, response.header("x")),
        (&b"first"[..], Some("y"))
    );
    // The subscription returns with the connection.
    server.restart();
    let (response, ()) = tokio::join!(ask(), async {
        respond(next(&mut first).await, "again").await;
    });
    assert_eq!(&*response.payload, b"again");
    // Another member of the group receives all requests after the first one has ended.
    let mut second = second.requests(SUBJECT, "group").await.unwrap();
    first.drain().await;
    assert!(
        within("the end of the subscription", first.next())
            .await
            .is_none()
    );
    let (response, ()) = tokio::join!(ask(), async {
        respond(next(&mut second).await, "second").await;
    });
    assert_eq!(&*response.payload, b"second");
}

/// The servers publish a response with the permissions of the responder: a requester could let it publish anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_names_another_subject_for_its_response_is_ignored() {
    let server = NatsServer::start();
    let connection = connect(&[server.url()]).await;
    let mut requests = connection.requests(SUBJECT, "group").await.unwrap();
    // The server executes the operations of a client in order: the subscription exists when it responds.
    let info = Message {
        subject: "$JS.API.INFO".to_owned(),
        ..message("")
    };
    connection.request(info, WAIT_TIMEOUT).await.unwrap();
    let mut raw = RawNatsClient::connect(server.port);
    for reply in [
        "$JS.API.STREAM.PURGE.S",
        "tenant.a.workflow_event.order.o-1",
        "_INBOXX.1",
        "orlog.node.b",
    ] {
        raw.publish_with_reply(SUBJECT, reply, "misused");
    }
    raw.publish_with_reply(SUBJECT, "_INBOX.raw", "usable");
    let request = next(&mut requests).await;
    assert_eq!(&*request.message.payload, b"usable");
}
