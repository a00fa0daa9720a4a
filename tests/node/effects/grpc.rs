//! gRPC provider against a real server: messages, statuses, rules, credentials, reflection, TLS,
//! egress.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::grpc::GrpcConfig;
use orlog_effect::{ProviderError, TransientCause, Upstream};
use orlog_testkit::grpc_server::{
    GrpcServer, GrpcServerBuilder, Handler, ReceivedCall, Reflection, descriptors,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Code, Status};

use crate::effects::attempts::{at, charge, failure, perform, trouble};
use crate::effects::docs::{block, with};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

const PROTO: &str = include_str!("../../protos/payments.proto");

/// Creates a handler that responds with a function, and the record of its calls.
fn answering(
    response: impl Fn(&ReceivedCall) -> Result<Value, Status> + Send + Sync + 'static,
) -> (Handler, Arc<Mutex<Vec<ReceivedCall>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&calls);
    let handler: Handler = Arc::new(move |called| {
        let response = response(&called);
        recorded.lock().push(called);
        Box::pin(std::future::ready(response))
    });
    (handler, calls)
}

async fn open(reflection: Reflection, handler: Handler) -> GrpcServer {
    GrpcServerBuilder::new(PROTO, reflection)
        .start(handler)
        .await
}

fn dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("payments.pb"), descriptors(PROTO)).unwrap();
    dir
}

fn upstream(config: &str) -> Upstream {
    let config: GrpcConfig = toml::from_str(config).unwrap();
    config
        .upstream(UpstreamSite::new("pay").in_dir(dir().path()))
        .unwrap()
}

fn method_upstream(endpoint: &str, method: &str, more: &str) -> Upstream {
    upstream(&format!(
        "endpoint = {endpoint:?}\ndescriptors = \"payments.pb\"\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/{method}\"\n{more}"
    ))
}

fn file(text: &str) -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, text).unwrap();
    let reference = format!("file:{}", path.display());
    (dir, reference)
}

#[tokio::test]
async fn messages_use_proto3_json() {
    let (handler, calls) = answering(|called| Ok(called.message.clone()));
    let server = open(Reflection::No, handler).await;
    let upstream = method_upstream(&server.endpoint(), "Echo", "");
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
    assert_eq!(
        (&empty["big"], &empty["tags"], empty.get("note")),
        (&json!("0"), &json!([]), None)
    );
    assert_eq!(calls.lock().len(), 2);
}

#[tokio::test]
async fn invalid_payload_fails_naming_the_field() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, handler).await;
    let upstream = method_upstream(&server.endpoint(), "Echo", "");
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
        let response = perform(&upstream, payload).await;
        let (code, message) = failure(&response);
        assert!(
            code == "invalid_payload" && message.contains(field),
            "{field}: {message}"
        );
        assert!(matches!(response, Err(ProviderError::Permanent { .. })));
    }
    assert!(calls.lock().is_empty());
}

/// Requirements: R10.
#[tokio::test]
async fn status_codes_are_classified() {
    let (handler, _) = answering(|called| {
        let code = called.message["small"].as_i64().unwrap();
        Err(Status::new(
            Code::from(i32::try_from(code).unwrap()),
            "so it is",
        ))
    });
    let server = open(Reflection::No, handler).await;
    let upstream = method_upstream(&server.endpoint(), "Echo", "");
    for (code, name, expected) in [
        (1, "grpc_cancelled", Some(TransientCause::ResponseLost)),
        (2, "grpc_unknown", Some(TransientCause::ResponseLost)),
        (3, "grpc_invalid_argument", None),
        (
            4,
            "grpc_deadline_exceeded",
            Some(TransientCause::ResponseLost),
        ),
        (5, "grpc_not_found", None),
        (6, "grpc_already_exists", None),
        (7, "grpc_permission_denied", None),
        (
            8,
            "grpc_resource_exhausted",
            Some(TransientCause::ReportedThrottled),
        ),
        (9, "grpc_failed_precondition", None),
        (10, "grpc_aborted", Some(TransientCause::Throttled)),
        (11, "grpc_out_of_range", None),
        (12, "grpc_unimplemented", None),
        (13, "grpc_internal", Some(TransientCause::ResponseLost)),
        (
            14,
            "grpc_unavailable",
            Some(TransientCause::ReportedUnavailable),
        ),
        (15, "grpc_data_loss", Some(TransientCause::ResponseLost)),
        (16, "grpc_unauthenticated", None),
    ] {
        let response = perform(&upstream, json!({ "small": code })).await;
        assert_eq!(
            (failure(&response).0.as_str(), trouble(&response)),
            (name, expected)
        );
        assert!(failure(&response).1.ends_with("so it is"), "{response:?}");
    }
}

/// Returns a `google.rpc.Status` with one detail of a kind whose first fields are texts.
fn detailed(code: Code, message: &str, kind: &str, texts: &[&str]) -> Status {
    let piece = |tag: u8, bytes: &[u8]| {
        [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    };
    let value: Vec<u8> = (1..)
        .zip(texts)
        .flat_map(|(tag, text)| piece(tag, text.as_bytes()))
        .collect();
    let any = [
        piece(1, format!("type.googleapis.com/{kind}").as_bytes()),
        piece(2, &value),
    ]
    .concat();
    Status::with_details(code, message, piece(3, &any).into())
}

#[tokio::test]
async fn response_rules_are_applied() {
    let (handler, _) = answering(|called| match called.message["order"]["id"].as_str() {
        Some("gone") => Err(Status::not_found("no such order")),
        Some("poor") => Err(detailed(
            Code::FailedPrecondition,
            "no money",
            "google.rpc.ErrorInfo",
            &["FUNDS", "pay.example"],
        )),
        Some("odd") => Err(detailed(
            Code::FailedPrecondition,
            "odd",
            "payments.v1.Order",
            &["o-9"],
        )),
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
    let upstream = method_upstream(&server.endpoint(), "Charge", &rules.map(rule).concat());
    let order = |id: &str| json!({ "order": { "id": id } });
    let missing = perform(&upstream, order("gone")).await.unwrap();
    assert_eq!(missing.event.unwrap().as_str(), "AlreadyDone");
    let poor = perform(&upstream, order("poor")).await;
    assert_eq!(failure(&poor), ("FUNDS".to_owned(), "no money".to_owned()));
    let Err(ProviderError::Permanent { event, payload, .. }) = poor else {
        panic!("it is final")
    };
    assert_eq!(event.unwrap().as_str(), "PaymentDeclined");
    assert_eq!(payload["code"], "FAILED_PRECONDITION");
    assert_eq!(payload["details"][0]["@type"], "google.rpc.ErrorInfo");
    let Err(ProviderError::Permanent { payload, .. }) = perform(&upstream, order("odd")).await
    else {
        panic!()
    };
    assert_eq!(
        payload["details"][0],
        json!({ "@type": "payments.v1.Order", "id": "o-9" })
    );
    assert_eq!(
        failure(&perform(&upstream, order("void")).await).0,
        "voided"
    );
    assert_eq!(
        perform(&upstream, order("good")).await.unwrap().payload,
        json!("r-1")
    );
}

#[tokio::test]
async fn metadata_and_tokens_are_sent_and_scrubbed_from_responses() {
    let issuer = HttpUpstream::open().await;
    issuer.script(
        200,
        &[],
        r#"{"access_token": "token-one", "expires_in": 600}"#,
    );
    issuer.script(
        200,
        &[],
        r#"{"access_token": "token-two", "expires_in": 600}"#,
    );
    let (handler, calls) = answering(|called| {
        let header = |name: &str| {
            called
                .metadata
                .get(name)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        match header("authorization").as_str() {
            "Bearer token-one" => Err(Status::unauthenticated("expired")),
            token if called.message["order"]["id"] == "echo" => Err(Status::not_found(format!(
                "no: {token} {}",
                header("x-key")
            ))),
            token => Ok(json!({ "receipt": token })),
        }
    });
    let server = open(Reflection::No, handler).await;
    let (_dir, secret) = file("s3cret-canary\n");
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
    let reply = perform(&upstream, json!({ "order": { "id": "o-1" } }))
        .await
        .unwrap();
    assert_eq!(reply.payload, json!({ "receipt": "Bearer [secret]" }));
    let echo = perform(&upstream, json!({ "order": { "id": "echo" } })).await;
    assert!(
        failure(&echo)
            .1
            .ends_with("NOT_FOUND: no: Bearer [secret] [secret]"),
        "{echo:?}"
    );
    let Err(ProviderError::Permanent { payload, .. }) = echo else {
        panic!("it is final")
    };
    assert_eq!(payload["message"], "no: Bearer [secret] [secret]");
    let calls = calls.lock().clone();
    assert_eq!((calls.len(), issuer.received().len()), (3, 2));
    let key = charge(Value::Null).id.to_string();
    assert_eq!(calls[1].message["meta"]["requestId"], key.as_str());
    for (name, expected) in [
        ("x-order", "o:o-1"),
        ("x-key", "s3cret-canary"),
        ("idempotency-key", key.as_str()),
        ("x-tenant-id", "acme"),
        ("grpc-timeout", "10000000u"),
    ] {
        assert_eq!(
            calls[1].metadata.get(name).unwrap().to_str().unwrap(),
            expected
        );
    }
    let broken = perform(&upstream, json!({ "order": { "id": "a\nb" } })).await;
    assert!(
        failure(&broken)
            .1
            .contains("the value of x-order contains a line break"),
        "{broken:?}"
    );
}

#[tokio::test]
async fn message_size_limits_are_enforced() {
    let (handler, calls) = answering(|_| Ok(json!({ "receipt": "r".repeat(1000) })));
    let server = open(Reflection::No, handler).await;
    let upstream = upstream(&format!(
        "endpoint = {:?}\ndescriptors = \"payments.pb\"\nmax_request_bytes = 100\nmax_response_bytes = 100\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
        server.endpoint()
    ));
    let reply = perform(&upstream, json!({ "order": { "id": "o-1" } }))
        .await
        .unwrap();
    assert_eq!(reply.payload, json!({ "truncated": true }));
    let (code, message) =
        failure(&perform(&upstream, json!({ "order": { "id": "o".repeat(200) } })).await);
    assert!(
        code == "invalid_payload" && message.contains("the limit is 100"),
        "{message}"
    );
    assert_eq!(calls.lock().len(), 1);
}

/// Returns the next version of the service: orders have notes.
fn next_proto() -> &'static str {
    PROTO
        .replace("message Order {", "message Order {\n  string note = 2;")
        .leak()
}

async fn replaced(server: GrpcServer, handler: &Handler) -> GrpcServer {
    let at = Some(server.address);
    server.close().await;
    GrpcServerBuilder {
        at,
        ..GrpcServerBuilder::new(next_proto(), Reflection::V1)
    }
    .start(Arc::clone(handler))
    .await
}

#[tokio::test]
async fn descriptors_are_refetched_when_a_payload_does_not_fit() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::V1, Arc::clone(&handler)).await;
    let upstream = upstream(&format!(
        "endpoint = {:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
        server.endpoint()
    ));
    let noted = || json!({ "order": { "id": "o-1", "note": "gift" } });
    assert_eq!(
        failure(&at(0, &upstream, noted()).await).0,
        "invalid_payload"
    );
    let server = replaced(server, &handler).await;
    assert_eq!(
        failure(&at(5, &upstream, noted()).await).0,
        "invalid_payload"
    );
    at(15, &upstream, noted()).await.unwrap();
    assert_eq!(calls.lock().pop().unwrap().message["order"]["note"], "gift");
    drop(server);
}

#[tokio::test]
async fn missing_reflection_retries_and_missing_service_fails() {
    let (handler, _) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, Arc::clone(&handler)).await;
    let by_reflection = |endpoint: &str, method: &str| {
        upstream(&format!(
            "endpoint = {endpoint:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = {method:?}"
        ))
    };
    let silent = perform(
        &by_reflection(&server.endpoint(), "payments.v1.Payments/Charge"),
        Value::Null,
    )
    .await;
    assert_eq!(
        (failure(&silent).0.as_str(), trouble(&silent)),
        ("reflection", Some(TransientCause::Unavailable))
    );
    assert!(
        failure(&silent).1.contains("no reflection service"),
        "{silent:?}"
    );
    let server = open(Reflection::V1, handler).await;
    for (method, expected) in [
        (
            "payments.v2.Payments/Charge",
            "reflection has no service payments.v2.Payments",
        ),
        (
            "payments.v1.Payments/Pay",
            "has no method Pay; methods: Charge, FindCharge, Echo, Watch",
        ),
        ("payments.v1.Payments/Watch", "is a streaming method"),
    ] {
        let response = perform(&by_reflection(&server.endpoint(), method), Value::Null).await;
        let (code, message) = failure(&response);
        assert!(
            code == "grpc_unimplemented" && message.contains(expected),
            "{message}"
        );
        assert_eq!(trouble(&response), None);
    }
}

#[tokio::test]
async fn refused_connection_is_unavailable_and_broken_one_is_in_doubt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let upstream = method_upstream(&endpoint, "Charge", "");
    let breaking = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        // The call is received when its path arrives, compressed or not; the length of the method shows it.
        while received.len() < 200 {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0);
        }
    });
    let broken = perform(&upstream, json!({ "order": { "id": "o".repeat(300) } })).await;
    assert_eq!(
        (failure(&broken).0.as_str(), trouble(&broken)),
        ("transport", Some(TransientCause::ResponseLost))
    );
    breaking.await.unwrap();
    let absent = perform(&upstream, Value::Null).await;
    assert_eq!(
        (failure(&absent).0.as_str(), trouble(&absent)),
        ("unreachable", Some(TransientCause::Unavailable))
    );
    assert!(
        failure(&absent).1.contains("Connection refused"),
        "{absent:?}"
    );
}

fn certificate(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/certs")
        .join(name)
        .display()
        .to_string()
}

#[tokio::test]
async fn mutual_tls_is_supported() {
    let read = |name: &str| std::fs::read(certificate(name)).unwrap();
    let (handler, _) = answering(|_| Ok(json!({ "receipt": "r-1" })));
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(read("server.pem"), read("server.key")))
        .client_ca_root(Certificate::from_pem(read("ca.pem")));
    let opening = GrpcServerBuilder {
        tls: Some(tls),
        ..GrpcServerBuilder::new(PROTO, Reflection::V1)
    };
    let server = opening.start(handler).await;
    let at = |tls: &str| {
        upstream(&format!(
            "endpoint = \"https://localhost:{}\"\nreflection = true\n{tls}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"",
            server.address.port()
        ))
    };
    let (ca, cert, key) = (
        certificate("ca.pem"),
        certificate("client.pem"),
        certificate("client.key"),
    );
    let known =
        format!("tls = {{ ca = \"file:{ca}\", cert = \"file:{cert}\", key = \"file:{key}\" }}");
    assert_eq!(
        perform(&at(&known), Value::Null).await.unwrap().payload["receipt"],
        "r-1"
    );
    let stranger = perform(&at(""), Value::Null).await;
    assert_eq!(
        (failure(&stranger).0.as_str(), trouble(&stranger)),
        ("unreachable", Some(TransientCause::Unavailable))
    );
    assert!(
        perform(&at(&format!("tls = {{ ca = \"file:{ca}\" }}")), Value::Null)
            .await
            .is_err()
    );
    let missing = perform(&at("tls = { ca = \"file:/nowhere/ca.pem\" }"), Value::Null).await;
    assert!(
        failure(&missing).0 == "tls" && !failure(&missing).1.contains("/nowhere"),
        "{missing:?}"
    );
}

#[tokio::test]
async fn egress_rules_block_private_endpoints() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::No, handler).await;
    let at = |egress: &str| {
        let endpoint = format!("http://localhost:{}", server.address.port());
        upstream(&format!(
            "endpoint = {endpoint:?}\ndescriptors = \"payments.pb\"\n{egress}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\""
        ))
    };
    let rejected = perform(&at("egress = {}"), Value::Null).await;
    assert_eq!(
        (failure(&rejected).0.as_str(), trouble(&rejected)),
        ("egress_denied", None)
    );
    assert!(calls.lock().is_empty());
    perform(&at("egress = { private = true }"), Value::Null)
        .await
        .unwrap();
    perform(&at(""), Value::Null).await.unwrap();
}

#[test]
fn configuration_errors_name_the_key() {
    let dir = dir();
    let prefix = "endpoint = \"http://h:1\"\ndescriptors = \"payments.pb\"";
    let effect = |more: &str| {
        format!(
            "{prefix}\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"\n{more}"
        )
    };
    let method = |name: &str| format!("{prefix}\n[effects.\"pay.charge\"]\nmethod = {name:?}\n");
    for (text, expected) in [
        (
            "endpoint = \"h:1\"\nreflection = true".to_owned(),
            "upstream pay: invalid endpoint \"h:1\"",
        ),
        (
            "endpoint = \"http://h:1/x\"\nreflection = true".to_owned(),
            "contains a path",
        ),
        (
            "endpoint = \"http://h:1\"".to_owned(),
            "set descriptors = \"file.pb\" or reflection = true",
        ),
        (format!("{prefix}\nreflection = true"), "remove one"),
        (
            "endpoint = \"http://h:1\"\ndescriptors = \"no.pb\"".to_owned(),
            "no.pb: No such file or directory",
        ),
        (
            "endpoint = \"http://h:1\"\ndescriptors = \"bad.pb\"".to_owned(),
            "generate them with protoc",
        ),
        (
            format!("{prefix}\ntls = {{ ca = \"file:/ca\" }}"),
            "tls requires an endpoint with the scheme https://",
        ),
        (
            format!("{prefix}\negress = {{ allow = [\"x.io\"] }}"),
            "invalid endpoint: host \"h\" is not allowed; add it to egress.allow",
        ),
        (
            method("Charge"),
            "upstream pay, effect pay.charge: invalid method \"Charge\"; example: payments.v1.Payments/Charge",
        ),
        (
            method("payments.v1.Pay/Charge"),
            "unknown service payments.v1.Pay",
        ),
        (
            method("payments.v1.Payments/Watch"),
            "is a streaming method",
        ),
        (
            effect("key_field = \"meta.nope\""),
            "payments.v1.Meta has no singular field \"nope\"",
        ),
        (effect("key_field = \"amount\""), "is not a string"),
        (
            effect("metadata = { \"grpc-timeout\" = \"1S\" }"),
            "is reserved for gRPC or binary",
        ),
        (
            effect("metadata = { \"x-key\" = \"env:KEY\" }"),
            "would send the reference itself",
        ),
        (
            effect("body = [\"{env:KEY}\"]"),
            "a secret is not allowed in a body; send it in a header",
        ),
        (
            effect("responses = [{ status = \"NOPE\", result = \"failed\" }]"),
            "\"NOPE\" is not a valid status code; example: NOT_FOUND",
        ),
        (
            effect("responses = [{ result = \"failed\", payload = \"a\" }]"),
            "responses[0]",
        ),
    ] {
        std::fs::write(dir.path().join("bad.pb"), "no descriptors").unwrap();
        let read = toml::from_str::<GrpcConfig>(&text).map_err(|error| error.to_string());
        let made = read.and_then(|config| {
            config
                .upstream(UpstreamSite::new("pay").in_dir(dir.path()))
                .map_err(|error| error.to_string())
        });
        let error = made
            .err()
            .unwrap_or_else(|| panic!("the configuration is invalid: {text}"));
        assert!(error.contains(expected), "{error}");
    }
}

/// Returns the example of the documentation page with the server's address and token.
fn example(address: SocketAddr, secret: &str) -> String {
    let text = block("grpc.md", "upstreams/payments.toml");
    let text = with(
        &text,
        "https://payments.example:443",
        &format!("http://{address}"),
    );
    with(&text, "env:PAYMENTS_TOKEN", secret)
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let proto = block("grpc.md", "payments.proto").leak();
    let (handler, calls) = answering(|called| match called.message["amount"].as_str() {
        Some("13") => Err(detailed(
            Code::FailedPrecondition,
            "no money",
            "google.rpc.ErrorInfo",
            &["FUNDS", "pay"],
        )),
        _ => Ok(json!({ "receipt": "r-1" })),
    });
    let server = GrpcServerBuilder::new(proto, Reflection::No)
        .start(handler)
        .await;
    let (_dir, secret) = file("the-token");
    let dirs = Dirs::new(&[("payments", &example(server.address, &secret))]);
    dirs.define(
        "payment",
        &block("grpc.md", "definitions/payment.saga.yaml"),
    );
    std::fs::write(dirs.path("effects").join("payments.pb"), descriptors(proto)).unwrap();
    let node = dirs.start().await;
    node.pay("acme", "o-1", json!({ "amount": 125 })).await;
    let done = node.end("acme", "o-1").await;
    assert_eq!(
        (&done["status"], &done["state"]["vars"]["receipt"]),
        (&json!("completed"), &json!("r-1")),
        "{done}"
    );
    node.pay("acme", "o-2", json!({ "amount": 13 })).await;
    let failed = node.end("acme", "o-2").await;
    assert!(
        failed["status"] == "failed" && failed.to_string().contains("FUNDS"),
        "{failed}"
    );
    let called = calls.lock()[0].clone();
    assert_eq!(
        (&called.message["order"]["id"], &called.message["amount"]),
        (&json!("o-1"), &json!("125"))
    );
    let header = |name: &str| {
        called
            .metadata
            .get(name)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(header("authorization"), "Bearer the-token");
    assert_eq!(
        called.message["meta"]["requestId"],
        header("idempotency-key")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_refetches_descriptors() {
    let (handler, calls) = answering(|_| Ok(Value::Null));
    let server = open(Reflection::V1, Arc::clone(&handler)).await;
    let text = format!(
        "kind = \"grpc\"\nendpoint = {:?}\nreflection = true\n[effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Charge\"\nbody = {{ order = \"{{order}}\" }}",
        server.endpoint()
    );
    let node = crate::effects::node::Node::start(&[("pay", &text)]).await;
    node.pay("", "o-1", json!({ "order": { "id": "a" } })).await;
    assert_eq!(node.end("", "o-1").await["status"], "completed");
    let _server = replaced(server, &handler).await;
    let (status, response) = node.reload().await;
    assert_eq!(status, axum::http::StatusCode::OK, "{response}");
    node.pay("", "o-2", json!({ "order": { "id": "b", "note": "gift" } }))
        .await;
    assert_eq!(node.end("", "o-2").await["status"], "completed");
    assert_eq!(calls.lock().pop().unwrap().message["order"]["note"], "gift");
}
