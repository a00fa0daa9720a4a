//! Cases of the dedupe window.

use orlog_model::{Change, Commit, DeadLetter, DeadLetterOriginal, DedupeKey, Input, Timestamp};

use super::samples::{apply, at, dead_letter, dedupe_key, empty, event, key};
use super::{StoreFixture, WINDOW};

/// A dedupe key is stored for at least one window, also if the clock moves back, and deleted on
/// request.
pub fn dedupe_window_is_enforced(mut fixture: StoreFixture) {
    let (key, id) = (key("acme", "o-1"), dedupe_key("e"));
    let committed = at(19_999);
    fixture.commit_at(
        &[apply(Commit {
            dedupe_key: Some(id),
            ..empty(&key)
        })],
        committed,
    );
    let applied = |fixture: &StoreFixture, now| fixture.reader.is_duplicate(&key, id, now).unwrap();
    assert!(applied(&fixture, committed) && applied(&fixture, committed.saturating_add(WINDOW)));
    assert!(
        applied(&fixture, at(5)),
        "a clock that moves back expires no key"
    );
    fixture.commit_at(&[Change::PurgeDedupe { before: committed }], committed);
    assert!(
        applied(&fixture, committed.saturating_add(WINDOW)),
        "its window has not ended"
    );
    assert!(
        !fixture.reader.is_dedupe_purge_due(committed).unwrap()
            && fixture.reader.is_dedupe_purge_due(at(20_000)).unwrap()
    );
    fixture.commit_at(&[Change::PurgeDedupe { before: at(20_000) }], at(40_000));
    assert!(
        !applied(&fixture, committed) && !fixture.reader.is_dedupe_purge_due(at(20_000)).unwrap()
    );
}

/// The dedupe key of a buffered input is deleted when the input becomes a dead letter, in any bucket, so that
/// it can be redriven. Another input keeps its key.
pub fn dead_letter_has_no_dedupe_key(mut fixture: StoreFixture) {
    let (key, input, other) = (key("acme", "o-1"), event("e"), event("other"));
    let buffer = |input: &Input| {
        apply(Commit {
            dedupe_key: input.dedupe_key(),
            buffer: Some(Box::new(input.clone())),
            ..empty(&key)
        })
    };
    fixture.commit_at(&[buffer(&input), buffer(&other)], at(5));
    let later = at(5).saturating_add(WINDOW);
    let letter = DeadLetter {
        instance: Some(key.clone()),
        original: DeadLetterOriginal::Input(Box::new(input.clone())),
        ..dead_letter("acme", 3)
    };
    fixture.commit_at(
        &[apply(Commit {
            dead_letter: Some(Box::new(letter)),
            ..empty(&key)
        })],
        later,
    );
    let known = |input: &Input| {
        fixture
            .reader
            .is_duplicate(&key, input.identity(), later)
            .unwrap()
    };
    assert_eq!((known(&input), known(&other)), (false, true));
}

/// After a downtime longer than the window, dedupe keys of the last inputs remain until the store has
/// run for one window, also if the store closes again before.
pub fn dedupe_window_excludes_downtime(mut fixture: StoreFixture) {
    let (key, [early, late, after]) = (key("acme", "o-1"), ["e", "l", "a"].map(dedupe_key));
    let applied = |id: DedupeKey| {
        apply(Commit {
            dedupe_key: Some(id),
            ..empty(&key)
        })
    };
    fixture.commit_at(&[applied(early)], at(12_000));
    fixture.commit_at(&[applied(late)], at(25_000));
    let restarted_at = at(86_400_000);
    let is_known = |fixture: &StoreFixture, id: DedupeKey, now| {
        fixture.reader.is_duplicate(&key, id, now).unwrap()
    };
    assert!(is_known(&fixture, early, restarted_at) && is_known(&fixture, late, restarted_at));
    assert!(
        !is_known(&fixture, after, restarted_at)
            && !is_known(&fixture, dedupe_key("never"), restarted_at)
    );
    let purge = |fixture: &mut StoreFixture, now: Timestamp| {
        let before = fixture.reader.dedupe_horizon(now).unwrap();
        let due = fixture.reader.is_dedupe_purge_due(before).unwrap();
        fixture.commit_at(&[Change::PurgeDedupe { before }], now);
        due
    };
    assert!(
        !purge(&mut fixture, restarted_at),
        "the inputs can be redelivered now"
    );
    fixture.commit_at(&[applied(after)], restarted_at);
    let soon = restarted_at.saturating_add(WINDOW / 2);
    assert!(!purge(&mut fixture, soon));
    assert!(
        [early, late, after]
            .into_iter()
            .all(|id| is_known(&fixture, id, soon))
    );
    let over = restarted_at.saturating_add(WINDOW);
    assert!(purge(&mut fixture, over), "the store ran for one window");
    assert!(
        !is_known(&fixture, early, over)
            && !is_known(&fixture, late, over)
            && is_known(&fixture, after, over)
    );
    assert_eq!(fixture.reader.dedupe_horizon(over).unwrap(), restarted_at);
}
