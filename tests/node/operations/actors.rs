//! Actors: their keys, the proofs of their holders, and invitations.

use orlog::access::KeyOwner;
use orlog_model::ActorId;
use serde_json::{Value, json};

use super::contexts::Fixture;
use crate::signer::Signer;

/// Requirements: F1.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_an_actor_are_added_rotated_and_revoked() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    let (one, two, three) = (Signer::new(), Signer::new(), Signer::new());
    let body =
        json!({ "id": "robo", "keys": [one.key_of("robo")], "addresses": ["https://robo.test/"] });
    let created = fixture.call(&root, "POST", "/v1/actors", Some(&body)).await;
    created.ok();
    let first = created.json()["keys"][0]["id"].as_str().unwrap().to_owned();
    fixture
        .call(&root, "POST", "/v1/actors", Some(&body))
        .await
        .rejected(409, "OR0104");
    let rotation = json!({ "key": two.key_of("robo"), "replaces": first, "overlap": "1h" });
    let rotated = fixture
        .call(&root, "POST", "/v1/actors/robo/keys", Some(&rotation))
        .await;
    rotated.ok();
    let keys = rotated.json()["keys"].clone();
    assert!(
        keys[0]["valid_until"].is_string() && keys[0]["valid"] == true,
        "{keys}"
    );
    let second = keys[1]["id"].as_str().unwrap().to_owned();
    let directory = fixture.node.app.access.directory();
    let (actor, found) = directory.find_key(&second).unwrap();
    let robo = KeyOwner::Actor(ActorId::new("robo").unwrap());
    assert_eq!((actor, found.public_key), (&robo, two.key.public_key()));
    let other = json!({ "id": "other", "keys": [two.key_of("other")] });
    let detail = fixture
        .call(&root, "POST", "/v1/actors", Some(&other))
        .await
        .rejected(409, "OR0104");
    assert!(detail.contains("another actor"), "{detail}");
    let revoked = fixture
        .call(
            &root,
            "POST",
            &format!("/v1/actors/robo/keys/{second}/revoke"),
            None,
        )
        .await;
    revoked.ok();
    let view = revoked.json()["keys"][1].clone();
    assert!(
        view["valid"] == false && view["revoked_at"].is_string(),
        "{view}"
    );
    let now = orlog_model::Clock::now(&orlog::SystemClock);
    let directory = fixture.node.app.access.directory();
    assert!(
        !directory
            .find_key(&second)
            .unwrap()
            .1
            .is_valid(now.saturating_add(std::time::Duration::from_secs(1)))
    );
    fixture
        .call(&root, "POST", "/v1/actors/robo/keys/none/revoke", None)
        .await
        .rejected(404, "OR0103");
    fixture
        .call(&root, "POST", "/v1/actors/none/keys/none/revoke", None)
        .await
        .rejected(404, "OR0103");
    let with = |fields: Value| {
        let mut key = three.key_of("robo");
        key.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        key
    };
    for (body, expected) in [
        (
            json!({ "key": { "public_key": "AAAA" } }),
            "/key/public_key: expected an Ed25519 public key",
        ),
        (
            json!({ "key": with(json!({ "id": "x" })) }),
            "unknown field `id`",
        ),
        (
            json!({ "key": with(json!({ "valid_from": "2026-01-02T00:00:00Z", "valid_until": "2026-01-01T00:00:00Z" })) }),
            "/key/valid_until: it is not after valid_from",
        ),
    ] {
        let response = fixture
            .call(&root, "POST", "/v1/actors/robo/keys", Some(&body))
            .await;
        let detail = response.rejected(422, "OR0002");
        assert!(detail.contains(expected), "{detail}");
    }
    // Only administrators of the node see actors.
    for token in [
        fixture.user("eve"),
        fixture.key.token("ada", "admin", &json!(["acme"])),
    ] {
        assert_eq!(
            fixture
                .call(&token, "GET", "/v1/actors/robo", None)
                .await
                .status,
            403
        );
        assert_eq!(
            fixture.call(&token, "GET", "/v1/actors", None).await.status,
            403
        );
    }
}

/// Requirements: F1, F2.
#[tokio::test(flavor = "multi_thread")]
async fn key_is_added_only_with_the_proof_of_its_holder() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    fixture
        .call(&root, "POST", "/v1/actors", Some(&json!({ "id": "robo" })))
        .await
        .ok();
    let (ada, eve) = (Signer::new(), Signer::new());
    let public = ada.key.public_key().to_string();
    let now = orlog_model::Clock::now(&orlog::SystemClock).as_millis() / 1000;
    let by = |signer: &Signer, actor: &str, created: i64| {
        let proof = signer.key.prove_possession(actor, created).to_string();
        json!({ "public_key": public, "proof": proof })
    };
    for (key, reason) in [
        (json!({ "public_key": public }), "the proof is missing"),
        (
            json!({ "public_key": public, "proof": "x" }),
            "expected v1.<created>.<signature>",
        ),
        (
            by(&eve, "robo", now),
            "not by this key, or for another actor",
        ),
        (
            by(&ada, "other", now),
            "not by this key, or for another actor",
        ),
        (by(&ada, "robo", now - 25 * 3600), "more than 24h ago"),
        (by(&ada, "robo", now + 600), "correct the clock"),
    ] {
        let added = json!({ "key": key });
        let detail = fixture
            .call(&root, "POST", "/v1/actors/robo/keys", Some(&added))
            .await
            .rejected(422, "OR0108");
        assert!(
            detail.contains(reason) && detail.contains("/key/proof"),
            "{reason}: {detail}"
        );
    }
    let other = json!({ "id": "other", "keys": [eve.key_of("other"), { "public_key": public }] });
    let detail = fixture
        .call(&root, "POST", "/v1/actors", Some(&other))
        .await
        .rejected(422, "OR0108");
    assert!(detail.contains("/keys/1/proof"), "{detail}");
    fixture
        .call(&root, "GET", "/v1/actors/other", None)
        .await
        .rejected(404, "OR0103");
    let shown = fixture
        .call(&root, "GET", "/v1/actors/robo", None)
        .await
        .ok();
    assert_eq!(shown["keys"], json!([]), "{shown}");
}

/// Both requests can pass the first check before one of them is stored.
///
/// Requirements: F1, F2.
#[tokio::test(flavor = "multi_thread")]
async fn key_that_two_requests_add_at_the_same_time_has_at_most_one_owner() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    for id in ["one", "two"] {
        fixture
            .call(&root, "POST", "/v1/actors", Some(&json!({ "id": id })))
            .await
            .ok();
    }
    for _ in 0..20 {
        let signer = Signer::new();
        let add = async |id: &str| {
            let (path, body) = (
                format!("/v1/actors/{id}/keys"),
                json!({ "key": signer.key_of(id) }),
            );
            fixture.call(&root, "POST", &path, Some(&body)).await
        };
        let (one, two) = tokio::join!(add("one"), add("two"));
        let directory = fixture.node.app.access.directory();
        let id = signer.key.key_id().to_string();
        let has = |actor: &str| {
            let actor = &directory.actors[&ActorId::new(actor).unwrap()];
            actor
                .value
                .as_ref()
                .unwrap()
                .keys
                .iter()
                .any(|key| key.id == id)
        };
        let accepted = [("one", one), ("two", two)].map(|(actor, response)| {
            let accepted = response.status.is_success();
            if !accepted {
                response.rejected(409, "OR0104");
            }
            assert_eq!(has(actor), accepted, "{actor}");
            accepted
        });
        assert_ne!(accepted, [true, true]);
        assert_eq!(
            directory.find_key(&id).is_some(),
            accepted != [false, false]
        );
        // If both requests saw each other, neither of them has the key, and a repetition succeeds.
        if accepted == [false, false] {
            add("one").await.ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_enrolls_one_key_without_credentials() {
    let fixture = Fixture::start().await;
    let root = fixture.root();
    let signers = [Signer::new(), Signer::new()];
    let invited = fixture
        .call(
            &root,
            "POST",
            "/v1/actors/robo/invitation",
            Some(&json!({})),
        )
        .await;
    invited.ok();
    let token = invited.json()["token"].as_str().unwrap().to_owned();
    let enroll = async |actor: &str, token: &str, number: usize| {
        let body = json!({ "token": token, "key": signers[number - 1].key_of(actor) });
        fixture
            .node
            .send(
                "POST",
                &format!("/v1/actors/{actor}/enroll"),
                &[],
                Some(&body),
            )
            .await
    };
    let wrong = enroll("robo", "wrong", 1).await;
    let unknown = enroll("none", &token, 1).await;
    assert_eq!(
        wrong.rejected(401, "OR0105"),
        unknown.rejected(401, "OR0105"),
        "it reveals no actor"
    );
    let unproven = json!({ "token": token, "key": signers[0].key_of("eve") });
    let unproven = fixture
        .node
        .send("POST", "/v1/actors/robo/enroll", &[], Some(&unproven))
        .await;
    unproven.rejected(422, "OR0108");
    enroll("robo", &token, 1).await.ok();
    enroll("robo", &token, 1).await.ok();
    enroll("robo", &token, 2).await.rejected(401, "OR0105");
    let shown = fixture
        .call(&root, "GET", "/v1/actors/robo", None)
        .await
        .json();
    assert_eq!(
        (
            shown["keys"].as_array().unwrap().len(),
            &shown["invited_until"]
        ),
        (1, &Value::Null),
        "{shown}"
    );
    // Anyone can send a wrong token: only the requests with the right one have records.
    let audited = fixture
        .call(&root, "GET", "/v1/audit?all=true", None)
        .await
        .ok();
    let route = "POST /v1/actors/{actor}/enroll";
    let records = audited["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["route"] == route);
    assert_eq!(
        records
            .map(|item| item["status"].as_u64())
            .collect::<Vec<_>>(),
        [Some(200); 2]
    );
    let too_long = fixture
        .call(
            &root,
            "POST",
            "/v1/actors/robo/invitation",
            Some(&json!({ "expires_in": "721h" })),
        )
        .await;
    assert!(too_long.rejected(422, "OR0002").contains("at most 720h"));
}
