//! For whoever wants to hear of every commit.

use orlog_model::Commit;

/// Hears of every commit, after it is durable. Called on the committer's thread: it must be quick.
pub trait CommitObserver: Send + Sync + 'static {
    /// The commit is durable.
    fn committed(&self, commit: &Commit);
}
