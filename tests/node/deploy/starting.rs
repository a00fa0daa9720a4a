//! Active definitions after a start: those of a changed directory, otherwise those of the last
//! deployment.

use orlog::definitions::deploy::DeployPolicy;
use std::collections::BTreeSet;

use orlog_model::{Change, DefinitionRef, Timestamp};

use crate::deploy::node::{Node, Saga, order};

fn versions(of: &[(&str, u32)]) -> BTreeSet<(String, u32)> {
    of.iter()
        .map(|(saga, version)| ((*saga).to_owned(), *version))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_survives_restart_with_unchanged_directory() {
    let node = Node::start(&[order(1)]).await;
    node.deploy(&[
        order(2),
        Saga {
            name: "other",
            ..Saga::order(7)
        }
        .file(),
    ])
    .await
    .unwrap();
    let deployment = node.app.definitions.deployment();
    let node = node.restart().await;
    assert_eq!(node.active(), versions(&[("order", 2), ("other", 7)]));
    assert_eq!(node.app.definitions.deployment(), deployment);
    let deployment = deployment.unwrap();
    assert_eq!(
        (deployment.number, deployment.deployed_by.as_str()),
        (2, "alice")
    );
    let node = node.restart_without_dir().await;
    assert_eq!(node.active(), versions(&[("order", 2), ("other", 7)]));
    assert!(
        node.app
            .reload(
                "bob".to_owned(),
                orlog::definitions::deploy::DeployPolicy::default()
            )
            .await
            .unwrap_err()
            .to_string()
            .contains("no definitions directory")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_directory_takes_effect_on_restart_and_reload() {
    let node = Node::start(&[order(1)]).await;
    node.deploy(&[order(2)]).await.unwrap();
    let node = node
        .restart_with(&["test.charge", "test.ship"], Some(&[order(3)]))
        .await;
    assert_eq!(node.active(), versions(&[("order", 3)]));
    assert_eq!(node.app.definitions.deployment().unwrap().number, 3);
    node.deploy(&[order(4)]).await.unwrap();
    assert_eq!(node.active(), versions(&[("order", 4)]));
    let policy = DeployPolicy {
        allow_downgrade: true,
        ..DeployPolicy::default()
    };
    let plan = node.app.reload("bob".to_owned(), policy).await.unwrap();
    assert_eq!(
        (
            plan.number,
            plan.changed[0].from_version,
            plan.changed[0].to.version
        ),
        (5, 4, 3)
    );
    assert_eq!(
        node.app
            .reload("bob".to_owned(), policy)
            .await
            .unwrap()
            .number,
        5,
        "nothing is new"
    );
    std::fs::write(
        node.definitions_dir().join("order.saga.yaml"),
        Saga::order(5).text(),
    )
    .unwrap();
    node.app.reload("bob".to_owned(), policy).await.unwrap();
    assert_eq!(node.restart().await.active(), versions(&[("order", 5)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_changed_directory_prevents_startup() {
    let node = Node::start(&[order(1)]).await;
    let invalid = crate::deploy::node::file("wrong.saga.yaml", "saga: wrong\n");
    let rejected = node
        .try_restart(
            &["test.charge", "test.ship"],
            Some(&[order(1), invalid]),
            true,
        )
        .await;
    let text = rejected.err().unwrap().to_string();
    assert!(
        text.contains("wrong.saga.yaml") && text.contains("no changes made"),
        "{text}"
    );
}

/// State after a crash between storing the sources and the record that activates them.
#[tokio::test(flavor = "multi_thread")]
async fn sources_without_deployment_record_are_collected() {
    let node = Node::start(&[order(1)]).await;
    let node = node
        .while_stopped(|data| {
            let options = orlog_store::Options::default();
            let (mut writer, reader) = orlog_store::open(&data.join("shard-0"), options).unwrap();
            let text = Saga::order(2).text();
            let program = orlog_program::load(&text, "order.saga.yaml").unwrap();
            let program: DefinitionRef = orlog_program::Program::definition_ref(&program).clone();
            let change = Change::PutDefinition {
                program,
                source: text.into_bytes(),
            };
            writer
                .commit(&[change], Timestamp::from_millis(1_700_000_000_000))
                .unwrap();
            assert_eq!(reader.deployment().unwrap().unwrap().number, 1);
        })
        .await;
    assert_eq!(node.active(), versions(&[("order", 1)]));
    assert_eq!(node.stored(), versions(&[("order", 1), ("order", 2)]));
    node.place(1).await;
    node.until("it is there", |node| node.order(1).is_some())
        .await;
    assert_eq!(node.order(1).unwrap().definition.version, 1);
    assert_eq!(
        node.app
            .services
            .collector
            .collect(None)
            .await
            .unwrap()
            .dropped
            .len(),
        1
    );
    assert_eq!(node.stored(), versions(&[("order", 1)]));
}
