//! Budget of the request bodies in memory, and their parsing off the async threads.
//!
//! A connection may hold a body up to the limit of its size. Without a limit over all connections,
//! a few hundred slow requests fill the memory, and a few large bodies delay all other requests
//! while they are parsed.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::blocking::run_blocking;
use super::problem::{Code, Problem};
use super::quotas::{BYTES_PER_PERMIT as UNIT, CallerBudgets, Quotas};

/// Size above which a body is parsed on a thread that may block.
const LARGE: usize = 64 << 10;

/// Bytes that bodies may still use, and threads that may still parse.
#[derive(Clone)]
pub(crate) struct BodyBudget {
    free: Arc<Semaphore>,
    parsing: Arc<Semaphore>,
    quotas: Quotas,
}

impl BodyBudget {
    /// Creates a budget of this many bytes; one caller uses at most its share.
    pub(crate) fn new(bytes: u64, quotas: Quotas) -> Self {
        let units = usize::try_from(bytes).unwrap_or(usize::MAX) / UNIT;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            // One unit at least: a budget of 0 would reject all bodies.
            free: Arc::new(Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS))),
            parsing: Arc::new(Semaphore::new(threads)),
            quotas,
        }
    }

    /// Creates a body of a caller that is received piece by piece.
    pub(crate) fn receive(&self, caller: Option<&CallerBudgets>) -> PartialBody {
        let share = caller.map(|caller| Arc::clone(&caller.bytes));
        PartialBody {
            budget: self.clone(),
            share,
            bytes: Vec::new(),
            held: HeldBytes::default(),
        }
    }

    /// Parses a body: a large one as [`Self::run`] does.
    pub(crate) async fn parse<T, F>(&self, body: &RequestBody, parse: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
    {
        if body.len() <= LARGE {
            return parse(body);
        }

        let body = body.clone();
        self.run(move || parse(&body)).await
    }

    /// Works on a body on a thread that may block, at most as many at the same time as the machine
    /// has processors.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Problem> + Send + 'static,
    {
        // A wait, not a rejection: the body is in memory already and counts in the budget.
        let permit = Arc::clone(&self.parsing).acquire_owned().await;
        let permit = permit.map_err(|error| Problem::new(Code::Unavailable, error.to_string()))?;

        run_blocking(move || {
            // Freed by the thread, because the work continues after its client has disconnected.
            let _permit = permit;
            work()
        })
        .await
    }
}

/// Body that is being received.
pub(crate) struct PartialBody {
    budget: BodyBudget,
    /// Share of the caller; `None`: the whole budget.
    share: Option<Arc<Semaphore>>,
    bytes: Vec<u8>,
    held: HeldBytes,
}

/// Parts of the budget, and of the share of the caller, that belong to a body.
#[derive(Debug, Default)]
struct HeldBytes {
    of_caller: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl PartialBody {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// If the budget is used up.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), Problem> {
        let needed = (self.bytes.len() + piece.len()).div_ceil(UNIT);
        let held = self
            .held
            .of_all
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);

        // Permits of whole units, so that most small pieces need none.
        if needed > held {
            let more = u32::try_from(needed - held).unwrap_or(u32::MAX);
            // The share first: a caller beyond it must not occupy the budget of all, even for a
            // moment.
            if let Some(share) = &self.share {
                let of_caller = Arc::clone(share).try_acquire_many_owned(more);
                merge(
                    &mut self.held.of_caller,
                    of_caller.map_err(|_| self.budget.quotas.reject_bytes())?,
                );
            }

            // Without a wait: bodies that hold a part and wait for the rest would block each other
            // for ever.
            let of_all = Arc::clone(&self.budget.free)
                .try_acquire_many_owned(more)
                .map_err(|_| {
                    let detail = "too many request bodies are in flight; retry, or raise \
                                  http.max_bytes_in_flight";
                    Problem::new(Code::Unavailable, detail)
                })?;

            merge(&mut self.held.of_all, of_all);
        }

        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    pub(crate) fn finish(self) -> RequestBody {
        RequestBody {
            bytes: self.bytes.into(),
            _held: Arc::new(self.held),
        }
    }
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
}

/// Received body. Its bytes belong to the budget until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct RequestBody {
    bytes: Bytes,
    _held: Arc<HeldBytes>,
}

impl RequestBody {
    /// Returns the bytes for another request, beside the budget.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl Deref for RequestBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::quotas::CallerKey;
    use orlog_node::config::HttpServerConfig;

    fn budget(bytes: u64) -> BodyBudget {
        BodyBudget::new(bytes, Quotas::new(&HttpServerConfig::default(), 16))
    }

    #[test]
    fn bodies_share_one_budget() {
        let budget = budget(4 * UNIT as u64);
        let (mut first, mut second) = (budget.receive(None), budget.receive(None));
        first.add(&[0; UNIT]).unwrap();
        first.add(&[0; UNIT + 1]).unwrap();
        second.add(&[0; UNIT]).unwrap();
        let rejection = format!("{:?}", second.add(&[0; 1]).unwrap_err());
        assert!(
            rejection.contains("http.max_bytes_in_flight"),
            "{rejection}"
        );
        let body = first.finish();
        let clone = body.clone();
        assert_eq!(body.len(), 2 * UNIT + 1);
        drop(body);
        assert!(second.add(&[0; 1]).is_err(), "a clone holds the bytes");
        drop(clone);
        second.add(&[0; UNIT]).unwrap();
    }

    #[test]
    fn the_bodies_of_one_caller_use_its_share_only() {
        let mut config = HttpServerConfig {
            max_bytes_in_flight: 64 * UNIT as u64,
            ..HttpServerConfig::default()
        };
        (config.max_batch_size, config.max_body_size) = (UNIT as u64, UNIT as u64);
        let quotas = Quotas::new(&config, 16);
        let budget = BodyBudget::new(64 * UNIT as u64, quotas.clone());
        let begin = |name: &str| {
            let key = CallerKey::User(name.into());
            quotas.begin(key, std::time::Instant::now()).unwrap()
        };
        let (ada, bob) = (begin("ada"), begin("bob"));
        let mut held = budget.receive(Some(&ada.budgets));
        held.add(&vec![0; 32 * UNIT]).unwrap();
        let rejection = format!("{:?}", held.add(&[0]).unwrap_err());
        assert!(
            rejection.contains("http.per_caller.max_share"),
            "{rejection}"
        );
        budget
            .receive(Some(&bob.budgets))
            .add(&vec![0; 32 * UNIT])
            .unwrap();
    }

    #[tokio::test]
    async fn large_bodies_are_parsed_on_another_thread() {
        let budget = budget(1 << 20);
        let thread = |size: usize| {
            let mut body = budget.receive(None);
            body.add(&vec![0; size]).unwrap();
            let (budget, body) = (budget.clone(), body.finish());
            async move {
                budget
                    .parse(&body, |_| Ok(std::thread::current().id()))
                    .await
                    .unwrap()
            }
        };
        let here = std::thread::current().id();
        assert_eq!(thread(LARGE).await, here);
        assert_ne!(thread(LARGE + 1).await, here);
    }
}
