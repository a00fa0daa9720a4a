//! Abandoned work: effects whose results an instance no longer awaits. Jobs among them are
//! withdrawn from their workers.

use orlog_model::{PendingWork, Wait, WaitKind, WorkKind};

/// Marks the pending effects whose results the instance awaited before a transition, and does not
/// await after it.
pub(crate) fn mark(pending: &mut [PendingWork], before: &[Wait], waits: &[Wait]) {
    let mut next = 0;
    for earlier in before
        .iter()
        .filter(|wait| wait.kind == WaitKind::WorkResult)
    {
        let is_same = |wait: &Wait| wait.kind == earlier.kind && wait.name == earlier.name;

        // The waits have the order of the definition, so each one is usually found at once.
        if let Some(index) = waits[next..].iter().position(is_same) {
            next += index + 1;
        } else if !waits[..next].iter().any(is_same) {
            // A wait that moved before an earlier one is still awaited; this one is not.
            let effects = pending
                .iter_mut()
                .filter(|work| work.kind == WorkKind::Effect);
            for work in effects.filter(|work| work.tag == earlier.name) {
                work.abandoned = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Name, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a valid name")
    }

    fn waits(tags: &[&str]) -> Vec<Wait> {
        tags.iter()
            .map(|tag| Wait::new(WaitKind::WorkResult, name(tag), None))
            .collect()
    }

    /// Returns the tags that a transition between these waits abandons.
    fn abandoned(pending: &[&str], before: &[&str], after: &[&str]) -> Vec<String> {
        let work = |tag: &&str| PendingWork {
            id: Uuid::nil(),
            kind: WorkKind::Effect,
            tag: name(tag),
            requested_at: Timestamp::from_millis(1),
            survives_end: true,
            dead_letter: None,
            abandoned: false,
        };
        let mut pending: Vec<_> = pending.iter().map(work).collect();
        mark(&mut pending, &waits(before), &waits(after));
        pending
            .into_iter()
            .filter(|work| work.abandoned)
            .map(|work| work.tag.to_string())
            .collect()
    }

    #[test]
    fn only_work_that_was_awaited_before_is_abandoned() {
        assert_eq!(abandoned(&["a", "b"], &["a", "b"], &["a", "b"]), [""; 0]);
        assert_eq!(
            abandoned(&["a", "b", "c"], &["a", "b", "c"], &["b"]),
            ["a", "c"]
        );
        assert_eq!(
            abandoned(&["b", "c"], &["b", "a"], &["c", "b"]),
            [""; 0],
            "a has its result"
        );
        assert_eq!(
            abandoned(&["handler"], &["a"], &[]),
            [""; 0],
            "the saga never awaited it"
        );
        assert_eq!(
            abandoned(&["a", "b"], &["a", "b"], &["b", "a"]),
            [""; 0],
            "the order does not matter"
        );
    }
}
