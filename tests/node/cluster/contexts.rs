//! Contexts on several pods: a change on one pod applies on all of them, also a revocation.

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
            "[auth]\nmode = \"jwt\"\n[auth.jwt]\nissuer = {ISSUER:?}\naudience = [{AUDIENCE:?}]\njwks_file = {:?}\n",
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
        let (role, tenants) = if user == "root" { ("admin", json!("*")) } else { ("", json!([])) };
        let bearer = format!("Bearer {}", self.key.token(user, role, &tenants));
        let headers: Vec<_> =
            [("authorization", bearer.as_str())].into_iter().chain(headers.iter().copied()).collect();
        let url = format!("{}/v1/contexts/acme", self.pods.urls.lock().unwrap()[pod]);
        send(&self.pods.client, method, url, &headers, body).await
    }

    async fn status(&self, pod: &str, user: &str) -> u16 {
        self.call(pod, user, "GET", &[], None).await.status.as_u16()
    }

    async fn put(&self, pod: &str, user: &str, revision: &Value, lists: &Value) -> Value {
        let revision = format!("\"{revision}\"");
        let headers = if revision == "\"null\"" { vec![] } else { vec![("if-match", revision.as_str())] };
        self.call(pod, user, "PUT", &headers, Some(lists)).await.ok()
    }
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_a_context_applies_on_all_pods_and_survives_a_crash() {
    let mut nats = NatsServer::start();
    within("two pods", async {
        let mut fixture = Fixture::start(&nats).await;
        let lists = |reader: &str| json!({ "admins": ["user:ada"], "readers": [format!("user:{reader}")] });
        assert_eq!(fixture.status("b", "bob").await, 403);
        let created = fixture.put("a", "root", &Value::Null, &lists("bob")).await;
        until("the membership on the other pod", async || {
            (fixture.status("b", "bob").await == 200).then_some(())
        })
        .await;
        assert_eq!(fixture.status("b", "eve").await, 403);

        // A revocation on the other pod, by the admin of the context.
        let changed = fixture.put("b", "ada", &created["revision"], &lists("cleo")).await;
        assert_eq!(fixture.status("b", "bob").await, 403, "at once on the pod of the change");
        until("the revocation", async || (fixture.status("a", "bob").await == 403).then_some(())).await;
        assert_eq!(fixture.status("a", "cleo").await, 200);
        let stale = [("if-match", "\"1\"")];
        let rejected = fixture.call("a", "ada", "PUT", &stale, Some(&lists("eve"))).await;
        rejected.rejected(412, "OR0101");

        // A pod that starts has the lists before it serves a request.
        fixture.pods.kill("a");
        fixture.pods.start("a").await;
        assert_eq!((fixture.status("a", "bob").await, fixture.status("a", "cleo").await), (403, 200));
        let shown = fixture.call("a", "cleo", "GET", &[], None).await.ok();
        assert_eq!(shown["revision"], changed["revision"]);

        // Without the registry, a pod decides by its last state, then only about administrators of the node.
        nats.kill();
        assert_eq!(fixture.status("b", "cleo").await, 200);
        until("the end of the grace period", async || {
            (fixture.status("b", "cleo").await == 503).then_some(())
        })
        .await;
        assert_eq!((fixture.status("b", "eve").await, fixture.status("b", "root").await), (403, 200));
        nats.restart();
        until("the recovery", async || (fixture.status("b", "cleo").await == 200).then_some(())).await;
        assert_eq!(fixture.status("b", "bob").await, 403);
    })
    .await;
}
