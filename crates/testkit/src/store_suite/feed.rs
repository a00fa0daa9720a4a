//! Cases of watchers and the change feed.

use std::sync::Arc;

use orlog_model::{Change, Commit, Status};
use orlog_store::{Error, FeedEntity, FeedEntityKind, FeedOffset, FeedQuery, Reader};

use super::samples::{apply, at, empty, instance, key, tenant};
use super::{KEY_SHARDED, StoreFixture};

fn query(of: Option<&str>) -> FeedQuery {
    FeedQuery {
        tenant: of.map(tenant),
        kinds: vec![FeedEntityKind::Instances],
        limit: 5,
        bytes: 1 << 20,
    }
}

/// Returns the changed instances after a feed offset; deleted instances have an exclamation mark.
fn changes_after(
    reader: &Reader,
    query: &FeedQuery,
    mut offset: FeedOffset,
) -> (Vec<String>, FeedOffset) {
    let mut names = Vec::new();
    loop {
        let page = reader.feed(query, offset).unwrap();
        for touched in page.items {
            assert!(touched.position <= reader.position());
            let FeedEntity::Instance(key, now) = touched.entity else {
                panic!("{:?}", touched.entity)
            };
            names.push(if now.is_some() {
                key.to_string()
            } else {
                format!("{key}!")
            });
        }
        offset = page.next;
        if !page.more {
            return (names, offset);
        }
    }
}

/// After a feed offset, all changes of a tenant and no others are returned. Existing instances can be
/// scanned, and old commits are deleted.
pub fn feed_returns_changes_after_an_offset(mut fixture: StoreFixture) {
    let start = fixture.reader.feed_head().unwrap();
    let change = |of: &str, number: u64| {
        let key = key(of, &format!("o-{number}"));
        apply(Commit {
            instance: Some(Arc::new(instance(1, Status::Completed))),
            ..empty(&key)
        })
    };
    for of in ["acme", KEY_SHARDED] {
        fixture.commit(&(0..9).map(|number| change(of, number)).collect::<Vec<_>>());
    }
    let middle = fixture.reader.feed_head().unwrap();
    fixture.commit(&[
        change("acme", 3),
        Change::PurgeInstance {
            key: key("acme", "o-7"),
            version: 1,
        },
    ]);
    let reader = &fixture.reader;
    // Two of them changed again: a later part contains them again.
    assert_eq!(
        changes_after(reader, &query(None), start).0.len(),
        9 + 9 + 2
    );
    assert_eq!(
        changes_after(reader, &query(Some(KEY_SHARDED)), start)
            .0
            .len(),
        9
    );
    assert_eq!(changes_after(reader, &query(Some("acm")), start).0, [""; 0]);
    let (names, head) = changes_after(reader, &query(Some("acme")), middle);
    assert_eq!(
        names,
        [
            key("acme", "o-3").to_string(),
            format!("{}!", key("acme", "o-7"))
        ]
    );
    assert_eq!(
        changes_after(reader, &query(Some("acme")), head),
        (vec![], reader.feed_head().unwrap())
    );
    for (of, count) in [("acme", 8), (KEY_SHARDED, 9), ("acm", 0)] {
        let (mut found, mut cursor) = (0, None);
        loop {
            let page = reader.feed_scan(&query(Some(of)), cursor.as_ref()).unwrap();
            found += page.items.len();
            cursor = page.next;
            if !page.more {
                break;
            }
        }
        assert_eq!(found, count, "{of}");
    }
    assert!(reader.is_trim_due(at(0), 2).unwrap() && !reader.is_trim_due(at(0), 10).unwrap());
    fixture.commit(&[Change::TrimFeed {
        before: at(0),
        retained_commits: 2,
    }]);
    let expired = fixture.reader.feed(&query(None), start);
    assert!(
        matches!(expired, Err(Error::FeedOffsetExpired { .. })),
        "{expired:?}"
    );
    assert_eq!(
        changes_after(&fixture.reader, &query(None), head).0,
        [""; 0]
    );
}

/// Every commit notifies the watchers.
pub fn commits_wake_watchers(mut fixture: StoreFixture) {
    let watch = fixture.reader.watch();
    assert_eq!(*watch.borrow(), 0);
    fixture.commit(&[]);
    assert!(watch.has_changed().unwrap());
    assert_eq!(
        (*watch.borrow(), fixture.writer.reader().position()),
        (1, 1)
    );
}
