//! Definitions of contexts: each context deploys its own, beside the shared ones, and has no access to those of others.

mod restarts;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use orlog::config::Config;
use orlog_effect::{FunctionProvider, Policy, Upstream};
use orlog_model::TenantId;
use orlog_store::Reader;
use orlog_testkit::wait::{until, until_ok};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::http::HttpResponse;
use crate::harness::node::{self, NodeBuilder};
use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::{placed, with_issuer};

/// Effects of upstreams: that permit the contexts acme and beta, that permit none, and that serve acme only.
const OPEN: &str = "test.charge";
const CLOSED: &str = "vault.open";
const OF_ACME: &str = "acme.print";

/// Executed effects: tenant and version of the definition, by order.
type Executed = Arc<Mutex<BTreeMap<String, (String, u64)>>>;

/// Node with signed tokens and the contexts acme and beta.
struct Fixture {
    node: node::Node,
    key: Key,
    jwks: Jwks,
    executed: Executed,
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

/// Returns an order that charges, then waits for `Shipped`.
fn order(version: u32) -> String {
    with_effect("order", version, OPEN)
}

fn with_effect(saga: &str, version: u32, effect: &str) -> String {
    format!(
        "saga: {saga}\nversion: {version}\ncorrelate: orderId\nstart: OrderPlaced\nvars: {{ orderId: =event.orderId }}\nsteps:\n  \
         - {{ id: charge, do: {{ effect: {effect}, data: {{ order: =vars.orderId, version: {version} }} }} }}\n  \
         - {{ id: ship, do: {{ event: Shipped }}, timeout: 1h }}\n"
    )
}

fn bundle(files: &[(&str, &str)]) -> Value {
    let files = files
        .iter()
        .map(|(name, text)| json!({ "name": name, "text": text }));
    json!({ "files": files.collect::<Vec<_>>() })
}

fn order_file(text: &str) -> Value {
    bundle(&[("order.saga.yaml", text)])
}

async fn start(
    dir: Arc<TempDir>,
    jwks: &Jwks,
    executed: &Executed,
    change: impl FnOnce(&mut Config),
) -> node::Node {
    let upstream = |name: &str, effect: &str| -> Upstream {
        let executed = Arc::clone(executed);
        let effect = FunctionProvider::new().effect(effect, move |call| {
            let order = call.payload["order"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let version = call.payload["version"].as_u64().unwrap_or_default();
            executed
                .lock()
                .insert(order, (call.instance.tenant.to_string(), version));
            async { Ok(json!({})) }
        });
        effect.upstream(name, Policy::default())
    };
    let open = upstream("bank", OPEN).for_contexts(["acme", "beta"].map(tenant).into());
    let of_acme = upstream("printer", OF_ACME).for_tenants(Some([tenant("acme")].into()));
    let builder = NodeBuilder::on(dir)
        .upstream(open)
        .upstream(upstream("vault", CLOSED))
        .upstream(of_acme);
    let builder = builder.config(|config| {
        with_issuer(config, &jwks.url);
        change(config);
    });
    builder.start().await
}

impl Fixture {
    /// Starts a node with the shared definition `order` version 1.
    async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let (dir, executed) = (Arc::new(tempfile::tempdir().unwrap()), Executed::default());
        let definitions = dir.path().join("definitions");
        std::fs::create_dir(&definitions).unwrap();
        std::fs::write(definitions.join("order.saga.yaml"), order(1)).unwrap();
        let key = Key::ed("a");
        let jwks = Jwks::open(&[&key]).await;
        let node = start(dir, &jwks, &executed, change).await;
        let fixture = Self {
            node,
            key,
            jwks,
            executed,
        };
        for (context, admin) in [("acme", "ada"), ("beta", "bob")] {
            let lists = json!({ "admins": [format!("user:{admin}")], "readers": [format!("user:{admin}-reader")] });
            fixture
                .call(
                    "root",
                    "",
                    "PUT",
                    &format!("/v1/contexts/{context}"),
                    Some(&lists),
                )
                .await
                .ok();
        }
        fixture
    }

    /// Starts a node on which acme has an order, and beta another one and the saga `secret`.
    async fn with_definitions() -> Self {
        let fixture = Self::start().await;
        let secret = "saga: secret\nversion: 3\ncorrelate: orderId\nstart: SecretPlaced\nsteps:\n  - { id: s, do: { event: SecretShipped }, timeout: 1h }\n";
        let files = bundle(&[("order.saga.yaml", &order(8)), ("secret.saga.yaml", secret)]);
        fixture.deploy("bob", "beta", "", &files).await.ok();
        fixture
            .deploy("ada", "acme", "", &order_file(&order(7)))
            .await
            .ok();
        fixture
    }

    /// Restarts the node after a change of its directory.
    async fn restart(self, change: impl FnOnce(PathBuf)) -> Self {
        let Self {
            node,
            key,
            jwks,
            executed,
        } = self;
        let dir = node.stop().await;
        change(dir.path().to_owned());
        let node = start(dir, &jwks, &executed, |_| {}).await;
        Self {
            node,
            key,
            jwks,
            executed,
        }
    }

    /// Sends a request of a user without roles in its token; `root` administers the node.
    async fn call(
        &self,
        user: &str,
        tenant: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let (role, tenants) = if user == "root" {
            ("admin", json!("*"))
        } else {
            ("", json!([]))
        };
        let bearer = format!("Bearer {}", self.key.token(user, role, &tenants));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", bearer);
        let request = request
            .header("content-type", "application/json")
            .header("x-tenant-id", tenant);
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.node.send(request.body(body).unwrap()).await
    }

    async fn deploy(&self, user: &str, context: &str, query: &str, bundle: &Value) -> HttpResponse {
        let path = format!("/v1/contexts/{context}/definitions?{query}");
        self.call(user, "", "POST", &path, Some(bundle)).await
    }

    /// Starts an order with an event, and waits until it is charged.
    async fn place(&self, tenant: &str, id: &str) -> Value {
        self.call("root", tenant, "POST", "/v1/events", Some(&placed(id)))
            .await
            .ok();
        self.until_waiting(tenant, id).await
    }

    async fn until_waiting(&self, tenant: &str, id: &str) -> Value {
        let path = format!("/v1/sagas/order/{id}");
        until_ok(&path, async || {
            let shown = self.call("root", tenant, "GET", &path, None).await;
            let text = shown.text.clone();
            let is_waiting = text.contains("\"Shipped\"");
            if shown.status == 200 && is_waiting {
                Ok(shown.json())
            } else {
                Err(text)
            }
        })
        .await
    }

    async fn ship(&self, tenant: &str, id: &str) {
        let event = json!({
            "specversion": "1.0", "id": format!("shipped-{id}"), "type": "Shipped", "source": "urn:shop", "data": { "orderId": id },
        });
        self.call("root", tenant, "POST", "/v1/events", Some(&event))
            .await
            .ok();
        let path = format!("/v1/sagas/order/{id}");
        until_ok(&path, async || {
            let shown = self.call("root", tenant, "GET", &path, None).await.ok();
            if shown["status"] == "completed" {
                Ok(())
            } else {
                Err(shown.to_string())
            }
        })
        .await;
    }

    async fn version(&self, tenant: &str, id: &str) -> u64 {
        let shown = self
            .call(
                "root",
                tenant,
                "GET",
                &format!("/v1/sagas/order/{id}"),
                None,
            )
            .await
            .ok();
        shown["definition"]["version"].as_u64().unwrap()
    }

    fn executed(&self, id: &str) -> (String, u64) {
        self.executed.lock()[id].clone()
    }

    fn reader(&self) -> Reader {
        self.node.app.runtime.readers().next().unwrap()
    }
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn contexts_run_different_definitions_of_one_saga_beside_the_shared_one() {
    let fixture = Fixture::start().await;
    fixture.place("acme", "before").await;
    let plan = fixture
        .deploy("ada", "acme", "", &order_file(&order(7)))
        .await
        .ok();
    assert_eq!(
        (
            &plan["context"],
            &plan["number"],
            &plan["added"][0]["version"]
        ),
        (&json!("acme"), &json!(1), &json!(7))
    );
    let shipping = "saga: shipping\nversion: 1\ncorrelate: orderId\nstart: OrderPlaced\nsteps:\n  - { id: ship, do: { event: Shipped }, timeout: 1h }\n";
    let files = bundle(&[
        ("order.saga.yaml", &order(8)),
        ("shipping.saga.yaml", shipping),
    ]);
    assert_eq!(
        fixture.deploy("bob", "beta", "", &files).await.ok()["number"],
        1,
        "each context has its own numbers"
    );

    for (tenant, id, version) in [
        ("acme", "a-1", 7),
        ("beta", "b-1", 8),
        ("gamma", "g-1", 1),
        ("", "d-1", 1),
    ] {
        fixture.place(tenant, id).await;
        assert_eq!(fixture.version(tenant, id).await, version, "{tenant}");
        assert_eq!(fixture.executed(id), (tenant.to_owned(), version));
    }
    assert_eq!(
        fixture.version("acme", "before").await,
        1,
        "it is pinned to the shared definition"
    );
    // The number of consumers does not reveal the definitions of other contexts.
    for (tenant, matches) in [("acme", 1), ("beta", 2), ("gamma", 1)] {
        let accepted = fixture
            .call("root", tenant, "POST", "/v1/events", Some(&placed("again")))
            .await
            .ok();
        assert_eq!(
            accepted["accepted"][0]["matched"], matches,
            "{tenant}: {accepted}"
        );
    }
    for (tenant, id) in [
        ("acme", "before"),
        ("acme", "a-1"),
        ("beta", "b-1"),
        ("gamma", "g-1"),
    ] {
        fixture.ship(tenant, id).await;
    }
    // A start request uses the definition of the context, too.
    let order = json!({ "orderId": "a-2" });
    fixture
        .call("ada", "acme", "POST", "/v1/sagas/order", Some(&order))
        .await
        .ok();
    assert_eq!(fixture.version("acme", "a-2").await, 7);
    // Without its own definition, the context uses the shared one again.
    let plan = fixture.deploy("ada", "acme", "", &bundle(&[])).await.ok();
    assert_eq!(
        (&plan["retired"][0]["version"], &plan["number"]),
        (&json!(7), &json!(2))
    );
    fixture.place("acme", "a-3").await;
    assert_eq!(fixture.version("acme", "a-3").await, 1);
    fixture.ship("acme", "a-2").await;
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn admin_of_a_context_neither_sees_nor_changes_definitions_of_another() {
    let fixture = Fixture::with_definitions().await;
    // Deployment, collection and reading in the other context are denied, also for readers of the own one.
    for (user, context) in [
        ("ada", "beta"),
        ("bob", "acme"),
        ("ada-reader", "acme"),
        ("eve", "acme"),
    ] {
        fixture
            .deploy(user, context, "", &order_file(&order(9)))
            .await
            .rejected(403, "OR0042");
        let collect = format!("/v1/contexts/{context}/definitions/collect");
        assert_eq!(
            fixture.call(user, "", "POST", &collect, None).await.status,
            403
        );
    }
    for path in [
        "/v1/definitions",
        "/v1/definitions/order",
        "/v1/definitions/order/graph.svg",
    ] {
        assert_eq!(
            fixture.call("ada", "beta", "GET", path, None).await.status,
            403,
            "{path}"
        );
    }
    let migration = json!({ "from": "8", "to": "1" });
    assert_eq!(
        fixture
            .call(
                "ada",
                "beta",
                "POST",
                "/v1/definitions/order/migrate",
                Some(&migration)
            )
            .await
            .status,
        403
    );
    fixture
        .call(
            "ada",
            "acme",
            "POST",
            "/admin/deploy",
            Some(&order_file(&order(9))),
        )
        .await
        .rejected(403, "OR0042");
    fixture
        .call("ada", "acme", "POST", "/admin/collect", None)
        .await
        .rejected(403, "OR0042");
    // The audit trail of the tenant has its deployment.
    let audited = fixture
        .call("ada", "acme", "GET", "/v1/audit", None)
        .await
        .ok();
    let is_deployment = |item: &Value| {
        item["route"] == "POST /v1/contexts/{tenant}/definitions"
            && item["user"] == "ada"
            && item["status"] == 200
    };
    assert!(
        audited["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(is_deployment),
        "{audited:#}"
    );
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_a_context_are_invisible_in_other_tenants() {
    let fixture = Fixture::with_definitions().await;
    let beta_hash = hex::encode(
        fixture.node.app.definitions.usable(&tenant("beta"))[0]
            .program
            .definition_ref()
            .hash,
    );
    // The own tenant lists the own and the shared definitions. The source of a shared one belongs to the node.
    let listed = fixture
        .call("ada", "acme", "GET", "/v1/definitions", None)
        .await
        .ok();
    let items: Vec<_> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["saga"].clone(), item["version"].clone()))
        .collect();
    assert_eq!(items, [(json!("order"), json!(7))]);
    let shown = fixture
        .call("ada", "acme", "GET", "/v1/definitions/order", None)
        .await
        .ok();
    let [own, shared] = shown["versions"].as_array().unwrap().as_slice() else {
        panic!("{shown:#}")
    };
    assert_eq!(
        (&own["context"], &own["active"], &own["deployed_by"]),
        (&json!("acme"), &json!(true), &json!("ada"))
    );
    assert!(
        own["source"].as_str().unwrap().contains("version: 7") && own["file"] == "order.saga.yaml"
    );
    assert_eq!(
        (&shared["version"], &shared["active"], shared.get("context")),
        (&json!(1), &json!(false), None)
    );
    assert_eq!((shared.get("source"), shared.get("file")), (None, None));
    for user in ["ada", "ada-reader"] {
        let missing = fixture
            .call(user, "acme", "GET", "/v1/definitions/secret", None)
            .await;
        assert_eq!(
            missing.rejected(404, "OR0016"),
            "no definition of saga secret"
        );
        fixture
            .call(
                user,
                "acme",
                "GET",
                "/v1/definitions/secret/graph.svg",
                None,
            )
            .await
            .rejected(404, "OR0016");
    }
    // An instance cannot move to a definition of another context, also by its hash.
    fixture.place("acme", "a-1").await;
    for to in ["8", beta_hash.as_str()] {
        let migration = json!({ "from": "7", "to": to });
        let missing = fixture
            .call(
                "ada",
                "acme",
                "POST",
                "/v1/definitions/order/migrate",
                Some(&migration),
            )
            .await;
        assert_eq!(
            missing.rejected(404, "OR0016"),
            format!("no definition {to} of saga order")
        );
        let action = json!({ "type": "migrate", "to": to });
        let batch = json!({ "saga": "order", "action": action, "dry_run": true });
        fixture
            .call("ada", "acme", "POST", "/v1/batches", Some(&batch))
            .await
            .rejected(404, "OR0016");
    }
    let action = json!({ "type": "cancel" });
    let batch = json!({ "saga": "secret", "action": action, "dry_run": true });
    let missing = fixture
        .call("ada", "acme", "POST", "/v1/batches", Some(&batch))
        .await;
    assert!(!missing.rejected(404, "OR0016").contains("did you mean"));
    let schedule = json!({ "saga": "secret", "every": "1h" });
    fixture
        .call(
            "ada",
            "acme",
            "PUT",
            "/v1/schedules/nightly",
            Some(&schedule),
        )
        .await
        .rejected(422, "OR0035");
    let start = fixture
        .call(
            "ada",
            "acme",
            "POST",
            "/v1/sagas/secret",
            Some(&json!({ "orderId": "x" })),
        )
        .await;
    start.rejected(404, "OR0016");
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn definition_of_a_context_uses_only_upstreams_that_permit_it() {
    let fixture = Fixture::start().await;
    let dry = async |user: &str, context: &str, effect: &str| {
        let response = fixture
            .deploy(
                user,
                context,
                "dry_run=true",
                &order_file(&with_effect("order", 7, effect)),
            )
            .await;
        (response.status.as_u16(), response.text)
    };
    assert_eq!(dry("ada", "acme", OPEN).await.0, 200);
    assert_eq!(
        dry("ada", "acme", OF_ACME).await.0,
        200,
        "an upstream for the tenant"
    );
    assert_eq!(dry("bob", "beta", OF_ACME).await.0, 422);
    assert_eq!(
        dry("ada", "acme", "job.sh").await.0,
        200,
        "runners belong to their tenant"
    );
    let denied = dry("ada", "acme", CLOSED).await;
    assert!(
        denied.0 == 422
            && denied.1.contains(
                "no upstream executes the effect vault.open for definitions of the context acme"
            ),
        "{denied:?}"
    );
    assert!(
        denied.1.contains("ask an administrator of the node to add"),
        "{denied:?}"
    );
    // The response does not reveal which effects exist.
    let missing = dry("ada", "acme", "vault.opem").await;
    assert_eq!(missing.1.replace("opem", "open"), denied.1);
    let similar = dry("ada", "acme", "test.chrge").await;
    assert!(
        similar.1.contains("did you mean `test.charge`?"),
        "{similar:?}"
    );
    let command = "saga: order\nversion: 7\ncorrelate: orderId\nstart: OrderPlaced\nsteps:\n  - { id: c, do: { command: stock.Reserve }, ok: Reserved }\n";
    let denied = fixture
        .deploy("ada", "acme", "", &order_file(command))
        .await;
    denied.rejected(422, "OR0017");
    assert!(
        denied
            .text
            .contains("no gateway sends commands for definitions of the context acme"),
        "{denied:?}"
    );
    // Shared definitions are not restricted.
    let shared = order_file(&with_effect("order", 2, CLOSED));
    fixture
        .call("root", "", "POST", "/admin/deploy", Some(&shared))
        .await
        .ok();
    fixture
        .call("root", "acme", "POST", "/v1/events", Some(&placed("o-1")))
        .await
        .ok();
    fixture.until_waiting("acme", "o-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_deployment_of_a_context_is_rejected_with_the_place_and_the_remedy() {
    let fixture = Fixture::start_with(|config| {
        config.limits.max_context_definitions = 2;
        config.limits.max_context_source_size = 4096;
    })
    .await;
    let detail = fixture
        .deploy("root", "gamma", "", &order_file(&order(2)))
        .await
        .rejected(404, "OR0100");
    assert!(detail.contains("create the context"), "{detail}");
    fixture
        .deploy("root", "a%00b", "", &order_file(&order(2)))
        .await
        .rejected(400, "OR0006");
    let rejected = async |files: &[(&str, &str)], code: &str, expected: &str| {
        let response = fixture.deploy("ada", "acme", "", &bundle(files)).await;
        response.rejected(422, code);
        assert!(response.text.contains(expected), "{}", response.text);
    };
    let reserved = with_effect("orlog.order", 1, OPEN);
    rejected(
        &[("a.saga.yaml", &reserved)],
        "OR0017",
        "names that start with `orlog.` are reserved",
    )
    .await;
    rejected(&[("a.saga.yaml", "saga: a\n")], "OR0017", "a.saga.yaml:").await;
    let schedule =
        |tenant: &str| format!("schedule: nightly\ntenant: {tenant}\nsaga: order\nevery: 1h\n");
    rejected(
        &[("a.schedule.yaml", &schedule("beta"))],
        "OR0017",
        "a.schedule.yaml:2:9: tenant: a schedule of the context acme belongs to its tenant",
    )
    .await;
    let sagas: Vec<_> = ["a", "b", "c"]
        .map(|saga| (format!("{saga}.saga.yaml"), with_effect(saga, 1, OPEN)))
        .into();
    let files: Vec<_> = sagas
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    rejected(&files, "OR0130", "the context acme would have 3 definitions, 0 of them retired with instances, and limits.max_context_definitions is 2").await;
    let large = format!("{}# {}\n", order(2), "x".repeat(4096));
    rejected(
        &[("order.saga.yaml", &large)],
        "OR0130",
        "limits.max_context_source_size is 4096 bytes",
    )
    .await;
    // A retired definition counts while an instance is pinned to it.
    for version in [2, 3] {
        fixture
            .deploy("ada", "acme", "", &order_file(&order(version)))
            .await
            .ok();
        fixture.place("acme", &format!("o-{version}")).await;
    }
    rejected(
        &[("order.saga.yaml", &order(4))],
        "OR0130",
        "would have 3 definitions, 2 of them retired with instances",
    )
    .await;
    assert_eq!(
        fixture
            .node
            .app
            .definitions
            .of(Some(&tenant("acme")))
            .deployment
            .unwrap()
            .number,
        2,
        "nothing changed"
    );
    fixture
        .deploy("bob", "beta", "", &order_file(&order(4)))
        .await
        .ok();
    // A context with definitions is not deleted.
    let detail = fixture
        .call("ada", "", "DELETE", "/v1/contexts/acme", None)
        .await
        .rejected(409, "OR0102");
    assert!(
        detail.contains("orlog deploy --context acme --none"),
        "{detail}"
    );
    fixture.deploy("bob", "beta", "", &bundle(&[])).await.ok();
    assert_eq!(
        fixture
            .call("bob", "", "DELETE", "/v1/contexts/beta", None)
            .await
            .status,
        204
    );
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_stay_pinned_during_deployments_of_two_contexts_under_load() {
    const VERSIONS: u32 = 8;
    let fixture = Fixture::start().await;
    let load = async |tenant: &str, user: &str, first: u32| {
        let mut placed_orders = Vec::new();
        for version in first..first + VERSIONS {
            let (text, mut number) = (order_file(&order(version)), 0);
            let deploying = fixture.deploy(user, tenant, "", &text);
            tokio::pin!(deploying);
            loop {
                let id = format!("{tenant}-{version}-{number}");
                fixture
                    .call("root", tenant, "POST", "/v1/events", Some(&placed(&id)))
                    .await
                    .ok();
                placed_orders.push(id);
                number += 1;
                tokio::select! {
                    biased;
                    response = &mut deploying => break drop(response.ok()),
                    () = std::future::ready(()) => {}
                }
            }
        }
        placed_orders
    };
    let (of_acme, of_beta) = tokio::join!(load("acme", "ada", 100), load("beta", "bob", 200));
    for (tenant, ids, versions) in [
        ("acme", &of_acme, 100..100 + VERSIONS),
        ("beta", &of_beta, 200..200 + VERSIONS),
    ] {
        for id in ids {
            fixture.until_waiting(tenant, id).await;
            let version = fixture.version(tenant, id).await;
            assert!(
                version == 1 || versions.contains(&u32::try_from(version).unwrap()),
                "{tenant} {id}: {version}"
            );
            assert_eq!(
                fixture.executed(id),
                (tenant.to_owned(), version),
                "{id} is pinned"
            );
        }
    }
    // A migration moves the instances of one context, also from the shared definition to its own.
    let newest = u64::from(100 + VERSIONS - 1);
    let migration = json!({ "from": "100", "to": newest.to_string() });
    let moved = fixture
        .call(
            "ada",
            "acme",
            "POST",
            "/v1/definitions/order/migrate?",
            Some(&migration),
        )
        .await
        .ok();
    let moved = moved["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["migrated"] == true)
        .count();
    fixture.place("beta", "late").await;
    let mut migrated = 0;
    for id in &of_acme {
        let (version, (_, started)) = (fixture.version("acme", id).await, fixture.executed(id));
        migrated += usize::from(version != started);
        assert!(
            version == started || (started, version) == (100, newest),
            "{id}: from {started} to {version}"
        );
    }
    assert_eq!(migrated, moved);
    for id in &of_beta {
        assert_eq!(
            fixture.version("beta", id).await,
            fixture.executed(id).1,
            "{id}"
        );
    }
    for (tenant, id) in [("acme", &of_acme[0]), ("beta", &of_beta[0])] {
        fixture.ship(tenant, id).await;
    }
    assert!(
        fixture
            .reader()
            .dead_letters(&tenant("acme"), None, 9)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn collection_in_a_context_drops_only_its_own_unused_definitions() {
    let fixture = Fixture::start().await;
    for (user, context) in [("ada", "acme"), ("bob", "beta")] {
        fixture
            .deploy(user, context, "", &order_file(&order(5)))
            .await
            .ok();
    }
    fixture.place("acme", "a-1").await;
    // Both contexts have the same text. Acme retires it with an instance; for beta, it stays active.
    fixture
        .deploy("ada", "acme", "", &order_file(&order(6)))
        .await
        .ok();
    fixture
        .deploy(
            "bob",
            "beta",
            "",
            &order_file(&with_effect("order", 5, OPEN)),
        )
        .await
        .ok();
    let collect = async |user: &str, context: &str| {
        let path = format!("/v1/contexts/{context}/definitions/collect");
        fixture.call(user, "", "POST", &path, None).await.ok()
    };
    assert_eq!(
        collect("ada", "acme").await["dropped"],
        json!([]),
        "beta uses it"
    );
    fixture
        .deploy("bob", "beta", "", &order_file(&order(8)))
        .await
        .ok();
    assert_eq!(
        collect("bob", "beta").await["kept"],
        1,
        "an instance of acme is pinned to it"
    );
    let stored = |version| {
        let definitions = fixture.reader().definitions().unwrap();
        definitions
            .iter()
            .any(|(program, _)| program.version == version)
    };
    assert!(stored(5) && stored(6) && stored(8));
    let has_series = async |version: u32| {
        let metrics = fixture.call("root", "", "GET", "/metrics", None).await.text;
        metrics.contains(&format!("saga=\"order\",version=\"{version}\""))
    };
    assert!(has_series(5).await, "its instance is counted");
    let migration = json!({ "from": "5" });
    let moved = fixture
        .call(
            "ada",
            "acme",
            "POST",
            "/v1/definitions/order/migrate",
            Some(&migration),
        )
        .await
        .ok();
    assert_eq!(
        (&moved["to_version"], &moved["items"][0]["migrated"]),
        (&json!(6), &json!(true))
    );
    let dropped = collect("ada", "acme").await;
    assert_eq!(
        (&dropped["dropped"][0]["version"], &dropped["kept"]),
        (&json!(5), &json!(0)),
        "{dropped}"
    );
    assert!(!stored(5));
    assert!(!has_series(5).await, "its counters ended with it");
    fixture.ship("acme", "a-1").await;
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn data_of_the_node_do_not_name_definitions_of_closed_contexts() {
    let fixture = Fixture::with_definitions().await;
    let placed = json!({
        "specversion": "1.0", "id": "s-1", "source": "urn:shop", "type": "SecretPlaced", "data": { "orderId": "s-1" },
    });
    fixture
        .call("root", "beta", "POST", "/v1/events", Some(&placed))
        .await
        .ok();
    until("the instance", async || {
        let path = "/v1/sagas/secret/s-1";
        let shown = fixture.call("root", "beta", "GET", path, None).await;
        (shown.status == 200).then_some(())
    })
    .await;

    fixture.place("acme", "a-1").await;
    fixture.place("gamma", "g-1").await;

    let ask = async |name: &str, role: &str, path: &str| {
        let token = fixture.key.token(name, role, &json!("*"));
        let request = Request::builder()
            .uri(path)
            .header("authorization", format!("Bearer {token}"));
        fixture
            .node
            .send(request.body(Body::empty()).unwrap())
            .await
    };
    for (name, role, sees_beta) in [
        ("eve", "monitor", false),
        ("eve", "viewer", false),
        ("bob", "monitor", true),
        ("root", "admin", true),
    ] {
        let metrics = ask(name, role, "/metrics").await.text;
        assert_eq!(
            metrics.contains("secret"),
            sees_beta,
            "{name} {role}: {metrics}"
        );
        assert_eq!(
            metrics.contains("saga=\"other\",version=\"other\""),
            name != "root",
            "acme is closed to all but root: {name} {role}"
        );
        assert!(
            metrics.contains("saga=\"order\",version=\"1\""),
            "{name} {role}"
        );
    }
    for table in ["definition", "meta"] {
        let path = format!("/v1/inspect/{table}");
        let detail = ask("eve", "viewer", &path).await.rejected(403, "OR0042");
        assert!(detail.contains("administrator of the node"), "{detail}");
        assert!(ask("root", "admin", &path).await.text.contains("beta") || table == "definition");
    }
}
