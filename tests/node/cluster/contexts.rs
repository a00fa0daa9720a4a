//! Contexts on several pods: a change on one pod applies on all of them, also a revocation and a deployment.

use std::collections::BTreeSet;

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use crate::cluster::pods::Pods;
use crate::cluster::within;
use crate::harness::http::{HttpResponse, send};
use crate::operations::issuer::{AUDIENCE, ISSUER, Key};

struct Fixture {
    pods: Pods,
    key: Key,
}

impl Fixture {
    async fn start(nats: &NatsServer) -> Self {
        let key = Key::ed("a");
        let mut pods = Pods::new(&[nats.url()], 1).await;
        let keys = json!({ "keys": [key.public()] }).to_string();
        let path = nats.dir().join("jwks.json");
        std::fs::write(&path, keys).unwrap();
        pods.more = format!(
            "[auth]\nmode = \"jwt\"\npublic_routes = [\"/info\"]\n[auth.jwt]\nissuer = {ISSUER:?}\naudience = [{AUDIENCE:?}]\njwks_file = {:?}\n",
            path.display().to_string()
        );
        for pod in ["a", "b"] {
            pods.start(pod).await;
        }
        Self { pods, key }
    }

    /// Sends a request of a user without roles in its token; `root` administers the node.
    async fn call(
        &self,
        pod: &str,
        user: &str,
        method: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> HttpResponse {
        self.send((pod, user), method, "/v1/contexts/acme", headers, body)
            .await
    }

    async fn send(
        &self,
        (pod, user): (&str, &str),
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> HttpResponse {
        let (role, tenants) = if user == "root" {
            ("admin", json!("*"))
        } else {
            ("", json!([]))
        };
        let bearer = format!("Bearer {}", self.key.token(user, role, &tenants));
        let headers: Vec<_> = [("authorization", bearer.as_str())]
            .into_iter()
            .chain(headers.iter().copied())
            .collect();
        let url = format!("{}{path}", self.pods.urls.lock()[pod]);
        send(&self.pods.client, method, url, &headers, body).await
    }

    /// Deploys a version of the order of the context `big`.
    async fn deploy(&self, pod: &str, version: u32) -> Value {
        self.deploy_to(
            pod,
            "ada",
            "/v1/contexts/big/definitions?allow_downgrade=true",
            version,
        )
        .await
    }

    /// Deploys a version of the shared order.
    async fn deploy_shared(&self, pod: &str, version: u32) -> Value {
        self.deploy_to(pod, "root", "/admin/deploy?allow_downgrade=true", version)
            .await
    }

    /// Deploys a version of an order that waits for an event.
    async fn deploy_to(&self, pod: &str, user: &str, path: &str, version: u32) -> Value {
        let text = format!(
            "saga: order\nversion: {version}\ncorrelate: orderId\nstart: OrderPlaced\nsteps:\n  - {{ id: ship, do: {{ event: Shipped }}, timeout: 1h }}\n"
        );
        let body = json!({ "files": [{ "name": "order.saga.yaml", "text": text }] });
        let response = self.send((pod, user), "POST", path, &[], Some(&body)).await;
        assert!(response.status == 200, "{response:?}");
        response.json()
    }

    /// Returns the version that new instances of the context use on a pod.
    async fn active(&self, pod: &str) -> Value {
        let shown = self
            .send(
                (pod, "ada"),
                "GET",
                "/v1/definitions",
                &[("x-tenant-id", "big")],
                None,
            )
            .await;
        let order = shown.ok()["items"][0].clone();
        json!([order["context"], order["version"]])
    }

    /// Returns the versions of all shared definitions that are active on a pod.
    async fn active_shared(&self, pod: &str) -> Vec<Value> {
        let tenant = [("x-tenant-id", "t1")];
        let shown = self
            .send((pod, "root"), "GET", "/v1/definitions", &tenant, None)
            .await
            .ok();
        shown["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["version"].clone())
            .collect()
    }

    /// Starts orders in shards of all pods, and returns the versions of their definitions.
    async fn start_orders(&self, pod: &str, name: &str) -> BTreeSet<u64> {
        let mut versions = BTreeSet::new();
        for number in 0..12 {
            let (tenant, id) = ([("x-tenant-id", "big")], format!("{name}-{number}"));
            let order = json!({ "orderId": id });
            until("the start", async || {
                let started = self
                    .send(
                        (pod, "ada"),
                        "POST",
                        "/v1/sagas/order",
                        &tenant,
                        Some(&order),
                    )
                    .await;
                started.status.is_success().then_some(())
            })
            .await;
            let path = format!("/v1/sagas/order/{id}");
            let shown = until("the order", async || {
                let shown = self.send((pod, "ada"), "GET", &path, &tenant, None).await;
                (shown.status == 200).then(|| shown.json())
            })
            .await;
            versions.insert(shown["definition"]["version"].as_u64().unwrap());
        }
        versions
    }

    async fn status(&self, pod: &str, user: &str) -> u16 {
        self.call(pod, user, "GET", &[], None).await.status.as_u16()
    }

    async fn put(&self, pod: &str, user: &str, revision: &Value, lists: &Value) -> Value {
        let revision = format!("\"{revision}\"");
        let headers = if revision == "\"null\"" {
            vec![]
        } else {
            vec![("if-match", revision.as_str())]
        };
        self.call(pod, user, "PUT", &headers, Some(lists))
            .await
            .ok()
    }
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_a_context_applies_on_all_pods_and_survives_a_crash() {
    let mut nats = NatsServer::start();
    within("two pods", async {
        let mut fixture = Fixture::start(&nats).await;
        let lists =
            |reader: &str| json!({ "admins": ["user:ada"], "readers": [format!("user:{reader}")] });
        assert_eq!(fixture.status("b", "bob").await, 403);
        let created = fixture.put("a", "root", &Value::Null, &lists("bob")).await;
        until("the membership on the other pod", async || {
            (fixture.status("b", "bob").await == 200).then_some(())
        })
        .await;
        assert_eq!(fixture.status("b", "eve").await, 403);

        // A revocation on the other pod, by the admin of the context.
        let changed = fixture
            .put("b", "ada", &created["revision"], &lists("cleo"))
            .await;
        assert_eq!(
            fixture.status("b", "bob").await,
            403,
            "at once on the pod of the change"
        );
        until("the revocation", async || {
            (fixture.status("a", "bob").await == 403).then_some(())
        })
        .await;
        assert_eq!(fixture.status("a", "cleo").await, 200);
        let stale = [("if-match", "\"1\"")];
        let rejected = fixture
            .call("a", "ada", "PUT", &stale, Some(&lists("eve")))
            .await;
        rejected.rejected(412, "OR0101");

        // A pod that starts has the lists before it serves a request.
        fixture.pods.kill("a");
        fixture.pods.start("a").await;
        assert_eq!(
            (
                fixture.status("a", "bob").await,
                fixture.status("a", "cleo").await
            ),
            (403, 200)
        );
        let shown = fixture.call("a", "cleo", "GET", &[], None).await.ok();
        assert_eq!(shown["revision"], changed["revision"]);

        // Without the registry, a pod decides by its last state, then only about administrators of the node.
        nats.kill();
        assert_eq!(fixture.status("b", "cleo").await, 200);
        until("the end of the grace period", async || {
            (fixture.status("b", "cleo").await == 503).then_some(())
        })
        .await;
        assert_eq!(
            (
                fixture.status("b", "eve").await,
                fixture.status("b", "root").await
            ),
            (403, 200)
        );
        nats.restart();
        until("the recovery", async || {
            (fixture.status("b", "cleo").await == 200).then_some(())
        })
        .await;
        assert_eq!(fixture.status("b", "bob").await, 403);
    })
    .await;
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_of_a_context_apply_on_all_pods_and_survive_takeovers() {
    let nats = NatsServer::start();
    within("two pods", async {
        let mut fixture = Fixture::start(&nats).await;
        fixture.pods.until_spread().await;
        let lists = json!({ "admins": ["user:ada"] });
        fixture
            .send(("a", "root"), "PUT", "/v1/contexts/big", &[], Some(&lists))
            .await
            .ok();
        until("the membership on the other pod", async || {
            let shown = fixture
                .send(("b", "ada"), "GET", "/v1/contexts/big", &[], None)
                .await;
            (shown.status == 200).then_some(())
        })
        .await;
        let plan = fixture.deploy("a", 7).await;
        assert_eq!(
            (&plan["number"], &plan["warnings"]),
            (&json!(1), &json!([])),
            "{plan}"
        );
        for pod in ["a", "b"] {
            assert_eq!(fixture.active(pod).await, json!(["big", 7]), "{pod}");
            assert_eq!(
                fixture.start_orders(pod, pod).await,
                BTreeSet::from([7]),
                "{pod}"
            );
        }

        // Two deployments at the same time: all pods have the same one of them.
        for round in 0..3 {
            let (one, other) = tokio::join!(
                fixture.deploy("a", 10 + round),
                fixture.deploy("b", 20 + round)
            );
            let warnings = json!([one["warnings"], other["warnings"]]);
            let (on_a, on_b) = (fixture.active("a").await, fixture.active("b").await);
            assert_eq!(on_a, on_b, "round {round}: {warnings}");
            assert!(
                [10 + round, 20 + round]
                    .contains(&u32::try_from(on_a[1].as_u64().unwrap()).unwrap())
            );
        }

        // A pod that missed a deployment gets it with its shards.
        fixture.pods.kill("b");
        fixture.pods.wait_for_owners(&["a"]).await;
        fixture.deploy("a", 30).await;
        assert_eq!(
            fixture.start_orders("a", "missed").await,
            BTreeSet::from([30])
        );
        fixture.pods.start("b").await;
        fixture.pods.until_spread().await;
        assert_eq!(fixture.active("b").await, json!(["big", 30]));
        assert_eq!(
            fixture.start_orders("b", "spread").await,
            BTreeSet::from([30])
        );

        // The pod of the deployment is lost. The shared definition and pinned instances are unchanged.
        fixture.pods.kill("a");
        fixture.pods.wait_for_owners(&["b"]).await;
        assert_eq!(
            fixture.start_orders("b", "after").await,
            BTreeSet::from([30])
        );
        let shown = fixture
            .send(
                ("b", "ada"),
                "GET",
                "/v1/sagas/order/a-0",
                &[("x-tenant-id", "big")],
                None,
            )
            .await;
        assert_eq!(shown.ok()["definition"]["version"], 7);
        let shared = fixture
            .send(
                ("b", "root"),
                "GET",
                "/v1/definitions",
                &[("x-tenant-id", "t1")],
                None,
            )
            .await
            .ok();
        assert_eq!(
            (
                shared["items"][0]["version"].clone(),
                shared["items"][0].get("context")
            ),
            (json!(1), None)
        );
    })
    .await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pods_have_the_same_one_of_two_shared_deployments_at_the_same_time() {
    let nats = NatsServer::start();
    within("two pods", async {
        let mut fixture = Fixture::start(&nats).await;
        fixture.pods.until_spread().await;
        for round in 0..5 {
            let (one, other) = tokio::join!(
                fixture.deploy_shared("a", 10 + round),
                fixture.deploy_shared("b", 20 + round)
            );
            assert_ne!(one["number"], other["number"], "round {round}");
            let newest = if one["number"].as_u64() > other["number"].as_u64() {
                10 + round
            } else {
                20 + round
            };
            for pod in ["a", "b"] {
                let active = fixture.active_shared(pod).await;
                assert_eq!(active, [json!(newest)], "round {round}: {one} {other}");
            }
        }

        // A pod that missed a deployment continues its numbers.
        fixture.pods.kill("b");
        fixture.pods.wait_for_owners(&["a"]).await;
        let missed = fixture.deploy_shared("a", 40).await;
        fixture.pods.start("b").await;
        fixture.pods.until_spread().await;
        assert_eq!(fixture.active_shared("b").await, [json!(40)]);
        let next = fixture.deploy_shared("b", 41).await;
        assert!(
            next["number"].as_u64() > missed["number"].as_u64(),
            "{next}"
        );
        assert_eq!(next["warnings"], json!([]));
        for pod in ["a", "b"] {
            assert_eq!(fixture.active_shared(pod).await, [json!(41)], "{pod}");
        }
    })
    .await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_that_cannot_activate_a_deployment_does_not_undo_it() {
    let nats = NatsServer::start();
    within("two pods", async {
        let mut fixture = Fixture::start(&nats).await;
        for pod in ["a", "b"] {
            fixture.pods.kill(pod);
        }
        let common = fixture.pods.more.clone();
        let media = "[upstreams.media]\nbase_url = \"http://127.0.0.1:9\"\n[upstreams.media.effects.\"media.cut\"]\npath = \"/cut\"\n";
        fixture.pods.more.push_str(media);
        fixture.pods.start("a").await;
        fixture.pods.wait_for_owners(&["a"]).await;
        let text = "saga: order\nversion: 30\ncorrelate: orderId\nstart: OrderPlaced\nsteps:\n  - { id: cut, do: { effect: media.cut } }\n";
        let body = json!({ "files": [{ "name": "order.saga.yaml", "text": text }] });
        fixture.send(("a", "root"), "POST", "/admin/deploy", &[], Some(&body)).await.ok();
        // The other pod has no such upstream.
        fixture.pods.more = common;
        fixture.pods.start("b").await;
        fixture.pods.until_spread().await;
        assert_eq!(fixture.active_shared("b").await, [json!(1)]);
        fixture.pods.kill("b");
        fixture.pods.wait_for_owners(&["a"]).await;
        assert_eq!(fixture.active_shared("a").await, [json!(30)]);
    })
    .await;
}
