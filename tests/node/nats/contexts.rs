//! Users of contexts on NATS: `orlog nats permissions` on a real server, a table of every operation and list.

use std::collections::BTreeSet;
use std::path::Path;

use orlog::access::{Context, Member};
use orlog_bus::nats::{
    Connection, Credentials, NatsRegistry, Options, StreamRetention, StreamSet, StreamsConfig,
    WORKFLOW_COMMANDS, apply,
};
use orlog_bus::registry::Registry as _;
use orlog_model::{EffectName, TenantId, Timestamp};
use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use serde_json::{Value, json};

use super::security::ACK_FORMATS;
use crate::harness::process::{orlog, run};

const LISTS: [&str; 3] = ["admins", "readers", "executors"];

fn server_with_permissions(tenants: &[&str], settings: &str) -> (NatsServer, String) {
    let tenants: Vec<_> = tenants
        .iter()
        .map(|tenant| TenantId::new(*tenant).unwrap())
        .collect();
    let effects = [EffectName::new("media.cut").unwrap()];
    let text =
        orlog::access::nats_authorization(&"a.example.com".parse().unwrap(), &tenants, &effects);
    let names: Vec<String> = ["OPERATOR", "SAGA", "EFFECT"]
        .map(str::to_owned)
        .into_iter()
        .chain(
            tenants
                .iter()
                .flat_map(|tenant| LISTS.map(|list| format!("{tenant}_{list}"))),
        )
        .collect();
    let config = names.iter().fold(text.clone(), |text, name| {
        text.replace(&format!("${name},"), &format!("{},", password(name)))
    });
    (
        NatsServer::start_with(&(settings.to_owned() + &config)),
        text,
    )
}

fn password(name: &str) -> String {
    format!("{}-secret", name.to_lowercase().replace('_', "-"))
}

async fn connect(server: &NatsServer, user: &str) -> Connection {
    let credentials = Credentials::User(user.to_owned(), format!("{user}-secret"));
    let options = Options {
        servers: vec![server.url()],
        name: "test".to_owned(),
        credentials,
        ..Options::default()
    };
    Connection::open(&options).await.unwrap()
}

fn plan() -> StreamSet {
    let retention = StreamRetention {
        age: None,
        bytes: None,
    };
    let mut plan = StreamSet::from_config(&StreamsConfig {
        replicas: 1,
        duplicate_window: std::time::Duration::from_mins(2),
        commands: retention,
        events: retention,
        dead_letters: retention,
        aggregates: Some(retention),
    });
    plan.0.push(NatsRegistry::plan(1));
    plan
}

/// Runs the command with an account.
async fn permissions(server: &NatsServer, dir: &Path, user: &str, args: &[&str]) -> String {
    let config = dir.join(format!("{user}.toml"));
    let text = format!(
        "[identity]\nname = \"a.example.com\"\n[bus]\nkind = \"nats\"\n[nats]\nservers = [{:?}]\nuser = {user:?}\npassword = \"env:PASSWORD\"\n",
        server.url()
    );
    std::fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let fixed = [
        "nats",
        "permissions",
        "--config",
        &config,
        "--effect",
        "media.cut",
    ];
    let mut command = orlog(&[&fixed[..], args].concat());
    command.env("PASSWORD", format!("{user}-secret"));
    let (code, output, error) = run(command).await;
    assert_eq!(code, 0, "{error}");
    output
}

fn login(server: &NatsServer, user: &str) -> RawNatsClient {
    let credentials = json!({ "user": user, "pass": format!("{user}-secret") });
    RawNatsClient::connect_as(server.port, &credentials).unwrap()
}

/// Sends a request as a user, with its inbox. Returns whether the server permits it.
fn is_permitted(server: &NatsServer, user: &str, subject: &str) -> bool {
    let result = login(server, user)
        .with_inbox(&format!("_INBOX_{user}.1"))
        .request(subject, b"{}");
    match result {
        Err(error) if error.contains("Permissions Violation") => false,
        Err(error) => panic!("{user} {subject}: {error}"),
        Ok(_) => true,
    }
}

/// Creates the streams, the registry with contexts of these tenants, and their consumers.
async fn furnish(server: &NatsServer, tenants: &[&str], text: &str) {
    let dir = tempfile::tempdir().unwrap();
    apply(
        &connect(server, "operator").await,
        &plan(),
        Timestamp::default(),
    )
    .await
    .unwrap();
    // A pod writes the registry, from which the command reads the contexts.
    let registry = NatsRegistry::open(&connect(server, "saga").await)
        .await
        .unwrap();
    let mut context = Context::new(Timestamp::default());
    let admins = BTreeSet::from(["user:ada".parse::<Member>().unwrap()]);
    context.replace(
        [admins, BTreeSet::new(), BTreeSet::new()],
        Timestamp::default(),
        None,
    );
    for tenant in tenants {
        let record = serde_json::to_string(&context).unwrap();
        registry
            .put(&format!("context.{tenant}"), Some(record), 0)
            .await
            .unwrap()
            .unwrap();
    }
    let printed = permissions(server, dir.path(), "operator", &[]).await;
    assert_eq!(printed.trim_end(), text.trim_end());
    for _ in 0..2 {
        let consumers = permissions(server, dir.path(), "operator", &["--create-consumers"]).await;
        assert!(
            consumers.contains("context-acme-media%2Ecut"),
            "{consumers}"
        );
    }
    for subject in [
        "tenant.acme.workflow_event.order.o-1",
        "tenant.acme.effect.media%2Ecut.c-1",
    ] {
        let ack = login(server, "saga").request(subject, b"{}").unwrap();
        let ack: Value = serde_json::from_slice(&ack).unwrap();
        assert!(ack["seq"].is_u64(), "{ack}");
    }
}

fn next(stream: &str, consumer: &str) -> String {
    format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}")
}

/// Returns operations, and the lists of acme that permit each.
fn operations() -> Vec<(String, &'static [&'static str])> {
    let direct = |subject: &str| format!("$JS.API.DIRECT.GET.WORKFLOW_EVENTS.{subject}");
    let info = |consumer: &str| format!("$JS.API.CONSUMER.INFO.{consumer}");
    vec![
        (
            "tenant.acme.workflow_event.order.o-2".to_owned(),
            &["admins"],
        ),
        ("tenant.acme.workflow.order.o-2".to_owned(), &["admins"]),
        (
            "tenant.acme.effect_result.media%2Ecut.c-1".to_owned(),
            &["admins", "executors"],
        ),
        (
            direct("tenant.acme.effect_result.media%2Ecut.c-1"),
            &["admins", "executors"],
        ),
        (next("WORKFLOW_EVENTS", "context-acme-admins"), &["admins"]),
        (
            next("WORKFLOW_EVENTS", "context-acme-readers"),
            &["readers"],
        ),
        (info("WORKFLOW_EVENTS.context-acme-readers"), &["readers"]),
        (
            info("WORKFLOW_COMMANDS.context-acme-media%2Ecut"),
            &["admins", "executors"],
        ),
        ("tenant.acme.effect_result.pay.c-1".to_owned(), &[]),
        ("tenant.acme.effect.media%2Ecut.c-2".to_owned(), &[]),
        ("tenant.acme.aggregate.order.1".to_owned(), &[]),
        ("tenant.acme.deadletter.x".to_owned(), &[]),
        ("tenant.beta.workflow_event.order.o-2".to_owned(), &[]),
        ("tenant.beta.effect_result.media%2Ecut.c-1".to_owned(), &[]),
        ("workflow_event.order.o-2".to_owned(), &[]),
        ("orlog.node.a%2Eexample%2Ecom".to_owned(), &[]),
        (direct("tenant.beta.effect_result.media%2Ecut.c-1"), &[]),
        (next("WORKFLOW_EVENTS", "context-beta-readers"), &[]),
        (next("WORKFLOW_COMMANDS", "context-beta-media%2Ecut"), &[]),
        (
            format!("$JS.API.CONSUMER.CREATE.{WORKFLOW_COMMANDS}.mine"),
            &[],
        ),
        ("$JS.API.STREAM.MSG.GET.WORKFLOW_EVENTS".to_owned(), &[]),
        ("$JS.API.STREAM.PURGE.WORKFLOW_EVENTS".to_owned(), &[]),
        ("$JS.API.STREAM.INFO.KV_orlog-registry".to_owned(), &[]),
        ("$KV.orlog-registry.context%2Eacme".to_owned(), &[]),
    ]
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_list_permits_exactly_its_operations_on_the_bus() {
    let tenants = ["acme", "beta"];
    let (server, text) = server_with_permissions(&tenants, "");
    furnish(&server, &tenants, &text).await;
    for (subject, lists) in operations() {
        for list in LISTS {
            let found = is_permitted(&server, &format!("acme-{list}"), &subject);
            assert_eq!(found, lists.contains(&list), "{subject} as {list} of acme");
            if subject.contains("acme") {
                let other = is_permitted(&server, &format!("beta-{list}"), &subject);
                assert!(!other, "{subject} as {list} of beta");
            }
        }
    }
    let executor = login(&server, "acme-executors")
        .with_inbox("_INBOX_acme-executors.1")
        .request(&next("WORKFLOW_COMMANDS", "context-acme-media%2Ecut"), b"1");
    assert_eq!(executor.unwrap(), b"{}");
    // A user receives neither the messages nor the responses of others.
    for list in LISTS {
        for subject in ["tenant.>", "_INBOX.>", "_INBOX_acme-other.>", "$JS.EVENT.>"] {
            let result = login(&server, &format!("acme-{list}")).subscribe(subject);
            assert!(
                result
                    .as_ref()
                    .is_err_and(|error| error.contains("Permissions Violation")),
                "{list} {subject}"
            );
        }
    }
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executors_acknowledge_commands_in_both_formats() {
    for (settings, format) in ACK_FORMATS {
        let tenants = ["acme", "beta"];
        let (server, text) = server_with_permissions(&tenants, settings);
        furnish(&server, &tenants, &text).await;
        let mut executor = login(&server, "acme-executors").with_inbox("_INBOX_acme-executors.1");
        let command = executor
            .request_message(&next("WORKFLOW_COMMANDS", "context-acme-media%2Ecut"), b"1")
            .unwrap();
        let reply = command.reply.unwrap();
        assert!(reply.starts_with(format), "{reply}");

        let mut other = login(&server, "beta-executors").with_inbox("_INBOX_beta-executors.1");
        let stolen = other.request(&reply, b"+ACK");
        assert!(
            stolen
                .as_ref()
                .is_err_and(|error| error.contains("Permissions Violation")),
            "{stolen:?}"
        );
        assert_eq!(executor.request(&reply, b"+ACK"), Ok(vec![]));
    }
}

#[test]
fn accounts_of_nodes_are_those_of_the_documentation() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/nats.md"))
        .unwrap();
    let text = orlog::access::nats_authorization(&"a.example.com".parse().unwrap(), &[], &[]);
    let accounts = text.strip_suffix("  ]\n}\n").unwrap();
    assert!(
        page.contains(accounts),
        "docs/nats.md differs from crates/node/src/access/nats_accounts.conf:\n{accounts}"
    );
}
