//! Which definitions are in force after a start: the folder's where it changed, otherwise those deployed last.

use std::collections::BTreeSet;

use orlog_model::{Change, ProgramRef, Timestamp};

use crate::node::{Node, Saga, order};

fn versions(of: &[(&str, u32)]) -> BTreeSet<(String, u32)> {
    of.iter().map(|(saga, version)| ((*saga).to_owned(), *version)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deployed_outlives_a_restart_with_the_folder_as_it_was() {
    let node = Node::start(&[order(1)]).await;
    node.deploy(&[order(2), Saga { name: "other", ..Saga::order(7) }.file()]).await.unwrap();
    let deployment = node.app.definitions.deployment();
    let node = node.restart().await;
    assert_eq!(node.in_force(), versions(&[("order", 2), ("other", 7)]));
    assert_eq!(node.app.definitions.deployment(), deployment);
    let deployment = deployment.unwrap();
    assert_eq!((deployment.number, deployment.by.as_str()), (2, "alice"));
    let node = node.restart_without_folder().await;
    assert_eq!(node.in_force(), versions(&[("order", 2), ("other", 7)]));
    assert!(node.app.reload("bob".to_owned()).await.unwrap_err().to_string().contains("no folder"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_changed_wins_at_the_next_start_and_on_reload() {
    let node = Node::start(&[order(1)]).await;
    node.deploy(&[order(2)]).await.unwrap();
    let node = node.restart_with(&["test.charge", "test.ship"], Some(&[order(3)])).await;
    assert_eq!(node.in_force(), versions(&[("order", 3)]));
    assert_eq!(node.app.definitions.deployment().unwrap().number, 3);
    node.deploy(&[order(4)]).await.unwrap();
    assert_eq!(node.in_force(), versions(&[("order", 4)]));
    let plan = node.app.reload("bob".to_owned()).await.unwrap();
    assert_eq!((plan.number, plan.changed[0].from_version, plan.changed[0].to.version), (5, 4, 3));
    assert_eq!(node.app.reload("bob".to_owned()).await.unwrap().number, 5, "nothing is new");
    std::fs::write(node.folder().join("order.saga.yaml"), Saga::order(5).text()).unwrap();
    node.app.reload("bob".to_owned()).await.unwrap();
    assert_eq!(node.restart().await.in_force(), versions(&[("order", 5)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_folder_with_a_mistake_keeps_the_node_from_starting() {
    let node = Node::start(&[order(1)]).await;
    let wrong = crate::node::file("wrong.saga.yaml", "saga: wrong\n");
    let refused = node.try_restart(&["test.charge", "test.ship"], Some(&[order(1), wrong]), true).await;
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("wrong.saga.yaml") && text.contains("nothing was changed"), "{text}");
}

/// What a crash leaves between the sources and the record that puts them in force.
#[tokio::test(flavor = "multi_thread")]
async fn sources_without_a_record_leave_the_old_definitions_in_force_and_are_collected() {
    let node = Node::start(&[order(1)]).await;
    let node = node
        .while_stopped(|data| {
            let options = orlog_store::Options::default();
            let (mut writer, reader) = orlog_store::open(&data.join("shard-0"), options).unwrap();
            let text = Saga::order(2).text();
            let program = orlog_program::load(&text, "order.saga.yaml").unwrap();
            let program: ProgramRef = orlog_program::Program::reference(&program).clone();
            let change = Change::PutDefinition { program, source: text.into_bytes() };
            writer.commit(&[change], Timestamp::from_millis(1_700_000_000_000)).unwrap();
            assert_eq!(reader.deployment().unwrap().unwrap().number, 1);
        })
        .await;
    assert_eq!(node.in_force(), versions(&[("order", 1)]));
    assert_eq!(node.kept(), versions(&[("order", 1), ("order", 2)]));
    node.place(1).await;
    node.until("it is there", |node| node.order(1).is_some()).await;
    assert_eq!(node.order(1).unwrap().program.version, 1);
    assert_eq!(node.app.collect().await.unwrap().dropped.len(), 1);
    assert_eq!(node.kept(), versions(&[("order", 1)]));
}
