//! Who is awake: the live instances of a shard, and the one door through which inputs reach them.
//!
//! `dispatch` is the way of every input: find or make the instance's cell, append, wake or start its actor. Idle
//! instances stand on a list in the order in which they fell idle and are passivated from its head.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use dashmap::{DashMap, Entry};
use orlog_bus::Acker;
use orlog_model::{Change, Clock, InstanceKey, Slots};
use orlog_store::Reader;
use ractor::{ActorId, ActorRef};
use tokio::sync::{Notify, oneshot};

use crate::instance::completion::{Answer, Done};
use crate::instance::mailbox::{Cell, Envelope, Poke, Push, Rest};
use crate::instance::programs::Programs;
use crate::runtime::limits::Limits;
use crate::shard::submission::{Committer, Submission, Unavailable};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Idle instances that one call looks at while there are too many.
const LOOKS: usize = 16;

/// The live instances of one shard. Survives restarts of the shard; its cells do not.
pub(crate) struct Directory {
    cells: DashMap<InstanceKey, Arc<Cell>>,
    /// How many cells there are.
    live: AtomicUsize,
    idle: Mutex<VecDeque<Arc<Cell>>>,
    /// `None` while the shard is down.
    open: RwLock<Option<Arc<Incarnation>>>,
    /// Another process has the shard now.
    lost: AtomicBool,
    /// Lives so far.
    lives: AtomicU64,
    /// How far each stream is read.
    reading: Mutex<BTreeMap<String, Arc<dyn Acker>>>,
    pub(crate) context: Arc<Context>,
}

/// What does not change while the process lives.
pub(crate) struct Context {
    pub(crate) node: String,
    pub(crate) limits: Limits,
    pub(crate) slots: Slots,
    pub(crate) programs: Arc<Programs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reader: Reader,
    pub(crate) metrics: Arc<Metrics>,
    /// Told when dead letters were kept whose copies are to be published.
    pub(crate) letters: Notify,
    /// Makes spans.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

/// One life of the shard, from start to failure.
pub(crate) struct Incarnation {
    pub(crate) committer: Committer,
    /// Starts the actor that serves a cell; `None` when it cannot.
    pub(crate) start: StartActor,
}

/// See [`Incarnation::start`].
pub(crate) type StartActor = Box<dyn Fn(&Arc<Cell>) -> Option<ActorRef<Poke>> + Send + Sync>;

impl Directory {
    pub(crate) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self {
            cells: DashMap::new(),
            live: AtomicUsize::new(0),
            idle: Mutex::default(),
            open: RwLock::new(None),
            lost: AtomicBool::new(false),
            lives: AtomicU64::new(0),
            reading: Mutex::default(),
            context,
        })
    }

    /// Begins a new life: nothing of the old one is in memory any more.
    pub(crate) fn open(&self, incarnation: Incarnation) {
        self.close();
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.lives.fetch_add(1, Ordering::AcqRel);
        *open = Some(Arc::new(incarnation));
    }

    /// The number of the present life.
    pub(crate) fn life(&self) -> u64 {
        self.lives.load(Ordering::Acquire)
    }

    /// Ends a life: what waits in memory is dropped unacknowledged, to be delivered again.
    pub(crate) fn close(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.cells.retain(|_, cell| {
            cell.close();
            self.live.fetch_sub(1, Ordering::AcqRel);
            self.context.metrics.live_instances.dec();
            false
        });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A stream is read from now on.
    pub(crate) fn reads(&self, stream: &str, acker: Arc<dyn Acker>) {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.to_owned(), acker);
    }

    /// Up to where everything in a stream is done with; `None` while it is not read.
    pub(crate) fn floor(&self, stream: &str) -> Option<u64> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).get(stream).map(|acker| acker.floor())
    }

    /// Notes that another process has the shard: it is not to be started here again.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether another process has the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    fn incarnation(&self) -> Result<Arc<Incarnation>, Unavailable> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Unavailable)
    }

    /// The committer of the present life.
    pub(crate) fn committer(&self) -> Result<Committer, Unavailable> {
        Ok(self.incarnation()?.committer.clone())
    }

    /// Brings an input to its instance, which is activated where it is not live.
    pub(crate) fn dispatch(&self, key: &InstanceKey, envelope: Envelope) -> Result<(), Unavailable> {
        self.bring(key, envelope, None)
    }

    /// The same for whoever belongs to one life. A task that was told to end may go on for a moment: what it brought to the next
    /// life would overtake what is delivered there again.
    pub(crate) fn dispatch_in(
        &self,
        life: u64,
        key: &InstanceKey,
        envelope: Envelope,
    ) -> Result<(), Unavailable> {
        self.bring(key, envelope, Some(life))
    }

    fn bring(&self, key: &InstanceKey, envelope: Envelope, life: Option<u64>) -> Result<(), Unavailable> {
        // Held until the input lies in a cell: were the life to end in between, the cell would outlive it.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(Unavailable)?;
        if life.is_some_and(|life| life != self.life()) {
            return Err(Unavailable);
        }
        self.context.metrics.inputs.inc();
        let mut envelope = envelope;
        loop {
            let cell = self.cell(key);
            match cell.push(envelope) {
                Push::Queued => return Ok(()),
                Push::NeedsActor => {
                    cell.ensure_actor(|| (incarnation.start)(&cell));
                    return Ok(());
                }
                Push::Closed(back) => {
                    envelope = back;
                    self.remove(&cell);
                }
            }
        }
    }

    /// Activates an instance that has kept inputs to go through.
    pub(crate) fn wake(&self, key: &InstanceKey) -> Result<(), Unavailable> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(Unavailable)?;
        let cell = self.cell(key);
        cell.ensure_actor(|| (incarnation.start)(&cell));
        Ok(())
    }

    /// Waits until the instance takes more inputs; at once where it is not live.
    pub(crate) async fn room(&self, key: &InstanceKey) {
        let cell = self.cells.get(key).map(|cell| Arc::clone(&cell));
        if let Some(cell) = cell {
            cell.room(self.context.limits.in_flight_per_instance).await;
        }
    }

    fn cell(&self, key: &InstanceKey) -> Arc<Cell> {
        if let Some(cell) = self.cells.get(key) {
            return Arc::clone(&cell);
        }
        let cell = match self.cells.entry(key.clone()) {
            Entry::Occupied(cell) => return Arc::clone(cell.get()),
            Entry::Vacant(place) => Arc::clone(&place.insert(Cell::new(key.clone()))),
        };
        self.count_one();
        self.make_room();
        cell
    }

    fn count_one(&self) {
        self.live.fetch_add(1, Ordering::AcqRel);
        self.context.metrics.activations.inc();
        self.context.metrics.live_instances.inc();
    }

    /// Has a change committed that forgets something of an instance, unless the instance is live: `None` then. Inputs that come
    /// meanwhile wait for it.
    pub(crate) fn forget(
        &self,
        key: &InstanceKey,
        change: Change,
    ) -> Result<Option<oneshot::Receiver<Answer>>, Unavailable> {
        // Held as in `dispatch`: the cell must not outlive the life whose committer gets the change.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let incarnation = open.as_deref().ok_or(Unavailable)?;
        let cell = match self.cells.entry(key.clone()) {
            Entry::Occupied(_) => return Ok(None),
            Entry::Vacant(place) => Arc::clone(&place.insert(Cell::claimed(key.clone()))),
        };
        self.count_one();
        let (done, answer) = Done::for_someone();
        incarnation.committer.submit(Submission { cell: Some(cell), ..Submission::of(change, done) })?;
        Ok(Some(answer))
    }

    /// A saga actor died. Its cell is served by another; `false` when no cell was served by it.
    pub(crate) fn revive(&self, dead: ActorId) -> bool {
        let found = self.cells.iter().find(|cell| cell.is_served_by(dead)).map(|cell| Arc::clone(&cell));
        let (Some(cell), Ok(incarnation)) = (found, self.incarnation()) else { return false };
        cell.bury();
        cell.ensure_actor(|| (incarnation.start)(&cell));
        true
    }

    /// Called where a cell may have come to rest.
    pub(crate) fn rest(&self, cell: &Arc<Cell>) {
        match cell.rest(Instant::now()) {
            Rest::Busy => return,
            Rest::Listed => {}
            Rest::List => self.list(cell),
            Rest::Closed => self.remove(cell),
        }
        self.make_room();
    }

    fn list(&self, cell: &Arc<Cell>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(cell));
    }

    fn remove(&self, cell: &Arc<Cell>) {
        if self.cells.remove_if(&cell.key, |_, present| Arc::ptr_eq(present, cell)).is_some() {
            self.live.fetch_sub(1, Ordering::AcqRel);
            self.context.metrics.passivations.inc();
            self.context.metrics.live_instances.dec();
        }
    }

    /// Passivates idle instances while more are live than allowed. Called where one is activated and where one falls idle, so
    /// that what a burst left behind goes too.
    fn make_room(&self) {
        let mut looks = 0;
        while self.live.load(Ordering::Acquire) > self.context.limits.live_instances && looks < LOOKS {
            if !self.expire_head(Instant::now()) {
                return;
            }
            looks += 1;
        }
    }

    /// Passivates what has been idle for longer than the limit. Returns how many cells were looked at.
    pub(crate) fn passivate(&self) -> usize {
        let Some(before) = Instant::now().checked_sub(self.context.limits.idle) else { return 0 };
        let listed = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        (0..listed).take_while(|_| self.expire_head(before)).count()
    }

    fn expire_head(&self, before: Instant) -> bool {
        let Some(cell) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
            return false;
        };
        match cell.expire(before) {
            Rest::Closed => self.remove(&cell),
            Rest::List => self.list(&cell),
            Rest::Busy | Rest::Listed => {}
        }
        true
    }

    /// Inputs that wait, over all instances. Looks at every live one.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (InstanceKey, usize)> {
        self.cells.iter().map(|cell| (cell.key.clone(), cell.depth()))
    }

    /// Shows `look` how many inputs wait for each live instance.
    pub(crate) fn each_depth(&self, mut look: impl FnMut(usize)) {
        self.cells.iter().for_each(|cell| look(cell.depth()));
    }

    /// Nothing waits and nothing is on its way to the disk.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.cells.iter().all(|cell| cell.depth() == 0 && cell.is_durable())
    }
}
