//! Permissions: the accounts of docs/nats.md on a real server, nkeys and TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlog::config::BusKind;
use orlog_bus::Bus;
use orlog_bus::effect_queue::{EffectQueue as _, JobSubscription};
use orlog_bus::nats::{
    ConnectError, Connection, Credentials, NatsEffectQueue, NatsStream, Options, StreamRetention,
    StreamSet, StreamsConfig, TlsOptions, WORKFLOW_COMMANDS, WORKFLOW_EVENTS, apply, diff,
};
use orlog_model::{EffectName, Timestamp};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::fixture::{message, subscribe, subscription, take};
use crate::harness::node::NodeBuilder;

/// Settings of the servers, and the beginning of the subjects of acknowledgements.
pub(super) const ACK_FORMATS: [(&str, &str); 2] = [
    ("", "$JS.ACK.WORKFLOW_COMMANDS."),
    ("feature_flags { js_ack_fc_v2: true }\n", "$JS.ACK._."),
];

const USERS: [&str; 4] = ["operator", "saga", "effect", "mailer"];

/// Starts a server with the accounts of the documentation.
fn documented() -> NatsServer {
    documented_with("")
}

/// Starts a server with the accounts of the documentation and more settings.
fn documented_with(settings: &str) -> NatsServer {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/nats.md"))
        .unwrap();
    let (_, block) = page.split_once("```conf\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let passwords = USERS.map(|user| {
        (
            format!("${}", user.to_uppercase()),
            format!("{user}-secret"),
        )
    });
    let accounts = passwords
        .iter()
        .fold(block.to_owned(), |text, (name, password)| {
            text.replace(name, password)
        });
    NatsServer::start_with(&(settings.to_owned() + &accounts))
}

fn account(user: &str) -> Credentials {
    Credentials::User(user.to_owned(), format!("{user}-secret"))
}

async fn connect(server: &NatsServer, credentials: Credentials) -> Connection {
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        credentials,
        ..Options::default()
    };
    Connection::open(&options).await.unwrap()
}

fn wire(server: &NatsServer, user: &str) -> RawNatsClient {
    RawNatsClient::connect_as(
        server.port,
        &json!({ "user": user, "pass": format!("{user}-secret") }),
    )
    .unwrap()
}

fn plan() -> StreamSet {
    let retention = StreamRetention {
        age: None,
        bytes: None,
    };
    StreamSet::from_config(&StreamsConfig {
        replicas: 1,
        duplicate_window: std::time::Duration::from_mins(2),
        commands: retention,
        events: retention,
        dead_letters: retention,
        aggregates: Some(retention),
    })
}

#[track_caller]
fn check_forbidden(server: &NatsServer, user: &str, subject: &str) {
    let result = wire(server, user).request(subject, b"{}");
    assert!(
        result
            .as_ref()
            .is_err_and(|e| e.contains("Permissions Violation")),
        "{user} {subject}: {result:?}"
    );
}

#[track_caller]
fn check_stored(server: &NatsServer, user: &str, subject: &str) {
    let ack: Value =
        serde_json::from_slice(&wire(server, user).request(subject, b"{}").unwrap()).unwrap();
    assert!(ack["seq"].is_u64(), "{user} {subject}: {ack}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_accounts_have_least_privilege() {
    let server = documented();
    let operator = connect(&server, account("operator")).await;
    apply(&operator, &plan(), Timestamp::default())
        .await
        .unwrap();

    // A pod with sagas inspects, reads, publishes and reports its position.
    let saga = connect(&server, account("saga")).await;
    assert_eq!(
        diff(&saga, &plan(), Timestamp::default()).await.unwrap(),
        []
    );
    for name in [
        "AGGREGATE_EVENTS",
        WORKFLOW_EVENTS,
        WORKFLOW_COMMANDS,
        "WORKFLOW_DEADLETTERS",
    ] {
        let bus = NatsStream::open(&saga, name, "pod").await.unwrap();
        let filters = vec![
            "tenant.*.workflow_event.>".to_owned(),
            "workflow_event.>".to_owned(),
        ];
        let filtered = orlog_bus::Subscription {
            filters,
            ..subscription("c", None)
        };
        let mut consumer = subscribe(&bus, filtered).await;
        if name == WORKFLOW_EVENTS {
            let fact = orlog_bus::Message {
                subject: "tenant.a.workflow_event.s.c".to_owned(),
                ..message(1)
            };
            bus.publish(vec![fact.into()]).await.unwrap();
            take(&mut *consumer, 1).await;
        }
        bus.save_cursors().await.unwrap();
    }
    for subject in [
        "tenant.a.effect.mail%2Esend.1",
        "effect.x.1",
        "tenant.a.workflow.s.c",
        "deadletter.x",
    ] {
        check_stored(&server, "saga", subject);
    }
    // Requests of peers: the subject of the node, and responses only to subjects of clients and imports.
    wire(&server, "saga")
        .subscribe("orlog.node.a%2Eexample%2Ecom")
        .unwrap();
    let other = wire(&server, "saga").subscribe("orlog.node.b%2Eexample%2Ecom");
    assert!(
        other
            .as_ref()
            .is_err_and(|error| error.contains("Permissions Violation")),
        "{other:?}"
    );
    for subject in ["orlog.node.b%2Eexample%2Ecom", "_INBOX.x", "_R_.x.y"] {
        // No client is subscribed.
        assert_eq!(
            wire(&server, "saga").request(subject, b"{}"),
            Err("503".to_owned()),
            "{subject}"
        );
        check_forbidden(&server, "effect", subject);
    }

    for subject in [
        "tenant.a.aggregate.order.1",
        "$JS.API.STREAM.PURGE.WORKFLOW_EVENTS",
        "$JS.API.STREAM.DELETE.WORKFLOW_EVENTS",
    ] {
        check_forbidden(&server, "saga", subject);
    }

    check_stored(&server, "effect", "tenant.a.effect_result.x.1");
    for subject in [
        "tenant.a.effect.x.1",
        "workflow_event.s.c",
        "$JS.API.STREAM.PURGE.WORKFLOW_COMMANDS",
    ] {
        check_forbidden(&server, "effect", subject);
    }

    let consumer = json!({ "stream_name": WORKFLOW_COMMANDS, "config": {
        "durable_name": "mailer", "ack_policy": "explicit", "filter_subjects": ["tenant.*.effect.mail%2Esend.*"],
    } });
    wire(&server, "operator").jetstream("CONSUMER.CREATE.WORKFLOW_COMMANDS.mailer", &consumer);
    let command =
        wire(&server, "mailer").request("$JS.API.CONSUMER.MSG.NEXT.WORKFLOW_COMMANDS.mailer", b"1");
    assert_eq!(command.unwrap(), b"{}");
    check_stored(&server, "mailer", "tenant.a.effect_result.mail%2Esend.1");
    for subject in [
        "tenant.a.effect_result.pay.1",
        "$JS.API.CONSUMER.MSG.NEXT.WORKFLOW_COMMANDS.other",
    ] {
        check_forbidden(&server, "mailer", subject);
    }

    for subject in ["tenant.a.workflow_event.s.c", "effect.x.1"] {
        check_forbidden(&server, "operator", subject);
    }
    for user in USERS {
        let result = wire(&server, user).subscribe("tenant.>");
        assert!(
            result
                .as_ref()
                .is_err_and(|e| e.contains("Permissions Violation")),
            "{user}: {result:?}"
        );
    }
    let stranger = Options {
        servers: vec![server.url()],
        ..Options::default()
    };
    assert!(
        Connection::open(&stranger)
            .await
            .unwrap_err()
            .to_string()
            .contains("cannot connect to NATS at")
    );
}

/// nats-server 2.16 uses the second format by default; earlier releases do with this flag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_accounts_acknowledge_jobs_in_both_formats() {
    for (settings, format) in ACK_FORMATS {
        let server = documented_with(settings);
        let operator = connect(&server, account("operator")).await;
        apply(&operator, &plan(), Timestamp::default())
            .await
            .unwrap();
        let consumer = json!({ "stream_name": WORKFLOW_COMMANDS, "config": {
            "durable_name": "mailer", "ack_policy": "explicit", "filter_subjects": ["tenant.*.effect.mail%2Esend.*"],
        } });
        wire(&server, "operator").jetstream("CONSUMER.CREATE.WORKFLOW_COMMANDS.mailer", &consumer);
        for subject in ["tenant.a.effect.mail%2Esend.1", "tenant.a.effect.pay.1"] {
            check_stored(&server, "saga", subject);
        }

        let command = wire(&server, "mailer")
            .request_message("$JS.API.CONSUMER.MSG.NEXT.WORKFLOW_COMMANDS.mailer", b"1")
            .unwrap();
        let reply = command.reply.unwrap();
        assert!(reply.starts_with(format), "{reply}");
        assert_eq!(wire(&server, "mailer").request(&reply, b"+ACK"), Ok(vec![]));

        let queue = NatsEffectQueue::new(connect(&server, account("effect")).await);
        let mut jobs = queue.subscribe_jobs(JobSubscription {
            effect: EffectName::new("pay").unwrap(),
            tenant: None,
            served: Arc::default(),
            ack_wait: Duration::from_secs(30),
        });
        let job = jobs.next(1).await.remove(0);
        job.ack.ack().await;
        until("the acknowledgement", async || {
            let info = wire(&server, "effect")
                .jetstream("CONSUMER.INFO.WORKFLOW_COMMANDS.effect-pay", &json!({}));
            (info["num_ack_pending"] == 0 && info["ack_floor"]["stream_seq"] == 2).then_some(())
        })
        .await;
    }
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_the_documented_account_exchanges_requests_with_peers() {
    let server = documented();
    let builder = NodeBuilder::new();
    let password = builder.dir.path().join("password");
    std::fs::write(&password, "saga-secret").unwrap();
    let builder = builder.config(|config| {
        config.bus.kind = BusKind::Nats;
        config.identity.name = Some("a.example.com".parse().unwrap());
        config.nats.servers = vec![server.url()];
        config.nats.provision = false;
        config.nats.manage_aggregate_stream = true;
        config.nats.user = "saga".to_owned();
        config.nats.password = Some(format!("file:{}", password.display()).parse().unwrap());
    });
    let operator = connect(&server, account("operator")).await;
    orlog::transport::streams(&operator, &builder.config, Timestamp::default(), true)
        .await
        .unwrap();
    let node = builder.start().await;
    node.serve().await;
    // The node reads its own document as that of a peer: request, reply and their permissions are those of two nodes.
    let address = json!({ "address": "nats:orlog.node.a%2Eexample%2Ecom" });
    let document = until("the document", || async {
        let found = node.post("/v1/node-documents", &address).await;
        found.status.is_success().then(|| found.ok())
    });
    assert_eq!(document.await["name"], "a.example.com");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nkey_authentication_works() {
    // The key pair of the NATS documentation.
    let (seed, public) = (
        "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY",
        "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
    );
    let users = format!("authorization {{ users: [ {{ nkey: {public} }} ] }}\n");
    let server = NatsServer::start_with(&users);
    let connection = connect(&server, Credentials::Nkey(seed.to_owned())).await;
    assert!(connection.is_up());
    let options = Options {
        servers: vec![server.url()],
        ..Options::default()
    };
    assert!(Connection::open(&options).await.is_err());
}

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/certs")
        .join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_is_required() {
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(certificate);
    let (cert, key, ca_text) = (cert.display(), key.display(), ca.display());
    let tls = format!(
        "tls {{ cert_file: \"{cert}\", key_file: \"{key}\", ca_file: \"{ca_text}\", verify: true }}\n"
    );
    let server = NatsServer::start_with(&tls);
    let open = |tls: TlsOptions| {
        let servers = vec![format!("tls://127.0.0.1:{}", server.port)];
        async move {
            Connection::open(&Options {
                servers,
                name: "test".to_owned(),
                tls,
                ..Options::default()
            })
            .await
        }
    };
    let identity = Some((certificate("client.pem"), certificate("client.key")));
    let whole = TlsOptions {
        required: true,
        ca: Some(ca.clone()),
        identity,
    };
    let connection = until("a connection", || async { open(whole.clone()).await.ok() }).await;
    assert!(connection.is_up());
    open(TlsOptions {
        identity: None,
        ..whole.clone()
    })
    .await
    .unwrap_err();
    open(TlsOptions { ca: None, ..whole }).await.unwrap_err();
}

/// Returns the configuration of the servers in the manifest for one server, with the files and passwords of the tests.
fn manifest_config() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/k8s/nats/nats.yaml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let (_, text) = manifest.split_once("nats.conf: |\n").unwrap();
    let (text, _) = text.split_once("\n---\n").unwrap();
    // A single server on a free port, which the fixture configures, forms no cluster.
    let (_, text) = text.split_once("\n    tls {").unwrap();
    let replaced = [
        (
            "/etc/nats/tls/tls.crt",
            certificate("server.pem").display().to_string(),
        ),
        (
            "/etc/nats/tls/tls.key",
            certificate("server.key").display().to_string(),
        ),
        ("$ORLOG_PASSWORD", "orlog-secret".to_owned()),
        ("$EFFECT_PASSWORD", "effect-secret".to_owned()),
    ];
    replaced
        .iter()
        .fold(format!("tls {{{text}"), |text, (from, to)| {
            text.replace(from, to)
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_manifest_require_tls_and_a_password() {
    let config = manifest_config();
    let (server, plain) = (NatsServer::start_with(&config), NatsServer::start());
    let open = |port: u16, ca: Option<PathBuf>, credentials: Credentials| {
        let servers = vec![format!("tls://127.0.0.1:{port}")];
        let tls = TlsOptions {
            required: true,
            ca,
            identity: None,
        };
        async move {
            let options = Options {
                servers,
                name: "test".to_owned(),
                credentials,
                tls,
                ..Options::default()
            };
            Connection::open(&options).await
        }
    };
    let ca = Some(certificate("ca.pem"));
    let orlog = until("a connection", || async {
        open(server.port, ca.clone(), account("orlog")).await.ok()
    })
    .await;
    let effect = open(server.port, ca.clone(), account("effect"))
        .await
        .unwrap();
    // The pods that run sagas create the streams; those that execute effects may not.
    assert!(apply(&effect, &plan(), Timestamp::default()).await.is_err());
    apply(&orlog, &plan(), Timestamp::default()).await.unwrap();
    let other = Credentials::User("orlog".to_owned(), "effect-secret".to_owned());
    open(server.port, ca.clone(), other)
        .await
        .expect_err("a wrong password is rejected");
    open(server.port, ca.clone(), Credentials::None)
        .await
        .expect_err("a missing password is rejected");
    open(server.port, None, account("orlog"))
        .await
        .expect_err("the certificate of an unknown CA is rejected");
    let error = open(plain.port, ca, Credentials::None)
        .await
        .expect_err("a server without TLS is rejected");
    assert!(matches!(error, ConnectError::Plaintext { .. }), "{error}");
    let by_scheme = error.to_string();
    assert!(
        by_scheme.contains("does not offer TLS") && by_scheme.contains("nats.tls.allow_plaintext"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_outside_loopback_is_rejected_at_start_unless_allowed() {
    let server = NatsServer::start();
    let mut config = orlog::Config::default();
    // Reaches this machine and is not a loopback address.
    config.nats.servers = vec![format!("nats://0.0.0.0:{}", server.port)];
    let error = format!(
        "{:#}",
        orlog::transport::connect(&config)
            .await
            .expect_err("plain text")
    );
    assert!(
        error.contains("does not offer TLS") && error.contains("nats.tls.allow_plaintext"),
        "{error}"
    );
    config.nats.tls.allow_plaintext = true;
    orlog::transport::connect(&config).await.unwrap();
    config.nats.tls.allow_plaintext = false;
    config.nats.servers = vec![server.url()];
    orlog::transport::connect(&config).await.unwrap();
}

#[test]
fn effect_user_of_the_manifest_has_the_documented_permissions() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/nats.md"))
        .unwrap();
    let manifest = manifest_config();
    let publish = |text: &str| {
        let (_, text) = text.split_once("{ user: effect").unwrap();
        let (_, text) = text.split_once("publish: [").unwrap();
        text.split_once(']')
            .unwrap()
            .0
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(publish(&manifest), publish(&page));
}
