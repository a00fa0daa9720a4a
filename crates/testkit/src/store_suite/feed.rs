//! The cases about whoever watches and follows what changes.

use orlog_model::{Change, Commit, Status};
use orlog_store::{Entity, Error, Fed, FeedMark, FeedQuery, Reader};

use super::samples::{apply, at, empty, instance, key, tenant};
use super::{Rig, SPREAD};

fn query(of: Option<&str>) -> FeedQuery {
    FeedQuery { tenant: of.map(tenant), kinds: vec![Fed::Instances], limit: 5, bytes: 1 << 20 }
}

/// The instances that are told of behind a mark, those that are gone with an exclamation mark.
fn told(reader: &Reader, query: &FeedQuery, mut mark: FeedMark) -> (Vec<String>, FeedMark) {
    let mut names = Vec::new();
    loop {
        let page = reader.feed(query, mark).unwrap();
        for touched in page.items {
            assert!(touched.position <= reader.position());
            let Entity::Instance(key, now) = touched.entity else { panic!("{:?}", touched.entity) };
            names.push(if now.is_some() { key.to_string() } else { format!("{key}!") });
        }
        mark = page.next;
        if !page.more {
            return (names, mark);
        }
    }
}

/// Behind a mark every change of a tenant is told, and no other; what there is can be gone through; old commits are forgotten.
pub fn what_changed_is_told_from_a_mark_on(mut rig: Rig) {
    let begun = rig.reader.feed_head().unwrap();
    let change = |of: &str, number: u64| {
        let key = key(of, &format!("o-{number}"));
        apply(Commit { instance: Some(instance(1, Status::Completed)), ..empty(&key) })
    };
    for of in ["acme", SPREAD] {
        rig.commit(&(0..9).map(|number| change(of, number)).collect::<Vec<_>>());
    }
    let middle = rig.reader.feed_head().unwrap();
    rig.commit(&[change("acme", 3), Change::PurgeInstance { key: key("acme", "o-7"), version: 1 }]);
    let reader = &rig.reader;
    // Two of them changed again: they are told again, in a later part.
    assert_eq!(told(reader, &query(None), begun).0.len(), 9 + 9 + 2);
    assert_eq!(told(reader, &query(Some(SPREAD)), begun).0.len(), 9);
    assert_eq!(told(reader, &query(Some("acm")), begun).0, [""; 0]);
    let (names, head) = told(reader, &query(Some("acme")), middle);
    assert_eq!(names, [key("acme", "o-3").to_string(), format!("{}!", key("acme", "o-7"))]);
    assert_eq!(told(reader, &query(Some("acme")), head), (vec![], reader.feed_head().unwrap()));
    for (of, count) in [("acme", 8), (SPREAD, 9), ("acm", 0)] {
        let (mut found, mut place) = (0, None);
        loop {
            let page = reader.feed_scan(&query(Some(of)), place.as_ref()).unwrap();
            found += page.items.len();
            place = page.next;
            if !page.more {
                break;
            }
        }
        assert_eq!(found, count, "{of}");
    }
    assert!(reader.is_trim_due(at(0), 2).unwrap() && !reader.is_trim_due(at(0), 10).unwrap());
    rig.commit(&[Change::TrimFeed { before: at(0), keep: 2 }]);
    let gone = rig.reader.feed(&query(None), begun);
    assert!(matches!(gone, Err(Error::MarkGone { .. })), "{gone:?}");
    assert_eq!(told(&rig.reader, &query(None), head).0, [""; 0]);
}

/// Who watches hears of each commit.
pub fn commits_wake_those_who_watch(mut rig: Rig) {
    let watch = rig.reader.watch();
    assert_eq!(*watch.borrow(), 0);
    rig.commit(&[]);
    assert!(watch.has_changed().unwrap());
    assert_eq!((*watch.borrow(), rig.writer.reader().position()), (1, 1));
}
