//! The span in which whoever was asked did it, on its way from a provider to the performer.
//!
//! Only what answers by message can name one (workers, other processes), so it is no part of every answer: the provider
//! notes it while it performs.

use std::cell::RefCell;

use orlog_model::TraceParent;

tokio::task_local! {
    static ANSWERED: RefCell<Option<TraceParent>>;
}

/// Notes where it was done. Outside of an attempt nobody asks.
pub fn note(trace: Option<TraceParent>) {
    // An error means that no attempt is under way in this task.
    ANSWERED.try_with(|place| *place.borrow_mut() = trace).ok();
}

/// Performs, and hears what the provider noted meanwhile.
pub(crate) async fn listen<T>(performing: impl Future<Output = T>) -> (T, Option<TraceParent>) {
    let heard = async move {
        let answer = performing.await;
        (answer, ANSWERED.with(RefCell::take))
    };
    ANSWERED.scope(RefCell::new(None), heard).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_provider_notes_is_heard_by_its_own_attempt_only() {
        let trace = TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        note(trace.clone());
        let (answer, heard) = listen(async {
            note(trace.clone());
            7
        })
        .await;
        assert_eq!((answer, heard), (7, trace));
        assert_eq!(listen(async {}).await.1, None);
    }
}
