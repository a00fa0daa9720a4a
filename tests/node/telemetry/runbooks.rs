//! Exercises of docs/runbooks: each fault is injected into a real node and the alert fires in a real
//! Prometheus. Then the commands of the page run, the fault is fixed, and the alert is resolved.
//!
//! The rules are the shipped ones, with shorter delays and windows.

mod actors;
mod cluster;
mod exercise;
mod page;
mod process;
mod storage;
mod streams;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::wait::until;
use serde_json::json;

use crate::effects::http_upstream::HttpUpstream;
use crate::telemetry::node::{Node, event, placed};
use exercise::RunbookExercise;

/// Saga that starts itself.
const TICK: &str = r#"
saga: tick
version: 1
correlate: id
start: Ticked
vars: { chain: =event.chain, n: =event.n }
steps:
  - { id: pause, do: { wait: 20ms } }
completed:
  fact: Ticked
  data: { id: '=vars.chain + "-" + string(vars.n + 1)', chain: =vars.chain, n: =vars.n + 1 }
"#;

/// Saga with one effect of a configured upstream.
const PARCEL: &str = r"
saga: parcel
version: 1
correlate: parcelId
start: ParcelPacked
steps:
  - { id: send, do: { effect: post.send } }
";

#[tokio::test(flavor = "multi_thread")]
async fn runbook_stuck_saga() {
    let exercise = RunbookExercise::begin("stuck-saga.md", "OrlogSagaStuck").await;
    let node = &exercise.node;
    node.switches.refunds.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("stuck-1", 700), placed("good-1", 5)])
        .await;
    exercise.until_it_fires().await;
    exercise
        .finds("1 instances are stuck, such as acme:order:stuck-1")
        .await;
    exercise
        .inspect(&[&["stuck-1", "stuck"], &["stuck-1", "bank_closed"]])
        .await;
    node.switches.refunds.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    let output = exercise.run("orlog saga show order stuck-1").await;
    assert!(
        output.contains("failed") && output.contains("the bank is open again"),
        "{output}"
    );

    // The refunds of two other orders are corrected outside.
    node.switches.refunds.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("stuck-2", 700), placed("stuck-3", 700)])
        .await;
    let both = "orlog_instances_stuck{saga=\"order\"} 2";
    node.until("both orders are stuck", both).await;
    for (action, order) in [("skip", "stuck-2"), ("force-complete", "stuck-3")] {
        let command = format!("orlog saga {action} order stuck-1 --reason \"paid back by hand\"");
        exercise.follow(&command, &[("stuck-1", order)]).await;
        let output = exercise
            .run(&format!("orlog saga show order {order}"))
            .await;
        assert!(output.contains("paid back by hand"), "{output}");
    }
    exercise.until_it_resolves().await;
    exercise.finds_nothing("shard 0").await;

    give_missing_values(&exercise).await;
    exercise.until_it_resolves().await;
    exercise.end().await;
}

/// Two refunds lack the receipt that the response of the bank did not have. The first result is
/// corrected; a new version does without the second one.
async fn give_missing_values(exercise: &RunbookExercise<Node>) {
    let node = &exercise.node;
    let with_receipt = |order: &str, version: u32, allow_null: &str| {
        let refund = "    undo: { effect: bank.refund, data: { total: =vars.total";
        let save = "    save: { receipt: =event.receipt }\n";
        let order = order.replace("version: 1", &format!("version: {version}"));
        let order = order.replace("    ok: Charged\n", &format!("    ok: Charged\n{save}"));
        order.replace(
            &format!("{refund} }}"),
            &format!("{refund}, receipt: =vars.receipt }}{allow_null}"),
        )
    };
    node.switches.refunds.store(true, Ordering::SeqCst);
    node.write_definitions("definitions", |order| with_receipt(order, 2, ""));
    exercise.run("orlog deploy definitions").await;
    node.publish("acme", &[placed("edited-1", 5), placed("migrated-1", 5)])
        .await;
    let edited = exercise.dead_letter_of("edited-1").await;
    exercise.dead_letter_of("migrated-1").await;
    for order in ["edited-1", "migrated-1"] {
        exercise
            .run(&format!("orlog saga cancel order {order}"))
            .await;
        until_shown(exercise, order, "undo_without_value").await;
    }

    exercise
        .try_run("printf '{\"receipt\": \"r-1\"}' >result.json")
        .await;
    let redrive = "orlog dlq redrive ID --data @result.json";
    exercise.follow(redrive, &[("ID", &edited)]).await;
    until_shown(exercise, "edited-1", "order edited-1: cancelled").await;

    node.write_definitions("definitions", |order| {
        with_receipt(order, 3, ", allow_null: [receipt]")
    });
    exercise.run("orlog deploy definitions").await;
    exercise.follow("orlog migrate order --from 2", &[]).await;
    let retry = "orlog saga retry order stuck-1 --reason \"the bank is open again\"";
    exercise.follow(retry, &[("stuck-1", "migrated-1")]).await;
    until_shown(exercise, "migrated-1", "order migrated-1: cancelled").await;
}

async fn until_shown(exercise: &RunbookExercise<Node>, order: &str, text: &str) {
    until(&format!("{order} shows {text:?}"), async || {
        let show = format!("orlog saga show order {order}");
        exercise.run(&show).await.contains(text).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_open_breaker() {
    let exercise = RunbookExercise::begin("open-breaker.md", "OrlogBreakerOpen").await;
    let node = &exercise.node;
    node.switches.carrier.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("a", 5), placed("b", 5), placed("c", 5)])
        .await;
    exercise.until_it_fires().await;
    exercise.finds("circuit breaker of carrier is ").await;
    exercise.finds("too many failures; last: ").await;
    exercise
        .inspect(&[&["\"name\":\"carrier\"", "open\""], &["carrier.ship"]])
        .await;
    node.switches.carrier.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    node.until(
        "what waited is done",
        "orlog_tenant_instances_ended_total{tenant=\"acme\",status=\"completed\"} 3",
    )
    .await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_growing_outbox() {
    let exercise = RunbookExercise::begin("outbox-backlog.md", "OrlogOutboxGrows").await;
    let node = &exercise.node;
    node.switches.gateway.store(false, Ordering::SeqCst);
    let written = |n: u32| {
        event(
            &format!("w-{n}"),
            "LetterWritten",
            &json!({ "letterId": format!("l-{n}") }),
        )
    };
    node.publish("acme", &[written(1), written(2)]).await;
    exercise.until_it_fires().await;
    exercise.finds("work for post has waited for ").await;
    exercise
        .inspect(&[
            &["outbox:acme:command:post:", "Stamp"],
            &["\"name\":\"gateway\"", "\"in_flight\""],
        ])
        .await;
    node.switches.gateway.store(true, Ordering::SeqCst);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_slow_disk() {
    let exercise = RunbookExercise::begin("slow-disk.md", "OrlogDiskSlow").await;
    let node = &exercise.node;
    let walked_through = async {
        node.disk.set_slow(Duration::from_millis(200));
        exercise.until_it_fires().await;
        exercise.finds("the disk is slow: ").await;
        let fsyncs: &[&str] = &[
            "orlog_store_fsync_seconds_bucket{le=\"0.1\",shard=\"0\"}",
            "orlog_store_unflushed_commits",
        ];
        exercise
            .inspect(&[fsyncs, &["\"store\":{\"status\":\"ok\"}"]])
            .await;
        node.disk.set_slow(Duration::ZERO);
        exercise.cure().await;
        exercise.until_it_resolves().await;
    };
    tokio::select! {
        () = walked_through => {}
        () = node.go_on() => unreachable!("the load goes on for ever"),
    }
    exercise.follow("orlog drain", &[]).await;
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_poison_message() {
    let exercise = RunbookExercise::begin("poison-messages.md", "OrlogPoisonMessages").await;
    let node = &exercise.node;
    let without_total = event(
        "placed-poison",
        "OrderPlaced",
        &json!({ "orderId": "poison-1" }),
    );
    node.publish("acme", &[without_total, placed("good-1", 5)])
        .await;
    exercise.until_it_fires().await;
    exercise.finds("1 messages were dead-lettered").await;
    exercise
        .inspect(&[&["poison-1", "schema_mismatch", "total"]])
        .await;
    let id = exercise.dead_letter_of("poison-1").await;
    let output = exercise
        .follow("orlog dlq show <id>", &[("<id>", &id)])
        .await;
    assert!(output.contains("placed-poison"), "{output}");
    let attention = "orlog saga list --filter \"attention == 'unapplied_result'\"";
    exercise.follow(attention, &[]).await;

    node.bear_orders_without_total();
    exercise.cure().await;
    // A second message can never be applied.
    let without_id = event("placed-poison-2", "OrderPlaced", &json!({ "total": 5 }));
    node.publish("acme", &[without_id]).await;
    let id = exercise.dead_letter_of("").await;
    exercise
        .follow("orlog dlq discard <id>", &[("<id>", &id)])
        .await;
    exercise.until_it_resolves().await;
    let output = exercise.run("orlog saga show order poison-1").await;
    assert!(output.contains("completed"), "{output}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_bad_deploy() {
    let exercise = RunbookExercise::begin("bad-deploy.md", "OrlogDefinitionFails").await;
    let node = &exercise.node;
    node.write_definitions("previous", str::to_owned);
    node.publish("acme", &[placed("good-1", 5)]).await;
    // The new version sends another total to the carrier, which rejects it.
    node.write_definitions("definitions", |order| {
        let order = order.replace("version: 1", "version: 2");
        order.replace(
            "carrier.ship, data: { total: =vars.total }",
            "carrier.ship, data: { total: =vars.total + 500 }",
        )
    });
    exercise.run("orlog deploy definitions").await;
    let series =
        "orlog_definition_instances_ended_total{saga=\"order\",version=\"2\",status=\"failed\"}";
    exercise
        .prometheus
        .until(series, |samples| !samples.is_empty())
        .await;
    let bad: Vec<_> = (1..=8).map(|n| placed(&format!("bad-{n}"), 5)).collect();
    node.publish("acme", &bad).await;
    exercise.until_it_fires().await;
    exercise
        .finds("8 of 8 instances of order version 2 that ended")
        .await;
    node.switches.charges.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("running-1", 5)]).await;
    let failed = "{saga=\"order\",version=\"2\",status=\"failed\"} 8";
    exercise.inspect(&[&[failed], &["bad-1", "failed"]]).await;
    let output = exercise
        .follow("orlog saga show order <id> --full", &[("<id>", "bad-1")])
        .await;
    assert!(output.contains("too_dear"), "{output}");
    for command in exercise.page.resolution() {
        // The running instance is migrated before the bank responds.
        node.switches
            .charges
            .store(command.starts_with("orlog saga start"), Ordering::SeqCst);
        exercise.run(command).await;
    }
    exercise.until_it_resolves().await;
    exercise.finds_nothing("definitions").await;
    for order in ["bad-1", "running-1"] {
        let output = exercise
            .run(&format!("orlog saga result order {order} --wait 10s"))
            .await;
        assert!(output.contains("completed"), "{order}: {output}");
    }
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_unapplied_result() {
    let exercise = RunbookExercise::begin("unapplied-result.md", "OrlogResultUnapplied").await;
    let node = &exercise.node;
    // The response of the bank has no receipt.
    node.write_definitions("definitions", |order| {
        let order = order.replace("version: 1", "version: 2");
        order.replace(
            "    ok: Charged\n",
            "    ok: Charged\n    save: { receipt: =event.receipt }\n",
        )
    });
    exercise.run("orlog deploy definitions").await;
    node.publish("acme", &[placed("unapplied-1", 5)]).await;
    exercise.until_it_fires().await;
    exercise
        .finds("1 instances wait for a result that became a dead letter, such as acme:order:unapplied-1")
        .await;
    exercise
        .inspect(&[&["unapplied-1"], &["schema_mismatch", "receipt"]])
        .await;
    let of_order = [("<saga>", "order"), ("<id>", "unapplied-1")];
    let output = exercise
        .follow("orlog saga show <saga> <id>", &of_order)
        .await;
    assert!(output.contains("charge"), "{output}");

    // The result of another order is corrected, and those of two others are never applied.
    let others = ["edited-1", "cancelled-1", "discarded-1"].map(|id| placed(id, 5));
    node.publish("acme", &others).await;
    let id = exercise.dead_letter_of("edited-1").await;
    let of_letter = [("ID", id.as_str())];
    let output = exercise.follow("orlog dlq show ID", &of_letter).await;
    assert!(output.contains("edited-1"), "{output}");
    exercise
        .try_run("printf '{\"receipt\": \"r-1\"}' >result.json")
        .await;
    exercise
        .follow("orlog dlq redrive ID --data @result.json", &of_letter)
        .await;
    until("the edited result is applied", async || {
        let list = exercise.run("orlog dlq list").await;
        (!list.contains("edited-1")).then_some(())
    })
    .await;
    let id = exercise.dead_letter_of("cancelled-1").await;
    let of_order = [("<saga>", "order"), ("<id>", "cancelled-1")];
    exercise
        .follow("orlog saga cancel <saga> <id>", &of_order)
        .await;
    exercise
        .follow("orlog dlq discard ID", &[("ID", &id)])
        .await;
    let id = exercise.dead_letter_of("discarded-1").await;
    exercise
        .follow("orlog dlq discard ID --force", &[("ID", &id)])
        .await;
    for (order, status) in [("cancelled-1", "cancelled"), ("discarded-1", "failed")] {
        let ended = format!("order {order}: {status}");
        until(&ended, async || {
            let output = exercise
                .run(&format!("orlog saga show order {order}"))
                .await;
            output.contains(&ended).then_some(())
        })
        .await;
    }

    node.write_definitions("corrected", |order| {
        order.replace("version: 1", "version: 3")
    });
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("shard 0").await;
    let output = exercise
        .run("orlog saga result order unapplied-1 --wait 10s")
        .await;
    assert!(output.contains("completed"), "{output}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_runaway_definition() {
    let tick = |_: &mut _, dir: &std::path::Path| {
        std::fs::write(dir.join("definitions/tick.saga.yaml"), TICK).unwrap();
    };
    let exercise =
        RunbookExercise::begin_with("runaway-definition.md", "OrlogDefinitionRunsAway", tick).await;
    let node = &exercise.node;
    for chain in ["a", "b", "c"] {
        let data = json!({ "id": format!("{chain}-1"), "chain": chain, "n": 1 });
        node.publish("acme", &[event(&format!("first-{chain}"), "Ticked", &data)])
            .await;
    }
    exercise.until_it_fires().await;
    exercise.finds("start events or facts to tick itself").await;
    exercise
        .inspect(&[
            &["orlog_saga_own_inputs_total{saga=\"tick\"}"],
            &["tick", "running"],
        ])
        .await;
    node.write_definitions("corrected", str::to_owned);
    let corrected = TICK
        .replace("version: 1", "version: 2")
        .replace("fact: Ticked", "fact: TickCompleted");
    std::fs::write(node.dir.path().join("corrected/tick.saga.yaml"), corrected).unwrap();
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("definitions").await;
    // An instance that loops by itself ends or waits. Here, two orders that retry stand for it.
    node.switches.charges.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("loops-1", 5), placed("loops-2", 5)])
        .await;
    let loops = [
        ("cancel", "loops-1", "cancelled"),
        ("pause", "loops-2", "paused"),
    ];
    for (action, order, _) in loops {
        let values = [("tick", "order"), ("<id>", order)];
        let command = format!("orlog saga {action} tick <id>");
        exercise.follow(&command, &values).await;
    }
    // The charge in progress ends.
    node.switches.charges.store(true, Ordering::SeqCst);
    for (_, order, status) in loops {
        until(&format!("{order} is {status}"), async || {
            let output = exercise
                .run(&format!("orlog saga show order {order}"))
                .await;
            output.contains(status).then_some(())
        })
        .await;
    }
    let output = exercise
        .run("orlog saga list --saga tick --status running")
        .await;
    assert!(!output.contains("tick "), "{output}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_hot_tenant() {
    let upstream = HttpUpstream::open().await;
    upstream.permits.forget_permits(usize::MAX);
    let url = upstream.url.clone();
    let exercise = RunbookExercise::begin_with("hot-tenant.md", "OrlogTenantHot", |config, dir| {
        std::fs::write(dir.join("definitions/parcel.saga.yaml"), PARCEL).unwrap();
        std::fs::create_dir(dir.join("upstreams")).unwrap();
        let post = format!(
            "base_url = {url:?}\nmax_concurrency = 4\n[effects.\"post.send\"]\npath = \"/send\"\n"
        );
        std::fs::write(dir.join("upstreams/post.toml"), post).unwrap();
        config.upstreams_dir = Some(dir.join("upstreams"));
    })
    .await;
    let node = &exercise.node;
    let packed = |id: String| event(&id, "ParcelPacked", &json!({ "parcelId": id }));
    let flood: Vec<_> = (0..2000).map(|n| packed(format!("flood-{n}"))).collect();
    // The upstream executes 40 effects a second; another tenant sends one parcel a second.
    let traffic = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for n in 0.. {
            ticks.tick().await;
            upstream.permits.add_permits(4);
            if n % 10 == 0 {
                node.publish("acme", &[packed(format!("acme-{n}"))]).await;
            }
        }
    };
    let walked_through = async {
        node.publish_batch("flood", &flood).await;
        exercise.until_it_fires().await;
        let alert = exercise.prometheus.query(&exercise.firing()).await.unwrap();
        assert_eq!(alert[0]["metric"]["tenant"], "flood");
        exercise.finds("tenant \"flood\" causes ").await;
        let transitions = "orlog_tenant_transitions_total{tenant=\"flood\"}";
        exercise
            .inspect(&[&[transitions], &["outbox:flood:effect:post.send:"]])
            .await;
        exercise.diagnose("tenant \"flood\" causes ").await;
        exercise.cure().await;
        exercise.until_it_resolves().await;
        exercise.finds_nothing("tenants").await;
    };
    tokio::select! {
        () = walked_through => {}
        () = traffic => unreachable!("the traffic goes on for ever"),
    }
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_full_disk() {
    let small = |config: &mut orlog::config::Config, _: &std::path::Path| {
        config.store.journal_segment_size = 64 << 10;
        // A flush would free segments.
        config.store.memtable_max_age = WAIT_TIMEOUT * 10;
    };
    let exercise = RunbookExercise::begin_with("disk-full.md", "OrlogStoreFull", small).await;
    let node = &exercise.node;
    // Obsolete data.
    let without_total = json!({ "orderId": "poison-1" });
    node.publish(
        "acme",
        &[event("placed-poison", "OrderPlaced", &without_total)],
    )
    .await;
    let obsolete = exercise.dead_letter_of("poison-1").await;
    node.disk.set_full(true);
    // Allocated space is used first.
    let orders = AtomicU32::new(0);
    let rejected = async || {
        let order = format!("o-{}", orders.fetch_add(1, Ordering::SeqCst));
        (node.try_publish("acme", &placed(&order, 5)).await == 507).then_some(())
    };
    until("events are rejected", rejected).await;
    exercise.until_it_fires().await;
    exercise
        .finds("rejects new work, because a store is full")
        .await;
    exercise
        .inspect(&[
            &["the store is full"],
            &["a store is full", "free disk space"],
        ])
        .await;
    node.disk.set_full(false);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("node").await;
    exercise
        .follow("orlog dlq discard <id>", &[("<id>", &obsolete)])
        .await;
    node.publish("acme", &[placed("later", 5)]).await;
    let output = exercise
        .run("orlog saga result order later --wait 10s")
        .await;
    assert!(output.contains("completed"), "{output}");
    exercise.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runbook_clock_jump() {
    let exercise = RunbookExercise::begin("clock-jump.md", "OrlogClockJumped").await;
    let node = &exercise.node;
    node.write_definitions("definitions", |order| {
        let order = order.replace("version: 1", "version: 2");
        order.replace("    ok: Charged\n", "    ok: Charged\n    timeout: 30m\n")
    });
    exercise.run("orlog deploy definitions").await;
    node.switches.charges.store(false, Ordering::SeqCst);
    node.publish("acme", &[placed("early-1", 5)]).await;
    node.until("the order waits", "orlog_timers_armed{shard=\"0\"} 1")
        .await;
    node.clock.set_offset(3_600_000);
    exercise.until_it_fires().await;
    exercise
        .finds("the wall clock of this machine was set forward by 36")
        .await;
    // The next input of the node lets the timer read the clock.
    node.publish("acme", &[placed("other-1", 5000)]).await;
    node.until("the timer fires early", "orlog_timers_fired_total 1")
        .await;
    exercise
        .inspect(&[&["orlog_clock_offset_seconds 36"], &["early-1", "failed"]])
        .await;
    node.clock.set_offset(0);
    exercise.cure().await;
    exercise.until_it_resolves().await;
    exercise.finds_nothing("clock").await;
    node.switches.charges.store(true, Ordering::SeqCst);
    let order = [("<saga>", "order"), ("<id>", "early-1")];
    until("the charge of the failed order ends", async || {
        let shown = exercise.follow("orlog saga show <saga> <id>", &order).await;
        (!shown.contains("pending work")).then_some(())
    })
    .await;
    let data = r#"'{"orderId": "early-1", "total": 5}'"#;
    let values = [("<saga>", "order"), ("<id>", "early-1"), ("<data>", data)];
    let again = "orlog saga start <saga> --id <id> --data <data> --on-existing restart";
    exercise.follow(again, &values).await;
    let output = exercise
        .run("orlog saga result order early-1 --wait 10s")
        .await;
    assert!(output.contains("completed"), "{output}");
    exercise.end().await;
}

/// Alerts that no exercise provokes, each with the reason.
const NOT_PROVOKED: [(&str, &str); 2] = [
    (
        "OrlogShardLeasedNotRunning",
        "it needs a start or a stop that takes longer than its lease, and its remedies are those of the other alerts",
    ),
    (
        "OrlogStoreNearlyFull",
        "it needs a disk that is nearly full; OrlogStoreFull has the same remedies",
    ),
];

#[test]
fn every_runbook_and_every_alert_has_an_exercise() {
    let mut sources = include_str!("runbooks.rs")
        .split_once("const NOT_PROVOKED")
        .unwrap()
        .0
        .to_owned();
    sources.push_str(include_str!("runbooks/actors.rs"));
    sources.push_str(include_str!("runbooks/cluster.rs"));
    sources.push_str(include_str!("runbooks/storage.rs"));
    sources.push_str(include_str!("runbooks/streams.rs"));

    for entry in std::fs::read_dir(page::directory()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_exercised = name == "README.md" || sources.contains(&format!("{name:?}"));
        assert!(is_exercised, "no exercise opens docs/runbooks/{name}");
    }
    for (alert, _) in super::queries::alerts() {
        let is_provoked = sources.contains(&format!("{alert:?}"));
        let has_reason = NOT_PROVOKED.iter().any(|(known, _)| *known == alert);
        assert!(
            is_provoked != has_reason,
            "{alert}: provoked: {is_provoked}"
        );
    }
}
