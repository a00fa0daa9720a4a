//! For how long it is known what was applied.

use orlog_model::{Change, Commit, EventId, Timestamp};

use super::samples::{apply, at, empty, event_id, key};
use super::{Rig, WINDOW};

/// An applied event is remembered for at least a window, also when the clock is set back, and forgotten when told.
pub fn applied_events_are_remembered_for_a_window(mut rig: Rig) {
    let (key, id) = (key("acme", "o-1"), event_id("e"));
    let committed = at(19_999);
    rig.commit_at(&[apply(Commit { applied: Some(id.clone()), ..empty(&key) })], committed);
    let applied = |rig: &Rig, now| rig.reader.applied(&key, &id, now).unwrap();
    assert!(applied(&rig, committed) && applied(&rig, committed.after(WINDOW)));
    assert!(applied(&rig, at(5)), "a clock that was set back forgets nothing");
    rig.commit_at(&[Change::PurgeApplied { before: committed }], committed);
    assert!(applied(&rig, committed.after(WINDOW)), "its window is not over");
    assert!(!rig.reader.is_purge_due(committed).unwrap() && rig.reader.is_purge_due(at(20_000)).unwrap());
    rig.commit_at(&[Change::PurgeApplied { before: at(20_000) }], at(40_000));
    assert!(!applied(&rig, committed) && !rig.reader.is_purge_due(at(20_000)).unwrap());
}

/// After a rest that was longer than the window, what was applied just before it is known until the store was awake for a window; also
/// where it is closed again before.
pub fn no_time_passes_for_applied_events_in_a_rest(mut rig: Rig) {
    let (key, [early, late, after]) = (key("acme", "o-1"), ["e", "l", "a"].map(event_id));
    let applied = |id: &EventId| apply(Commit { applied: Some(id.clone()), ..empty(&key) });
    rig.commit_at(&[applied(&early)], at(12_000));
    rig.commit_at(&[applied(&late)], at(25_000));
    let woken = at(86_400_000);
    let knows = |rig: &Rig, id: &EventId, now| rig.reader.applied(&key, id, now).unwrap();
    assert!(knows(&rig, &early, woken) && knows(&rig, &late, woken));
    assert!(!knows(&rig, &after, woken) && !knows(&rig, &event_id("never"), woken));
    let purge = |rig: &mut Rig, now: Timestamp| {
        let before = rig.reader.remembered_since(now).unwrap();
        let due = rig.reader.is_purge_due(before).unwrap();
        rig.commit_at(&[Change::PurgeApplied { before }], now);
        due
    };
    assert!(!purge(&mut rig, woken), "they may be delivered again now");
    rig.commit_at(&[applied(&after)], woken);
    let soon = woken.after(WINDOW / 2);
    assert!(!purge(&mut rig, soon));
    assert!([&early, &late, &after].into_iter().all(|id| knows(&rig, id, soon)));
    let over = woken.after(WINDOW);
    assert!(purge(&mut rig, over), "it was awake for a window");
    assert!(!knows(&rig, &early, over) && !knows(&rig, &late, over) && knows(&rig, &after, over));
    assert_eq!(rig.reader.remembered_since(over).unwrap(), woken);
}
