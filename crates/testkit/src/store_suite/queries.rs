//! Conformance cases: queries over instances, and inspection of tables.
//!
//! Size: one conformance case is one scenario over one set of instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{
    Change, Commit, DeadLetterOriginal, Instance, InstanceKey, Status, StreamPosition,
};
use orlog_store::{Error, FoundInstance, InspectQuery, InstanceQuery};
use serde_json::json;
use uuid::Uuid;

use super::samples::{
    apply, at, dead_letter, dedupe_key, effect, empty, instance, key, saga, source, tenant, timer,
};
use super::{KEY_SHARDED, StoreFixture};

/// Queries filter and page without gaps or duplicates, and never return instances of another tenant.
pub fn instance_query_pages(mut fixture: StoreFixture) {
    for of in ["acme", "acme2", KEY_SHARDED] {
        let group = (1..=40u64).map(|number| {
            let status = if number % 4 == 0 {
                Status::Failed
            } else {
                Status::Running
            };
            let key = key(
                of,
                &format!(
                    "{}-{number:02}",
                    if number % 2 == 0 { "even" } else { "odd" }
                ),
            );
            apply(Commit {
                instance: Some(Arc::new(instance(number, status))),
                ..empty(&key)
            })
        });
        fixture.commit(&group.collect::<Vec<_>>());
    }
    // In the memtable, then in the tables.
    for (of, is_flushed) in [
        ("acme", false),
        (KEY_SHARDED, false),
        ("acme", true),
        (KEY_SHARDED, true),
    ] {
        if is_flushed {
            fixture.writer.flush().unwrap();
        }
        let all = InstanceQuery {
            tenant: tenant(of),
            limit: 7,
            ..InstanceQuery::default()
        };
        assert_eq!(found(&fixture, &all).len(), 40);
        assert_eq!(
            found(
                &fixture,
                &InstanceQuery {
                    scan_limit: 3,
                    ..all.clone()
                }
            )
            .len(),
            40
        );
        let failed = InstanceQuery {
            statuses: vec![Status::Failed, Status::Stuck],
            ..all.clone()
        };
        assert_eq!(found(&fixture, &failed).len(), 10);
        let limited = InstanceQuery {
            scan_limit: 3,
            ..failed.clone()
        };
        assert_eq!(found(&fixture, &limited).len(), 10);
        let odd_failed = InstanceQuery {
            saga: Some(saga("order")),
            prefix: Some("odd-".to_owned()),
            ..failed.clone()
        };
        assert!(found(&fixture, &odd_failed).is_empty());
        let odd = InstanceQuery {
            saga: Some(saga("order")),
            prefix: Some("odd-".to_owned()),
            ..all.clone()
        };
        assert_eq!(found(&fixture, &odd).len(), 20);
        assert_eq!(
            found(&fixture, &InstanceQuery { saga: None, ..odd }).len(),
            20
        );
        let recent = InstanceQuery {
            updated_from: Some(at(31)),
            updated_until: Some(at(36)),
            ..all.clone()
        };
        assert_eq!(found(&fixture, &recent).len(), 5);
        assert!(
            found(
                &fixture,
                &InstanceQuery {
                    created_until: Some(at(0)),
                    ..all.clone()
                }
            )
            .is_empty()
        );
        assert!(
            found(
                &fixture,
                &InstanceQuery {
                    saga: Some(saga("other")),
                    ..all
                }
            )
            .is_empty()
        );
    }
    let counts = BTreeMap::from([
        ((saga("order"), Status::Running), 30),
        ((saga("order"), Status::Failed), 10),
    ]);
    assert_eq!(fixture.reader.count(&tenant(KEY_SHARDED)).unwrap(), counts);
    let page = fixture.reader.instances(&InstanceQuery {
        tenant: tenant("acme"),
        limit: 1,
        ..InstanceQuery::default()
    });
    for cursor in [
        page.unwrap().next.unwrap(),
        "zz".to_owned(),
        "00".to_owned(),
        "ä".to_owned(),
    ] {
        let foreign = InstanceQuery {
            tenant: tenant("acme2"),
            cursor: Some(cursor),
            ..InstanceQuery::default()
        };
        assert!(matches!(
            fixture.reader.instances(&foreign),
            Err(Error::InvalidCursor { .. })
        ));
    }
    // A position in an index is no position in the instances.
    let failed = InstanceQuery {
        tenant: tenant("acme"),
        statuses: vec![Status::Failed],
        limit: 1,
        ..InstanceQuery::default()
    };
    let cursor = fixture.reader.instances(&failed).unwrap().next;
    let without_index = InstanceQuery {
        statuses: Vec::new(),
        cursor,
        ..failed
    };
    assert!(matches!(
        fixture.reader.instances(&without_index),
        Err(Error::InvalidCursor { .. })
    ));
}

/// Returns all pages of a query. Checks that each instance occurs once and belongs to the tenant.
fn found(fixture: &StoreFixture, query: &InstanceQuery) -> BTreeMap<InstanceKey, Instance> {
    let mut query = query.clone();
    let mut found = BTreeMap::new();
    loop {
        let page = fixture.reader.instances(&query).unwrap();
        for FoundInstance { key, instance, .. } in page.items {
            assert_eq!(key.tenant, query.tenant);
            assert!(
                found.insert(key, instance).is_none(),
                "an instance was found twice"
            );
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            return found;
        }
    }
}

/// Operators can inspect each keyspace in its usual notation, of one tenant or of all.
///
/// Requirements: R4.
pub fn tables_are_inspectable(mut fixture: StoreFixture) {
    let key = key("acme", "o-1");
    fixture.commit(&[
        apply(Commit {
            instance: Some(Arc::new(Instance {
                state: b"{\"step\":2}".to_vec(),
                ..instance(1, Status::Running)
            })),
            work: vec![effect(&key, "payments.charge", 1)],
            arm: vec![timer(50, 1)],
            dedupe_key: Some(dedupe_key("e")),
            dead_letter: Some(Box::new(dead_letter("zeta", 3))),
            ..empty(&key)
        }),
        Change::Checkpoint(source(), StreamPosition::after(Uuid::nil(), 1)),
    ]);
    let acme = tenant("acme");
    let only = |table| {
        fixture
            .reader
            .inspect_rows(table, None, 9)
            .unwrap()
            .remove(0)
    };
    assert_eq!(
        (
            only("saga").key.as_str(),
            &only("saga").value["state"]["step"]
        ),
        ("saga:acme:order:o-1", &json!(2))
    );
    assert_eq!(only("outbox").key, "outbox:acme:effect:payments.charge:1");
    assert_eq!(
        only("schedule").key,
        "schedule:acme:order:o-1:1970-01-01T00:00:00.050Z:timeout"
    );
    assert_eq!(
        (only("dedupe").key.as_str(), only("checkpoint").key.as_str()),
        (
            format!("dedupe:acme:order:o-1:{}", dedupe_key("e")).as_str(),
            "checkpoint:events:*"
        )
    );
    assert_eq!(
        fixture
            .reader
            .inspect_rows("deadletter", Some(&acme), 9)
            .unwrap(),
        []
    );
    assert_eq!(
        fixture
            .reader
            .inspect_rows("saga", Some(&acme), 9)
            .unwrap()
            .len(),
        1
    );
    assert!(matches!(
        fixture.reader.inspect_rows("users", None, 9),
        Err(Error::NoSuchTable { .. })
    ));
}

/// The inspection of a tenant reads its rows only, where the keys start with the tenant; elsewhere it stops at
/// its limit.
pub fn inspection_reads_no_rows_of_other_tenants(mut fixture: StoreFixture) {
    let row = |tenant: &str, number: u128| {
        let key = key(tenant, &format!("o-{number}"));
        apply(Commit {
            instance: Some(Arc::new(instance(1, Status::Running))),
            work: vec![effect(&key, "payments.charge", number)],
            arm: vec![timer(50, 1)],
            dead_letter: Some(Box::new(dead_letter(tenant, number))),
            ..empty(&key)
        })
    };
    let others = (0..100).flat_map(|number| [row("aaa", 2 * number), row("zeta", 2 * number + 1)]);
    let group: Vec<_> = others.chain([row("acme", 1000)]).collect();
    fixture.commit(&group);
    let acme = tenant("acme");
    let inspect = |table, scan_limit| {
        let query = InspectQuery {
            table,
            tenant: Some(&acme),
            after: None,
            limit: 9,
            scan_limit,
        };
        fixture.reader.inspect_page(&query).unwrap()
    };
    for table in ["saga", "outbox", "deadletter"] {
        let page = inspect(table, 5);
        assert_eq!(
            (page.rows.len(), page.scanned, page.is_cut),
            (1, 1, false),
            "{table}"
        );
    }
    let page = inspect("schedule", 5);
    assert_eq!((page.rows.len(), page.scanned, page.is_cut), (0, 5, true));
    assert_eq!(inspect("schedule", 999).rows.len(), 1);
}

/// A page of large rows ends by its size, and the next page continues after it.
pub fn pages_of_large_rows_end_by_their_size(mut fixture: StoreFixture) {
    const ROWS: u128 = 7;
    const ROW_BYTES: usize = 1 << 20;

    for number in 1..=ROWS {
        let key = key("acme", &format!("o-{number}"));
        let large = Instance {
            state: vec![b'x'; ROW_BYTES],
            ..instance(1, Status::Running)
        };
        fixture.apply(Commit {
            instance: Some(Arc::new(large)),
            ..empty(&key)
        });
    }

    for statuses in [vec![], vec![Status::Running]] {
        let mut query = InstanceQuery {
            tenant: tenant("acme"),
            statuses,
            limit: 100,
            ..InstanceQuery::default()
        };
        let mut found = Vec::new();
        loop {
            let page = fixture.reader.instances(&query).unwrap();
            let bytes: usize = page
                .items
                .iter()
                .map(|item| item.instance.state.len())
                .sum();
            assert!(bytes <= 5 * ROW_BYTES, "{bytes}");
            found.extend(page.items.into_iter().map(|item| item.key));
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
        found.dedup();
        assert_eq!(found.len() as u128, ROWS, "{:?}", query.statuses);
    }

    let rows = fixture.reader.inspect_rows("saga", None, 100).unwrap();
    assert_eq!(rows.len() as u128, ROWS);
    let query = InspectQuery {
        table: "saga",
        limit: 100,
        scan_limit: 100,
        ..InspectQuery::default()
    };
    let first = fixture.reader.inspect_page(&query).unwrap();
    assert!(
        first.next.is_some() && first.rows.len() <= 5,
        "{:?}",
        first.rows.len()
    );
}

/// A page of large dead letters ends by its size, and the next page continues after it.
pub fn pages_of_large_dead_letters_end_by_their_size(mut fixture: StoreFixture) {
    const ROWS: u128 = 7;
    const ROW_BYTES: usize = 1 << 20;

    for number in 1..=ROWS {
        let mut large = dead_letter("acme", number);
        large.original = DeadLetterOriginal::Message {
            subject: "s".to_owned(),
            headers: vec![],
            payload: vec![b'x'; ROW_BYTES],
        };
        fixture.apply(Commit {
            dead_letter: Some(Box::new(large)),
            ..empty(&key("acme", "o-1"))
        });
    }

    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = fixture
            .reader
            .dead_letter_page(&tenant("acme"), after, 100)
            .unwrap();
        assert!(page.items.len() <= 5, "{}", page.items.len());
        found.extend(page.items.into_iter().map(|letter| letter.id.as_u128()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, (1..=ROWS).collect::<Vec<_>>());
}
