//! Definitions of contexts after restarts and crashes of their node.

use orlog_model::{Change, DefinitionRef, DeployedDefinition, Deployment, Timestamp};
use orlog_testkit::wait::until_ok;
use serde_json::json;

use crate::operations::node::placed;
use crate::operations::owned_definitions::{Fixture, bundle, order, order_file, tenant};

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_contexts_survive_restarts_and_changes_of_the_shared_ones() {
    let fixture = Fixture::start().await;
    let schedule = "schedule: nightly\nsaga: order\nevery: 1h\ndata: { orderId: x }\n";
    let files = bundle(&[
        ("order.saga.yaml", &order(7)),
        ("a.schedule.yaml", schedule),
    ]);
    fixture.deploy("ada", "acme", "", &files).await.ok();
    fixture.place("acme", "a-1").await;
    let deployment = fixture
        .node
        .app
        .definitions
        .of(Some(&tenant("acme")))
        .deployment;
    // A deployment of the directory replaces the shared definitions only.
    let fixture = fixture
        .restart(|dir| std::fs::write(dir.join("definitions/order.saga.yaml"), order(2)).unwrap())
        .await;
    assert_eq!(
        fixture
            .node
            .app
            .definitions
            .of(Some(&tenant("acme")))
            .deployment,
        deployment
    );
    fixture.place("acme", "a-2").await;
    fixture.place("beta", "b-2").await;
    assert_eq!(
        (
            fixture.version("acme", "a-2").await,
            fixture.version("beta", "b-2").await
        ),
        (7, 2)
    );
    let schedules = fixture
        .call("ada", "acme", "GET", "/v1/schedules/nightly", None)
        .await
        .ok();
    assert_eq!(schedules["file"], "a.schedule.yaml", "{schedules}");
    fixture
        .call(
            "root",
            "",
            "POST",
            "/admin/deploy",
            Some(&order_file(&order(3))),
        )
        .await
        .ok();
    fixture.place("acme", "a-3").await;
    assert_eq!(fixture.version("acme", "a-3").await, 7);
    for id in ["a-1", "a-2", "a-3"] {
        fixture.ship("acme", id).await;
    }
    let again = fixture.deploy("ada", "acme", "", &files).await.ok();
    assert_eq!(
        (&again["number"], &again["unchanged"][0]["version"]),
        (&json!(1), &json!(7)),
        "{again}"
    );
}

/// A crash between the commits of a deployment leaves the old definitions active; after the last one, the new ones.
#[tokio::test(flavor = "multi_thread")]
async fn crash_after_each_commit_of_a_deployment_leaves_the_old_or_the_new_definitions() {
    let mut fixture = Fixture::start().await;
    fixture
        .deploy("ada", "acme", "", &order_file(&order(7)))
        .await
        .ok();
    let text = order(8);
    let program = orlog_program::load(&text, "order.saga.yaml").unwrap();
    let program: DefinitionRef = orlog_program::Program::definition_ref(&program).clone();
    let old = fixture
        .reader()
        .deployment_of(Some(&tenant("acme")))
        .unwrap()
        .unwrap();
    let mut active = old.definitions[0].clone();
    active.program = program.clone();
    let retired = DeployedDefinition {
        retired_at: Some(old.at),
        ..old.definitions[0].clone()
    };
    let new = Deployment {
        number: 2,
        definitions: vec![active, retired],
        ..old
    };
    let commits = [
        Change::PutDefinition {
            program,
            source: text.into_bytes(),
        },
        Change::Deploy(Box::new(new)),
    ];
    for (commit, expected) in commits.into_iter().zip([7, 8]) {
        fixture = fixture
            .restart(|dir| {
                let options = orlog_store::Options::default();
                let (mut writer, _) =
                    orlog_store::open(&dir.join("data/shard-0"), options).unwrap();
                writer
                    .commit(&[commit], Timestamp::from_millis(1_700_000_000_000))
                    .unwrap();
            })
            .await;
        let id = format!("after-{expected}");
        fixture.place("acme", &id).await;
        assert_eq!(fixture.version("acme", &id).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_that_cannot_be_loaded_stops_its_context_only() {
    let fixture = Fixture::start().await;
    fixture
        .deploy("ada", "acme", "", &order_file(&order(7)))
        .await
        .ok();
    let hash = fixture.node.app.definitions.usable(&tenant("acme"))[0]
        .program
        .definition_ref()
        .hash;
    // A later release may not accept the text.
    let fixture = fixture
        .restart(|dir| {
            let options = orlog_store::Options::default();
            let (mut writer, reader) =
                orlog_store::open(&dir.join("data/shard-0"), options).unwrap();
            let (program, _) = reader.definition(&hash).unwrap().unwrap();
            let change = Change::PutDefinition {
                program,
                source: b"saga: order\nversion: 7\nnew: 1\n".to_vec(),
            };
            writer
                .commit(&[change], Timestamp::from_millis(1_700_000_000_000))
                .unwrap();
        })
        .await;
    fixture.place("beta", "b-1").await;
    assert_eq!(fixture.version("beta", "b-1").await, 1);
    fixture
        .call("root", "acme", "POST", "/v1/events", Some(&placed("a-1")))
        .await
        .ok();
    let letter = until_ok("the dead letter", async || {
        let letters = fixture
            .call("ada", "acme", "GET", "/v1/dead-letters", None)
            .await
            .ok();
        let first = letters["items"][0].clone();
        if first.is_null() {
            Err(letters.to_string())
        } else {
            Ok(first)
        }
    })
    .await;
    assert!(
        letter
            .to_string()
            .contains("order version 7 of the context cannot be loaded"),
        "{letter}"
    );
    // The shared definition has not started the order instead. After a deployment, the event is applied.
    fixture
        .call("ada", "acme", "GET", "/v1/sagas/order/a-1", None)
        .await
        .rejected(404, "OR0011");
    fixture
        .deploy("ada", "acme", "", &order_file(&order(8)))
        .await
        .ok();
    let path = format!(
        "/v1/dead-letters/{}/redrive",
        letter["id"].as_str().unwrap()
    );
    fixture.call("ada", "acme", "POST", &path, None).await.ok();
    fixture.until_waiting("acme", "a-1").await;
    assert_eq!(fixture.version("acme", "a-1").await, 8);
}
