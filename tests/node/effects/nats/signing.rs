//! Signed messages: nodes obey no command, result or workflow command without a valid signature.

use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog::config::Role;
use orlog::{App, AppOverrides, Config};
use orlog_bus::Message;
use orlog_bus::nats::{Connection, Options, consumer_name};
use orlog_bus::requests::RequestClient as _;
use orlog_bus::signature::Signer;
use orlog_model::EffectName;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::nats_server::NatsServer;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{api, config, count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::{Dirs, Node};

const OLD: &str = "0123456789abcdef0123456789abcdef";
const NEW: &str = "fedcba9876543210fedcba9876543210";
const TRIP: &str = "
saga: trip
version: 1
correlate: orderId
start: TripAsked
vars: { order: =event }
steps:
  - id: pay
    do: { saga: payment, correlation: '=vars.order.orderId + \"-pay\"', data: =vars.order }
";

fn pay(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

/// Changes a configuration to these keys, first the signing one.
fn signed(dirs: &Dirs) -> impl Fn(&mut Config) {
    let reference = |name: &str| {
        format!("file:{}", dirs.path(name).display())
            .parse()
            .unwrap()
    };
    let keys = vec![reference("key-1"), reference("key-2")];
    move |config| config.nats.signing.keys.clone_from(&keys)
}

fn set_keys(dirs: &Dirs, keys: [&str; 2]) {
    for (name, key) in ["key-1", "key-2"].iter().zip(keys) {
        std::fs::write(dirs.path(name), key).unwrap();
    }
}

async fn publish(server: &NatsServer, message: Message) {
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        ..Options::default()
    };
    let connection = Connection::open(&options).await.unwrap();
    let ack = connection.request(message, WAIT_TIMEOUT).await.unwrap();
    let ack: Value = serde_json::from_slice(&ack.payload).unwrap();
    assert!(ack["seq"].is_u64(), "{ack}");
}

/// Returns the last command of the stream.
async fn last_command(server: &NatsServer) -> Value {
    until(async || {
        let query = json!({ "last_by_subj": "effect.pay%2Echarge.*" });
        let found = api(server, "STREAM.MSG.GET.WORKFLOW_COMMANDS", &query).await;
        let data = STANDARD.decode(found["message"]["data"].as_str()?).unwrap();
        serde_json::from_slice(&data).ok()
    })
    .await
}

fn message(subject: String, headers: &[(&str, &str)], body: &Value) -> Message {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    Message {
        subject,
        id: None,
        headers,
        payload: body.to_string().into(),
    }
}

/// Returns the number of rejected messages of a kind.
async fn rejected(node: &Node, kind: &str) -> u64 {
    let metrics = node.get("/metrics").await;
    let prefix = format!("orlog_bus_messages_rejected_total{{kind=\"{kind}\"}} ");
    let mut lines = metrics.as_str().unwrap().lines();
    lines
        .find_map(|line| line.strip_prefix(&prefix))
        .expect("the metric exists")
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_commands_are_not_executed_and_signed_ones_are() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    set_keys(&dirs, [OLD, NEW]);
    let sagas = node(&server, &dirs, Role::Saga, signed(&dirs)).await;
    let effects = node(&server, &dirs, Role::Effect, signed(&dirs)).await;
    sagas.pay("", "o-1", json!({ "amount": 7 })).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");

    let mut forged = last_command(&server).await;
    let stranger = Signer::new(&[[b'x'; 32]]).unwrap();
    for sign in [false, true] {
        let id = Uuid::now_v7().to_string();
        (forged["command_id"], forged["payload"]["amount"]) = (json!(id), json!(1_000_000));
        let command = message(format!("effect.pay%2Echarge.{id}"), &[], &forged);
        publish(
            &server,
            if sign {
                stranger.sign(command)
            } else {
                command
            },
        )
        .await;
    }
    until(async || (rejected(&effects, "effect").await >= 2).then_some(())).await;
    // The keys change places; then the first one is removed.
    for (number, keys) in [[NEW, OLD], [NEW, NEW]].into_iter().enumerate() {
        set_keys(&dirs, keys);
        for node in [&effects, &sagas] {
            assert_eq!(node.reload().await.0, StatusCode::OK);
        }
        let order = format!("o-2{number}");
        sagas.pay("", &order, json!({ "amount": 8 })).await;
        assert_eq!(sagas.end("", &order).await["status"], "completed");
    }
    assert_eq!(shop.received().len(), 3, "no forged command was executed");
    // The unsigned command is terminated. The other one is returned, because another worker can have its key.
    until(async || {
        let name = consumer_name(&EffectName::new("pay.charge").unwrap(), None);
        let consumer = api(
            &server,
            &format!("CONSUMER.INFO.WORKFLOW_COMMANDS.{name}"),
            &json!({}),
        )
        .await;
        assert!(consumer["error"].is_null(), "{consumer}");
        (consumer["num_ack_pending"] == 1 && consumer["num_pending"] == 0).then_some(())
    })
    .await;
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_results_are_ignored_and_replaced() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    set_keys(&dirs, [OLD, NEW]);
    let sagas = node(&server, &dirs, Role::Saga, signed(&dirs)).await;
    sagas.pay("", "o-1", json!({})).await;
    let id = last_command(&server).await["command_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let body = json!({
        "tenant_id": "", "command_id": id, "effect_name": "pay.charge", "result_type": "Failed",
        "timestamp": "2026-11-21T08:30:00Z",
    });
    let forged = message(format!("effect_result.pay%2Echarge.{id}"), &[], &body);
    publish(&server, forged.clone()).await;
    until(async || (rejected(&sagas, "effect_result").await > 0).then_some(())).await;
    let effects = node(&server, &dirs, Role::Effect, signed(&dirs)).await;
    assert_eq!(sagas.end("", "o-1").await["status"], "completed");
    assert_eq!(shop.received().len(), 1);

    // A forged result after the authentic one does not cause a second execution.
    publish(&server, forged).await;
    sagas.app.stop().await.unwrap();
    drop(sagas);
    let sagas = node(&server, &dirs, Role::Saga, signed(&dirs)).await;
    sagas.pay("", "o-2", json!({})).await;
    assert_eq!(sagas.end("", "o-2").await["status"], "completed");
    assert_eq!(shop.received().len(), 2);
    assert_eq!(
        count(
            &server,
            "WORKFLOW_EVENTS",
            &format!("effect_result.pay%2Echarge.{id}")
        )
        .await,
        3
    );
    effects.app.stop().await.unwrap();
    sagas.app.stop().await.unwrap();
}

/// Returns a workflow command that starts a payment.
fn start(correlation: &str) -> Message {
    let parent = json!({ "key": { "tenant": "", "saga": "trip", "correlation": "t-9" }, "work_id": Uuid::nil(), "depth": 1 });
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "forged"),
        ("ce-type", "orlog.workflow_command"),
        ("ce-source", "orlog:trip"),
        ("content-type", "application/json"),
    ];
    let body = json!({ "start": { "parent": parent, "data": { "orderId": correlation } } });
    message(format!("workflow.payment.{correlation}"), &headers, &body)
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_workflow_commands_are_dead_lettered_and_signed_ones_are_applied() {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    dirs.define("trip", TRIP);
    set_keys(&dirs, [OLD, NEW]);
    let combined = node(&server, &dirs, Role::Combined, signed(&dirs)).await;
    let event = json!({
        "specversion": "1.0", "id": "e-1", "source": "urn:test", "type": "TripAsked", "data": { "orderId": "t-1" },
    });
    let (status, response) = combined
        .ask(axum::http::Method::POST, "", "/v1/events", &event)
        .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{response}");
    assert_eq!(
        combined.end_of("", "trip", "t-1").await["status"],
        "completed"
    );

    publish(&server, start("p-1")).await;
    let is_stored = |letters: &Value| {
        letters["items"]
            .as_array()
            .is_some_and(|items| items.len() == 1)
    };
    let letters = combined.until("", "/v1/dead-letters", is_stored).await;
    assert!(
        letters["items"][0]
            .to_string()
            .contains("the message has no signature"),
        "{letters}"
    );
    assert_eq!(rejected(&combined, "workflow").await, 1);
    assert_eq!(
        shop.received().len(),
        1,
        "only the child of the trip has paid"
    );

    // A redrive does not sign the message.
    let id = letters["items"][0]["id"].as_str().unwrap();
    let path = format!("/v1/dead-letters/{id}/redrive");
    let (status, response) = combined
        .ask(axum::http::Method::POST, "", &path, &Value::Null)
        .await;
    assert!(status.is_success(), "{response}");
    until(async || (rejected(&combined, "workflow").await == 2).then_some(())).await;
    assert_eq!(shop.received().len(), 1);
    combined.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_without_signed_commands_prevent_the_start() {
    let server = NatsServer::start();
    let script = "kind = \"script\"\n[effects.\"job.sh\"]\n";
    let dirs = Dirs::new(&[("jobs", script)]);
    set_keys(&dirs, [OLD, NEW]);
    let start = async |change: &dyn Fn(&mut Config)| {
        let config = config(&server, &dirs, Role::Effect, |config| {
            // Reaches this machine and is not a loopback address.
            config.nats.servers = vec![format!("nats://0.0.0.0:{}", server.port)];
            config.nats.tls.allow_plaintext = true;
            change(config);
        });
        App::start_with(config, AppOverrides::default()).await
    };
    let error = format!(
        "{:#}",
        start(&|_| ())
            .await
            .err()
            .expect("unsigned commands could run scripts")
    );
    assert!(
        error.contains("nats.signing.allow_unsigned_scripts"),
        "{error}"
    );
    let with_keys = signed(&dirs);
    let allowed = |config: &mut Config| config.nats.signing.allow_unsigned_scripts = true;
    for change in [&with_keys as &dyn Fn(&mut Config), &allowed] {
        start(change).await.unwrap().stop().await.unwrap();
    }
    std::fs::write(dirs.path("key-1"), "short").unwrap();
    let error = format!(
        "{:#}",
        start(&with_keys).await.err().expect("the key is too short")
    );
    assert!(error.contains("at least 32"), "{error}");
}
