//! The gRPC provider against a real server: messages, statuses, rules, credentials, reflection, TLS, egress.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlog_effect::config::GrpcConfig;
use orlog_effect::{Attempt, Refusal, Reply, Trouble, Upstream};
use orlog_model::{EffectName, Timestamp, Work, WorkItem};
use orlog_testkit::grpc_server::{Called, GrpcServer, Handler, Opening, Reflection, descriptors};
use orlog_testkit::provider_suite::item;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Code, Status};

use crate::docs::{block, with};
use crate::http_upstream::Shop;
use crate::node::Folders;

const PROTO: &str = include_str!("../protos/payments.proto");

/// A handler that answers as a function says, and what it was called with.
fn answering(
    answer: impl Fn(&Called) -> Result<Value, Status> + Send + Sync + 'static,
) -> (Handler, Arc<Mutex<Vec<Called>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&calls);
    let handler: Handler = Arc::new(move |called| {
        let answer = answer(&called);
        kept.lock().unwrap().push(called);
        Box::pin(std::future::ready(answer))
    });
    (handler, calls)
}

async fn open(reflection: Reflection, handler: Handler) -> GrpcServer {
    Opening::of(PROTO, reflection).open(handler).await
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("payments.pb"), descriptors(PROTO)).unwrap();
    folder
}

fn upstream(config: &str) -> Upstream {
    let config: GrpcConfig = toml::from_str(config).unwrap();
    config.upstream("pay", folder().path()).unwrap()
}

fn plain(endpoint: &str, method: &str, more: &str) -> Upstream {
    upstream(&format!(
        "endpoint = {endpoint:?}\ndescriptors = \"payments.pb\"\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/{method}\"\n{more}"
    ))
}

fn charge(payload: Value) -> WorkItem {
    let mut item = item(&EffectName::new("pay.charge").unwrap(), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    item
}

async fn at(seconds: i64, upstream: &Upstream, payload: Value) -> Result<Reply, Refusal> {
    let at = Timestamp::from_millis(1_700_000_000_000 + seconds * 1000);
    let attempt = Attempt { number: 1, timeout: Duration::from_secs(10), at };
    upstream.provider.perform(&charge(payload), attempt).await
}

async fn perform(upstream: &Upstream, payload: Value) -> Result<Reply, Refusal> {
    at(0, upstream, payload).await
}

fn failure(answer: &Result<Reply, Refusal>) -> (String, String) {
    match answer {
        Err(
            Refusal::Final { failure, .. } | Refusal::GaveUp { failure } | Refusal::Transient { failure, .. },
        ) => (failure.code.clone(), failure.message.clone()),
        Ok(reply) => panic!("it was done: {reply:?}"),
    }
}

fn trouble(answer: &Result<Reply, Refusal>) -> Option<Trouble> {
    match answer {
        Err(Refusal::Transient { trouble, .. }) => Some(*trouble),
        Ok(_) | Err(Refusal::Final { .. } | Refusal::GaveUp { .. }) => None,
    }
}

fn file(text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let reference = format!("file:{}", path.display());
    (folder, reference)
}

#[tokio::test]
async fn messages_follow_the_json_rules_of_proto3() {
    let (handler, calls) = answering(|called| Ok(called.message.clone()));
    let server = open(Reflection::No, handler).await;
    let upstream = plain(&server.endpoint(), "Echo", "");
    let payload = json!({
        "big": "9007199254740993", "small": 7, "share": 0.5, "slip": "AAEC", "currency": "EUR",
        "due_at": "2026-01-02T03:04:05Z", "tags": ["a", "b"], "counts": {"x": 1}, "account": "DE1", "note": "",
    });
    let reply = perform(&upstream, payload).await.unwrap().payload;
    assert_eq!(
        reply,
        json!({
            "big": "9007199254740993", "small": 7, "share": 0.5, "flag": false, "slip": "AAEC", "currency": "EUR",
            "dueAt": "2026-01-02T03:04:05Z", "tags": ["a", "b"], "counts": {"x": 1}, "account": "DE1", "note": "",
        })
    );
    let empty = perform(&upstream, Value::Null).await.unwrap().payload;
    assert_eq!((&empty["big"], &empty["tags"], empty.get("note")), (&json!("0"), &json!([]), None));
    assert_eq!(calls.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_fails_and_the_message_names_the_field() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, handler).await;
    let upstream = plain(&server.endpoint(), "Echo", "");
    for (payload, field) in [
        (json!({"small": "x"}), "small"),
        (json!({"small": 3_000_000_000_i64}), "small"),
        (json!({"nope": 1}), "nope"),
        (json!({"dueAt": "yesterday"}), "dueAt"),
        (json!({"counts": {"x": "y"}}), "counts.x"),
        (json!({"tags": ["a", 1]}), "tags[1]"),
        (json!({"currency": "BEANS"}), "currency"),
        (json!({"card": "a", "account": "b"}), "source"),
        (json!([1]), "payments.v1.Everything"),
    ] {
        let answer = perform(&upstream, payload).await;
        let (code, message) = failure(&answer);
        assert!(code == "bad_payload" && message.contains(field), "{field}: {message}");
        assert!(matches!(answer, Err(Refusal::Final { .. })));
    }
    assert!(calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn every_status_means_what_the_table_says() {
    let (handler, _) = answering(|called| {
        let code = called.message["small"].as_i64().unwrap();
        Err(Status::new(Code::from(i32::try_from(code).unwrap()), "so it is"))
    });
    let server = open(Reflection::No, handler).await;
    let upstream = plain(&server.endpoint(), "Echo", "");
    for (code, name, expected) in [
        (1, "grpc_cancelled", Some(Trouble::Lost)),
        (2, "grpc_unknown", Some(Trouble::Lost)),
        (3, "grpc_invalid_argument", None),
        (4, "grpc_deadline_exceeded", Some(Trouble::Lost)),
        (5, "grpc_not_found", None),
        (6, "grpc_already_exists", None),
        (7, "grpc_permission_denied", None),
        (8, "grpc_resource_exhausted", Some(Trouble::Busy)),
        (9, "grpc_failed_precondition", None),
        (10, "grpc_aborted", Some(Trouble::Busy)),
        (11, "grpc_out_of_range", None),
        (12, "grpc_unimplemented", None),
        (13, "grpc_internal", Some(Trouble::Lost)),
        (14, "grpc_unavailable", Some(Trouble::Down)),
        (15, "grpc_data_loss", Some(Trouble::Lost)),
        (16, "grpc_unauthenticated", None),
    ] {
        let answer = perform(&upstream, json!({ "small": code })).await;
        assert_eq!((failure(&answer).0.as_str(), trouble(&answer)), (name, expected));
        assert!(failure(&answer).1.ends_with("so it is"), "{answer:?}");
    }
}

/// A `google.rpc.Status` with one detail of a kind that has texts as its first fields.
fn detailed(code: Code, message: &str, kind: &str, texts: &[&str]) -> Status {
    let piece = |tag: u8, bytes: &[u8]| [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let value: Vec<u8> = (1..).zip(texts).flat_map(|(tag, text)| piece(tag, text.as_bytes())).collect();
    let any = [piece(1, format!("type.googleapis.com/{kind}").as_bytes()), piece(2, &value)].concat();
    Status::with_details(code, message, piece(3, &any).into())
}

#[tokio::test]
async fn rules_say_what_answers_mean() {
    let (handler, _) = answering(|called| match called.message["order"]["id"].as_str() {
        Some("gone") => Err(Status::not_found("no such order")),
        Some("poor") => Err(detailed(
            Code::FailedPrecondition,
            "no money",
            "google.rpc.ErrorInfo",
            &["FUNDS", "pay.example"],
        )),
        Some("odd") => Err(detailed(Code::FailedPrecondition, "odd", "payments.v1.Order", &["o-9"])),
        Some("void") => Ok(json!({ "receipt": "void" })),
        _ => Ok(json!({ "receipt": "r-1" })),
    });
    let server = open(Reflection::No, handler).await;
    let rule = |keys: &str| format!("[[effects.\"pay.charge\".responses]]\n{keys}\n");
    let rules = [
        "status = [\"NOT_FOUND\", \"ALREADY_EXISTS\"]\nresult = \"succeeded\"\nevent = \"AlreadyDone\"",
        "status = \"FAILED_PRECONDITION\"\nwhen = { \"/details/0/reason\" = \"FUNDS\" }\nresult = \"failed\"\nevent = \"PaymentDeclined\"\ncode = \"/details/0/reason\"\nmessage = \"/message\"",
        "status = \"OK\"\nwhen = { \"/receipt\" = \"void\" }\nresult = \"failed\"\ncode = \"voided\"",
        "status = \"OK\"\nresult = \"succeeded\"\npayload = \"/receipt\"",
    ];
    let upstream = plain(&server.endpoint(), "Charge", &rules.map(rule).concat());
    let order = |id: &str| json!({ "order": { "id": id } });
    let gone = perform(&upstream, order("gone")).await.unwrap();
    assert_eq!(gone.event.unwrap().as_str(), "AlreadyDone");
    let poor = perform(&upstream, order("poor")).await;
    assert_eq!(failure(&poor), ("FUNDS".to_owned(), "no money".to_owned()));
    let Err(Refusal::Final { event, payload, .. }) = poor else { panic!("it is final") };
    assert_eq!(event.unwrap().as_str(), "PaymentDeclined");
    assert_eq!(payload["code"], "FAILED_PRECONDITION");
    assert_eq!(payload["details"][0]["@type"], "google.rpc.ErrorInfo");
    let Err(Refusal::Final { payload, .. }) = perform(&upstream, order("odd")).await else { panic!() };
    assert_eq!(payload["details"][0], json!({ "@type": "payments.v1.Order", "id": "o-9" }));
    assert_eq!(failure(&perform(&upstream, order("void")).await).0, "voided");
    assert_eq!(perform(&upstream, order("good")).await.unwrap().payload, json!("r-1"));
}

#[tokio::test]
async fn metadata_and_tokens_are_sent_and_what_comes_back_is_cleared_of_them() {
    let issuer = Shop::open().await;
    issuer.answers(200, &[], r#"{"access_token": "token-one", "expires_in": 600}"#);
    issuer.answers(200, &[], r#"{"access_token": "token-two", "expires_in": 600}"#);
    let (handler, calls) = answering(|called| {
        let header = |name: &str| called.metadata.get(name).unwrap().to_str().unwrap().to_owned();
        match header("authorization").as_str() {
            "Bearer token-one" => Err(Status::unauthenticated("expired")),
            token if called.message["order"]["id"] == "echo" => {
                Err(Status::not_found(format!("no: {token} {}", header("x-key"))))
            }
            token => Ok(json!({ "receipt": token })),
        }
    });
    let server = open(Reflection::No, handler).await;
    let (_folder, secret) = file("s3cret-canary\n");
    let upstream = upstream(&format!(
        r#"
        endpoint = "{}"
        descriptors = "payments.pb"
        auth = {{ oauth2 = {{ token_url = "{}/token", client_id = "orlog", client_secret = "{secret}" }} }}
        [effects."pay.charge"]
        method = "payments.v1.Payments/Charge"
        metadata = {{ "x-key" = "{{{secret}}}", "x-order" = "o:{{order.id}}" }}
        key_field = "meta.request_id"
        "#,
        server.endpoint(),
        issuer.url
    ));
    let reply = perform(&upstream, json!({ "order": { "id": "o-1" } })).await.unwrap();
    assert_eq!(reply.payload, json!({ "receipt": "Bearer [secret]" }));
    let echo = perform(&upstream, json!({ "order": { "id": "echo" } })).await;
    assert!(failure(&echo).1.ends_with("NOT_FOUND: no: Bearer [secret] [secret]"), "{echo:?}");
    let Err(Refusal::Final { payload, .. }) = echo else { panic!("it is final") };
    assert_eq!(payload["message"], "no: Bearer [secret] [secret]");
    let calls = calls.lock().unwrap().clone();
    assert_eq!((calls.len(), issuer.asked().len()), (3, 2));
    let key = charge(Value::Null).id.to_string();
    assert_eq!(calls[1].message["meta"]["requestId"], key.as_str());
    for (name, expected) in [
        ("x-order", "o:o-1"),
        ("x-key", "s3cret-canary"),
        ("idempotency-key", key.as_str()),
        ("x-tenant-id", "acme"),
        ("grpc-timeout", "10000000u"),
    ] {
        assert_eq!(calls[1].metadata.get(name).unwrap().to_str().unwrap(), expected);
    }
    let broken = perform(&upstream, json!({ "order": { "id": "a\nb" } })).await;
    assert!(failure(&broken).1.contains("the value of x-order holds a line break"), "{broken:?}");
}

#[tokio::test]
async fn messages_are_sent_and_read_up_to_their_limits() {
    let (handler, calls) = answering(|_| Ok(json!({ "receipt": "r".repeat(1000) })));
    let server = open(Reflection::No, handler).await;
    let upstream = upstream(&format!(
        "endpoint = {:?}\ndescriptors = \"payments.pb\"\nmax_request_bytes = 100\nmax_response_bytes = 100\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
        server.endpoint()
    ));
    let reply = perform(&upstream, json!({ "order": { "id": "o-1" } })).await.unwrap();
    assert_eq!(reply.payload, json!({ "truncated": true }));
    let (code, message) = failure(&perform(&upstream, json!({ "order": { "id": "o".repeat(200) } })).await);
    assert!(code == "bad_payload" && message.contains("more than 100"), "{message}");
    assert_eq!(calls.lock().unwrap().len(), 1);
}

/// The service as it will be: orders have notes.
fn next_proto() -> &'static str {
    PROTO.replace("message Order {", "message Order {\n  string note = 2;").leak()
}

async fn replaced(server: GrpcServer, handler: &Handler) -> GrpcServer {
    let at = Some(server.address);
    server.close().await;
    Opening { at, ..Opening::of(next_proto(), Reflection::V1) }.open(Arc::clone(handler)).await
}

#[tokio::test]
async fn descriptors_are_asked_for_anew_when_a_payload_does_not_fit_old_ones() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::V1, Arc::clone(&handler)).await;
    let upstream = upstream(&format!(
        "endpoint = {:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
        server.endpoint()
    ));
    let noted = || json!({ "order": { "id": "o-1", "note": "gift" } });
    assert_eq!(failure(&at(0, &upstream, noted()).await).0, "bad_payload");
    let server = replaced(server, &handler).await;
    assert_eq!(failure(&at(5, &upstream, noted()).await).0, "bad_payload");
    at(15, &upstream, noted()).await.unwrap();
    assert_eq!(calls.lock().unwrap().pop().unwrap().message["order"]["note"], "gift");
    drop(server);
}

#[tokio::test]
async fn a_server_without_reflection_is_waited_for_and_one_without_the_service_is_not() {
    let (handler, _) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, Arc::clone(&handler)).await;
    let by_reflection = |endpoint: &str, method: &str| {
        upstream(&format!(
            "endpoint = {endpoint:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = {method:?}"
        ))
    };
    let silent =
        perform(&by_reflection(&server.endpoint(), "payments.v1.Payments/Charge"), Value::Null).await;
    assert_eq!((failure(&silent).0.as_str(), trouble(&silent)), ("reflection", Some(Trouble::Down)));
    assert!(failure(&silent).1.contains("it offers no reflection"), "{silent:?}");
    let server = open(Reflection::V1, handler).await;
    for (method, expected) in [
        ("payments.v2.Payments/Charge", "knows no service payments.v2.Payments"),
        ("payments.v1.Payments/Pay", "has no method Pay; it has Charge, Echo, Watch"),
        ("payments.v1.Payments/Watch", "streams"),
    ] {
        let answer = perform(&by_reflection(&server.endpoint(), method), Value::Null).await;
        let (code, message) = failure(&answer);
        assert!(code == "grpc_unimplemented" && message.contains(expected), "{message}");
        assert_eq!(trouble(&answer), None);
    }
}

#[tokio::test]
async fn no_connection_means_not_done_and_a_broken_one_leaves_doubt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let upstream = plain(&endpoint, "Charge", "");
    let breaking = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        // The call has come when its path is there, in whatever compression; the method's length tells.
        while heard.len() < 200 {
            assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
        }
    });
    let broken = perform(&upstream, json!({ "order": { "id": "o".repeat(300) } })).await;
    assert_eq!((failure(&broken).0.as_str(), trouble(&broken)), ("transport", Some(Trouble::Lost)));
    breaking.await.unwrap();
    let absent = perform(&upstream, Value::Null).await;
    assert_eq!((failure(&absent).0.as_str(), trouble(&absent)), ("unreachable", Some(Trouble::Down)));
    assert!(failure(&absent).1.contains("Connection refused"), "{absent:?}");
}

fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certs").join(name).display().to_string()
}

#[tokio::test]
async fn both_sides_show_certificates() {
    let read = |name: &str| std::fs::read(certificate(name)).unwrap();
    let (handler, _) = answering(|_| Ok(json!({ "receipt": "r-1" })));
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(read("server.pem"), read("server.key")))
        .client_ca_root(Certificate::from_pem(read("ca.pem")));
    let opening = Opening { tls: Some(tls), ..Opening::of(PROTO, Reflection::V1) };
    let server = opening.open(handler).await;
    let at = |tls: &str| {
        upstream(&format!(
            "endpoint = \"https://localhost:{}\"\nreflection = true\n{tls}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
            server.address.port()
        ))
    };
    let (ca, cert, key) = (certificate("ca.pem"), certificate("client.pem"), certificate("client.key"));
    let known = format!("tls = {{ ca = \"file:{ca}\", cert = \"file:{cert}\", key = \"file:{key}\" }}");
    assert_eq!(perform(&at(&known), Value::Null).await.unwrap().payload["receipt"], "r-1");
    let stranger = perform(&at(""), Value::Null).await;
    assert_eq!((failure(&stranger).0.as_str(), trouble(&stranger)), ("unreachable", Some(Trouble::Down)));
    assert!(perform(&at(&format!("tls = {{ ca = \"file:{ca}\" }}")), Value::Null).await.is_err());
    let missing = perform(&at("tls = { ca = \"file:/nowhere/ca.pem\" }"), Value::Null).await;
    assert!(failure(&missing).0 == "tls" && failure(&missing).1.contains("/nowhere/ca.pem"), "{missing:?}");
}

#[tokio::test]
async fn an_endpoint_under_egress_rules_reaches_nothing_private() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, handler).await;
    let at = |egress: &str| {
        let endpoint = format!("http://localhost:{}", server.address.port());
        upstream(&format!(
            "endpoint = {endpoint:?}\ndescriptors = \"payments.pb\"\n{egress}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\""
        ))
    };
    let refused = perform(&at("egress = {}"), Value::Null).await;
    assert_eq!((failure(&refused).0.as_str(), trouble(&refused)), ("egress_refused", None));
    assert!(calls.lock().unwrap().is_empty());
    perform(&at("egress = { private = true }"), Value::Null).await.unwrap();
    perform(&at(""), Value::Null).await.unwrap();
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = folder();
    let head = "endpoint = \"http://h:1\"\ndescriptors = \"payments.pb\"";
    let effect = |more: &str| {
        format!("{head}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"\n{more}")
    };
    let method = |name: &str| format!("{head}\n[effects.\"pay.charge\"]\nmethod = {name:?}\n");
    for (text, expected) in [
        ("endpoint = \"h:1\"\nreflection = true".to_owned(), "upstream pay: the endpoint \"h:1\""),
        ("endpoint = \"http://h:1/x\"\nreflection = true".to_owned(), "it holds a path"),
        ("endpoint = \"http://h:1\"".to_owned(), "write descriptors = \"file.pb\" or reflection = true"),
        (format!("{head}\nreflection = true"), "keep one"),
        ("endpoint = \"http://h:1\"\ndescriptors = \"no.pb\"".to_owned(), "no.pb cannot be read"),
        ("endpoint = \"http://h:1\"\ndescriptors = \"bad.pb\"".to_owned(), "write them with protoc"),
        (format!("{head}\ntls = {{ ca = \"file:/ca\" }}"), "tls needs an endpoint that begins with https://"),
        (
            format!("{head}\negress = {{ allow = [\"x.io\"] }}"),
            "the endpoint: the host \"h\" is not in the allow-list",
        ),
        (method("Charge"), "upstream pay, effect pay.charge: the method \"Charge\" is none"),
        (method("payments.v1.Pay/Charge"), "there is no service payments.v1.Pay"),
        (method("payments.v1.Payments/Watch"), "streams"),
        (effect("key_field = \"meta.nope\""), "payments.v1.Meta has no single field \"nope\""),
        (effect("key_field = \"amount\""), "is no text"),
        (effect("metadata = { \"grpc-timeout\" = \"1S\" }"), "belongs to gRPC itself"),
        (effect("metadata = { \"x-key\" = \"env:KEY\" }"), "would send a reference"),
        (effect("body = [\"{env:KEY}\"]"), "a secret cannot stand in a body"),
        (effect("responses = [{ status = \"NOPE\", result = \"failed\" }]"), "\"NOPE\" is no status"),
        (effect("responses = [{ result = \"failed\", payload = \"a\" }]"), "responses[0]"),
    ] {
        std::fs::write(folder.path().join("bad.pb"), "no descriptors").unwrap();
        let read = toml::from_str::<GrpcConfig>(&text).map_err(|error| error.to_string());
        let made =
            read.and_then(|config| config.upstream("pay", folder.path()).map_err(|error| error.to_string()));
        let error = made.err().unwrap_or_else(|| panic!("it is refused: {text}"));
        assert!(error.contains(expected), "{error}");
    }
}

/// The example of the page on a whole node; the server's address and token are put in.
fn example(address: SocketAddr, secret: &str) -> String {
    let text = block("grpc.md", "config/effects/payments.toml");
    let text = with(&text, "https://payments.example:443", &format!("http://{address}"));
    with(&text, "env:PAYMENTS_TOKEN", secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_page_does_what_the_page_says() {
    let proto = block("grpc.md", "payments.proto").leak();
    let (handler, calls) = answering(|called| match called.message["amount"].as_str() {
        Some("13") => {
            Err(detailed(Code::FailedPrecondition, "no money", "google.rpc.ErrorInfo", &["FUNDS", "pay"]))
        }
        _ => Ok(json!({ "receipt": "r-1" })),
    });
    let server = Opening::of(proto, Reflection::No).open(handler).await;
    let (_folder, secret) = file("the-token");
    let folders = Folders::new(&[("payments", &example(server.address, &secret))]);
    folders.define("payment", &block("grpc.md", "definitions/payment.saga.yaml"));
    std::fs::write(folders.path("effects").join("payments.pb"), descriptors(proto)).unwrap();
    let node = folders.start().await;
    node.pay("acme", "o-1", json!({ "amount": 125 })).await;
    let done = node.end("acme", "o-1").await;
    assert_eq!(
        (&done["status"], &done["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-1")),
        "{done}"
    );
    node.pay("acme", "o-2", json!({ "amount": 13 })).await;
    let failed = node.end("acme", "o-2").await;
    assert!(failed["status"] == "failed" && failed.to_string().contains("FUNDS"), "{failed}");
    let called = calls.lock().unwrap()[0].clone();
    assert_eq!((&called.message["order"]["id"], &called.message["amount"]), (&json!("o-1"), &json!("125")));
    let header = |name: &str| called.metadata.get(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(header("authorization"), "Bearer the-token");
    assert_eq!(called.message["meta"]["requestId"], header("idempotency-key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_asks_for_descriptors_anew() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::V1, Arc::clone(&handler)).await;
    let text = format!(
        "kind = \"grpc\"\nendpoint = {:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"\nbody = {{ order = \"{{order}}\" }}",
        server.endpoint()
    );
    let node = crate::node::Node::start(&[("pay", &text)]).await;
    node.pay("", "o-1", json!({ "order": { "id": "a" } })).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    let _server = replaced(server, &handler).await;
    let (status, answer) = node.reload().await;
    assert_eq!(status, axum::http::StatusCode::OK, "{answer}");
    node.pay("", "o-2", json!({ "order": { "id": "b", "note": "gift" } })).await;
    assert_eq!(node.end("", "o-2").await["status"], "completed");
    assert_eq!(calls.lock().unwrap().pop().unwrap().message["order"]["note"], "gift");
}
