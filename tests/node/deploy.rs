//! Deployment of definitions: atomic, immediately active for new instances; live instances keep their
//! definition.

mod collecting;
mod migrating;
mod node;
mod starting;

use std::collections::{BTreeMap, BTreeSet};

use node::{Node, Saga, file, names, order};
use orlog::definitions::change::DeployError;
use orlog_model::Status;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_stay_pinned_to_their_definition_during_deploys_under_load() {
    const VERSIONS: u32 = 12;
    let node = Node::start(&[order(1)]).await;
    let mut placed = 0;
    for version in 2..=VERSIONS {
        let files = [order(version)];
        let deploying = node.deploy(&files);
        tokio::pin!(deploying);
        loop {
            node.place(placed).await;
            placed += 1;
            // Starts instances for as long as the deployment runs, and some between two deployments.
            tokio::select! {
                biased;
                plan = &mut deploying => break assert_eq!(plan.unwrap().changed.len(), 1),
                () = std::future::ready(()) => {}
            }
        }
        for _ in 0..20 {
            node.place(placed).await;
            placed += 1;
        }
    }
    node.until("every order is completed", |node| {
        node.count(Status::Completed) == placed
    })
    .await;
    let performed = node.performed();
    let mut versions: BTreeMap<u32, usize> = BTreeMap::new();
    for number in 0..placed {
        let instance = node.order(number).expect("it was placed");
        let version = instance.definition.version;
        let expected =
            BTreeSet::from([("charge".to_owned(), version), ("ship".to_owned(), version)]);
        assert_eq!(
            performed[&format!("o-{number}")],
            expected,
            "o-{number} is pinned to version {version}"
        );
        *versions.entry(version).or_default() += 1;
    }
    println!("{placed} orders by version: {versions:?}");
    assert!(
        versions.contains_key(&VERSIONS) && versions.len() > 6,
        "{versions:?}"
    );
    assert_eq!(node.dead_letters(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deploy_with_one_invalid_file_changes_nothing() {
    let node = Node::start(&[order(1)]).await;
    let before = (node.app.definitions.deployment(), node.stored());
    let invalid = file(
        "wrong.saga.yaml",
        "saga: wrong\nversion: 1\nstart: X\nsteps:\n  - id: a\n    doo: {}\n",
    );
    let missing = Saga {
        name: "other",
        version: 1,
        effect: "test.chrge",
        ..Saga::order(1)
    };
    let rejected = node.deploy(&[order(2), invalid, missing.file()]).await;
    let Err(DeployError::Rejected(rejected)) = rejected else {
        panic!("{rejected:?}")
    };
    let text = rejected.to_string();
    assert!(text.contains("wrong.saga.yaml:6:5: steps[0].doo"), "{text}");
    assert!(text.contains("did you mean `do`?"), "{text}");
    let missing = node
        .deploy(&[order(2), missing.file()])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("other.saga.yaml:8:9: ")
            && missing.contains("did you mean `test.charge`?"),
        "{missing}"
    );
    let twice = node
        .deploy(&[order(2), file("again.saga.yaml", &Saga::order(3).text())])
        .await;
    assert!(
        twice
            .unwrap_err()
            .to_string()
            .contains("saga `order` is also defined in")
    );
    assert_eq!((node.app.definitions.deployment(), node.stored()), before);
    node.place(1).await;
    node.until("it is completed", |node| node.count(Status::Completed) == 1)
        .await;
    assert_eq!(node.order(1).unwrap().definition.version, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_reports_changes_without_applying_them() {
    let node = Node::start(&[order(1)]).await;
    let before = (node.app.definitions.deployment(), node.stored());
    let other = Saga {
        name: "other",
        ..Saga::order(1)
    };
    let plan = node.try_out(&[order(2), other.file()]).await.unwrap();
    assert_eq!(
        (
            names(&plan.added),
            plan.changed[0].from_version,
            plan.number
        ),
        (vec!["other"], 1, 2)
    );
    assert!(plan.dry_run);
    assert_eq!((node.app.definitions.deployment(), node.stored()), before);
    let plan = node.deploy(&[order(2), other.file()]).await.unwrap();
    assert_eq!((plan.dry_run, plan.number), (false, 2));
    let repeated = node.deploy(&[other.file(), order(2)]).await.unwrap();
    assert_eq!(
        (names(&repeated.unchanged), repeated.number),
        (vec!["order", "other"], 2)
    );
    let back = node.deploy(&[order(1)]).await.unwrap();
    assert_eq!(
        (
            names(&back.retired),
            back.changed[0].from_version,
            back.number
        ),
        (vec!["other"], 2, 3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_definition_starts_no_instances_and_existing_ones_continue() {
    let waiting = Saga {
        name: "waiting",
        waits: true,
        ..Saga::order(1)
    };
    let node = Node::start(&[order(1), waiting.file()]).await;
    node.place(1).await;
    node.until("it waits", |node| node.is_waiting(1)).await;
    let plan = node.deploy(&[order(1)]).await.unwrap();
    assert_eq!(names(&plan.retired), ["waiting"]);
    node.place(2).await;
    node.until("the other saga takes it", |node| node.order(2).is_some())
        .await;
    assert!(node.instance("waiting", 2).is_none());
    node.publish("Shipped", 1).await;
    node.until("it is completed", |node| {
        node.instance("waiting", 1)
            .is_some_and(|instance| instance.status == Status::Completed)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn warns_about_providers_missing_for_older_definitions() {
    let old = Saga {
        waits: true,
        ..Saga::order(1)
    };
    let node = Node::start(&[old.file()]).await;
    node.place(1).await;
    node.place(2).await;
    node.until("they wait", |node| node.is_waiting(1) && node.is_waiting(2))
        .await;
    // The node restarts without the effect that only the old definition uses.
    let new = Saga {
        effect: "test.pay",
        ..Saga::order(2)
    };
    let node = node
        .restart_with(&["test.pay", "test.ship"], Some(&[new.file()]))
        .await;
    let warnings = node.live_warnings(&new).await;
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    for part in [
        "order version 1 (",
        "has 2 live instances that may request the effect test.charge, which no upstream executes any more",
        "add [upstreams.<name>.effects.\"test.charge\"]",
        "orlog migrate order --from 1",
    ] {
        assert!(warning.contains(part), "{part:?} is not in {warning}");
    }
    node.publish("Shipped", 1).await;
    node.publish("Shipped", 2).await;
    node.until("they are completed", |node| {
        node.count(Status::Completed) == 2
    })
    .await;
    assert_eq!(node.live_warnings(&new).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn same_version_with_different_source_is_deployed_with_a_warning() {
    let node = Node::start(&[order(1)]).await;
    let other = Saga {
        effect: "test.pay",
        ..Saga::order(1)
    };
    let plan = node.deploy(&[other.file()]).await.unwrap();
    assert_eq!(plan.changed.len(), 1);
    assert!(
        plan.warnings[0].contains("order version 1 was deployed before with another content"),
        "{plan:?}"
    );
}
