//! Results that workers have reported, to identify duplicates. A result that was lost is not a
//! duplicate.

use std::collections::{HashMap, VecDeque};

use uuid::Uuid;

use crate::receipt::{ReceiptState, ReceiptWatch};

/// Number of remembered results.
const MAX_RESULTS: usize = 10_000;

#[derive(Default)]
pub(super) struct ResultLog {
    receipts: HashMap<(Uuid, Uuid), ReceiptWatch>,
    /// Keys, oldest first.
    order: VecDeque<(Uuid, Uuid)>,
}

impl ResultLog {
    /// Returns the receipt of the result of a claim; `None` if there is no result, or if it was
    /// lost.
    pub(super) fn get(&self, job: Uuid, claim: Uuid) -> Option<ReceiptWatch> {
        self.receipts
            .get(&(job, claim))
            .filter(|receipt| receipt.state() != ReceiptState::Lost)
            .cloned()
    }

    /// Adds the result of a claim; it replaces one that was lost.
    pub(super) fn add(&mut self, job: Uuid, claim: Uuid, receipt: ReceiptWatch) {
        // The key is in the order already, from a result that was lost.
        if self.receipts.insert((job, claim), receipt).is_some() {
            return;
        }

        self.order.push_back((job, claim));
        if self.order.len() > MAX_RESULTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.receipts.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::ResultReceipt;

    #[test]
    fn lost_and_old_results_are_no_duplicates() {
        let mut log = ResultLog::default();
        let claim = Uuid::nil();
        let (lost, watch) = ResultReceipt::new();
        log.add(Uuid::nil(), claim, watch);
        assert!(log.get(Uuid::nil(), claim).is_some(), "it is pending");
        drop(lost);
        assert!(log.get(Uuid::nil(), claim).is_none());
        for number in 0..=MAX_RESULTS as u128 {
            let (receipt, watch) = ResultReceipt::new();
            log.add(Uuid::from_u128(number), claim, watch);
            receipt.stored();
        }
        assert!(log.get(Uuid::from_u128(0), claim).is_none());
        assert!(log.get(Uuid::from_u128(1), claim).is_some());
        assert_eq!(
            (log.receipts.len(), log.order.len()),
            (MAX_RESULTS, MAX_RESULTS)
        );
    }
}
