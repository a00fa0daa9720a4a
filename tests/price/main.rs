//! Price list: what one saga costs in steady state, compared with `benches/price.md`. It contains counts, not
//! times, so it is the same on every machine. A binary of its own, because it counts the allocations of the process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "an allocator that counts implements `GlobalAlloc`, which is unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orlog_effect::{FunctionProvider, Policy, ProviderError, SyncFunctionCall, Upstream};
use orlog_journal::{Disk, LocalDisk};
use orlog_model::count::{Operation, counted};
use orlog_model::{
    Clock, CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::{FakeUpstreams, event};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use serde_json::json;

const PAGE: &str = "benches/price.md";
/// Environment variable that makes the test write the page.
const WRITE: &str = "ORLOG_WRITE_DOCS";
const COMMAND: &str = "ORLOG_WRITE_DOCS=1 cargo test --test price";
const HEAD: &str = "# Price list

What one saga costs in steady state, without other load: counts, which are the same on every machine. A test compares them
(`cargo test --test price`); `ORLOG_WRITE_DOCS=1 cargo test --test price` writes this page. A change of the product that changes a
count changes this page in the same commit, with the reason in the commit message.

";
/// Sagas that run before the first one is counted: caches and hash maps have their final size then.
const WARM_UP: u64 = 300;
/// Counted sagas of each workload. The page shows the median, which no resized buffer and no flush changes.
const COUNTED: usize = 301;
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const WAIT: Duration = Duration::from_hours(1);

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);

/// System allocator that counts. A reallocation counts as one allocation of the additional bytes.
struct CountingAllocator;

// SAFETY: every call is forwarded to the system allocator unchanged; the counters do not allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        ALLOCATED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        ALLOCATED_BYTES.fetch_add(size.saturating_sub(layout.size()) as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Local disk that counts what the journal of the store writes.
#[derive(Debug, Default)]
struct CountingDisk {
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Disk for CountingDisk {
    fn allocate(&self, file: &File, bytes: u64) -> std::io::Result<()> {
        LocalDisk.allocate(file, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        self.written_bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> std::io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        LocalDisk.sync(file)
    }

    fn sync_dir(&self, dir: &File) -> std::io::Result<()> {
        LocalDisk.sync_dir(dir)
    }
}

/// Rows of the price list that are not counted by [`Operation`].
const PROCESS: [&str; 6] = [
    "heap allocations",
    "bytes allocated",
    "Tokio tasks",
    "transitions",
    "bytes written to the journal",
    "syncs of the journal",
];
const ROWS: usize = PROCESS.len() + Operation::ALL.len();

/// Returns the name of a row.
fn row_name(row: usize) -> &'static str {
    let Some(operation) = row.checked_sub(PROCESS.len()) else {
        return PROCESS[row];
    };
    match Operation::ALL[operation] {
        Operation::ActorStart => "saga actors started",
        Operation::ActorMessage => "messages to actors",
        Operation::Lock => "locks",
        Operation::EventDecode => "events decoded",
        Operation::EventEncode => "events encoded",
        Operation::StateDecode => "states decoded",
        Operation::StateEncode => "states encoded",
        Operation::WorkItemDecode => "work items decoded",
        Operation::WorkItemEncode => "work items encoded",
        Operation::MemtableWrite => "memtable writes",
        Operation::TableWrite => "table writes",
    }
}

/// Workload: its name, the transitions of one saga, and its definition.
struct Workload {
    name: &'static str,
    transitions: u64,
    /// Commits of one saga: its transitions, and one for each fact that is published.
    commits: u64,
    definition: &'static str,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "A: three effects",
        transitions: 4,
        commits: 7,
        definition: "
saga: forward
version: 1
correlate: id
start: forward.started
vars: { id: =event.id }
steps:
  - { id: reserve, do: { effect: price.call, data: { id: =vars.id } }, ok: Reserved, fail: ReserveFailed, undo: { effect: price.undo, data: { id: =vars.id } } }
  - { id: charge, do: { effect: price.call, data: { id: =vars.id } }, ok: Charged, fail: ChargeFailed, undo: { effect: price.undo, data: { id: =vars.id } } }
  - { id: ship, do: { effect: price.call, data: { id: =vars.id } }, ok: Shipped, fail: ShipFailed }
",
    },
    Workload {
        name: "B: the third fails, two compensations",
        transitions: 6,
        commits: 9,
        definition: "
saga: backward
version: 1
correlate: id
start: backward.started
vars: { id: =event.id }
steps:
  - { id: reserve, do: { effect: price.call, data: { id: =vars.id } }, ok: Reserved, fail: ReserveFailed, undo: { effect: price.undo, data: { id: =vars.id } } }
  - { id: charge, do: { effect: price.call, data: { id: =vars.id } }, ok: Charged, fail: ChargeFailed, undo: { effect: price.undo, data: { id: =vars.id } } }
  - { id: ship, do: { effect: price.decline, data: { id: =vars.id } }, ok: Shipped, fail: ShipFailed }
",
    },
    Workload {
        name: "timer",
        transitions: 2,
        commits: 2,
        definition: "
saga: timed
version: 1
correlate: id
start: timed.started
steps:
  - { id: pause, do: { wait: 1h } }
",
    },
    Workload {
        name: "signal",
        transitions: 2,
        commits: 2,
        definition: "
saga: signalled
version: 1
correlate: id
start: signalled.started
steps:
  - { id: pause, do: { event: Woken } }
",
    },
];

impl Workload {
    fn saga(&self) -> SagaName {
        let line = self
            .definition
            .lines()
            .find_map(|line| line.strip_prefix("saga: "));
        SagaName::new(line.unwrap()).unwrap()
    }
}

fn effects() -> Upstream {
    let done = |_: SyncFunctionCall<'_>| Ok(json!({ "ok": true }));
    let declined = |_: SyncFunctionCall<'_>| {
        Err::<serde_json::Value, _>(ProviderError::permanent("declined", "no"))
    };
    FunctionProvider::new()
        .sync_effect("price.call", done)
        .sync_effect("price.undo", done)
        .sync_effect("price.decline", declined)
        .upstream("price", Policy::in_process())
}

/// Runtime of one workload, with its own directory and clock.
struct Fixture {
    runtime: TestRuntime,
    clock: Arc<SimClock>,
    disk: Arc<CountingDisk>,
    /// Table writes before the start.
    table_writes: u64,
}

impl Fixture {
    async fn start(dir: &Path, workload: &Workload) -> Self {
        let (clock, disk) = (SimClock::new(START), Arc::new(CountingDisk::default()));
        let program = compile_yaml(workload.definition, "price.saga.yaml").unwrap();
        let runtime_clock: Arc<dyn Clock> = clock.clone();
        let upstreams = FakeUpstreams::new(runtime_clock.clone(), 1);
        let programs = vec![Arc::new(program) as Arc<dyn Program>];
        let mut config = TestRuntimeConfig::new(dir.to_owned(), programs, runtime_clock);
        config.publishes_results = orlog::Config::default().results.publish;
        config.store = orlog_store::Options {
            slots: config.store.slots.clone(),
            ..orlog_store::Options::default()
        };
        config.disk = disk.clone();
        config.more_upstreams = vec![effects()];
        // Otherwise the counts would depend on which commits share a group, and on which messages arrive between.
        config.limits.max_group_commit = 1;
        config.discards_published = true;
        let table_writes = counted(Operation::TableWrite);
        Self {
            runtime: config.start(&upstreams).await,
            clock,
            disk,
            table_writes,
        }
    }

    /// Runs one saga from its start event to its last durable transition.
    async fn run(&self, workload: &Workload, number: u64) {
        let key = InstanceKey {
            tenant: tenant(),
            saga: workload.saga(),
            correlation: CorrelationId::new(format!("p-{number:06}")).unwrap(),
        };
        let publish = async |kind: &str| {
            let event = Event {
                id: EventId::new(format!("{kind}-{number:06}")).unwrap(),
                kind: EventType::new(kind).unwrap(),
                data: json!({ "id": key.correlation }),
                ..event(&key, START)
            };
            self.runtime.publish(&event).await;
        };
        let (transitions, commits) = (
            (number + 1) * workload.transitions,
            (number + 1) * workload.commits,
        );
        publish(&format!("{}.started", key.saga)).await;
        if workload.transitions == 2 {
            self.wait_for(transitions - 1, commits - 1).await;
            if workload.name == "timer" {
                self.clock.advance(WAIT);
            } else {
                publish("Woken").await;
            }
        }
        self.wait_for(transitions, commits).await;
        let passive = |test: &TestRuntime| test.runtime.metrics().live_instances() == 0;
        self.runtime
            .wait_until("the instance is passive", passive)
            .await;
    }

    async fn wait_for(&self, transitions: u64, commits: u64) {
        let reached = |test: &TestRuntime| {
            let metrics = test.runtime.metrics();
            metrics.transitions() >= transitions && metrics.commits() >= commits
        };
        self.runtime
            .wait_until("the transitions are durable", reached)
            .await;
    }

    fn read_counters(&self) -> [u64; ROWS] {
        // Tokio numbers its tasks.
        let task = tokio::spawn(async {}).id().to_string().parse().unwrap();
        let process = [
            ALLOCATIONS.load(Ordering::Relaxed),
            ALLOCATED_BYTES.load(Ordering::Relaxed),
            task,
            self.runtime.runtime.metrics().transitions(),
            self.disk.written_bytes.load(Ordering::Relaxed),
            self.disk.syncs.load(Ordering::Relaxed),
        ];
        std::array::from_fn(|row| match row.checked_sub(PROCESS.len()) {
            Some(operation) => counted(Operation::ALL[operation]),
            None => process[row],
        })
    }
}

/// Returns the median of each row for one saga.
fn measure(workload: &Workload) -> [u64; ROWS] {
    let dir = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let fixture = Fixture::start(dir.path(), workload).await;
        for number in 0..WARM_UP {
            fixture.run(workload, number).await;
        }
        let mut costs = [(); ROWS].map(|()| Vec::with_capacity(COUNTED));
        for number in (WARM_UP..).take(COUNTED) {
            let before = fixture.read_counters();
            fixture.run(workload, number).await;
            let after = fixture.read_counters();
            for (costs, (after, before)) in costs.iter_mut().zip(after.into_iter().zip(before)) {
                costs.push(after - before);
            }
        }
        let mut prices = costs.map(|mut costs| {
            costs.sort_unstable();
            costs[costs.len() / 2]
        });
        // The tables are written when the store closes.
        fixture.runtime.stop().await;
        let written = PROCESS.len() + Operation::TableWrite as usize;
        prices[written] =
            (counted(Operation::TableWrite) - fixture.table_writes) / (WARM_UP + COUNTED as u64);
        // The probe of the counter.
        prices[2] -= 1;
        prices
    })
}

fn page(prices: &[[u64; ROWS]]) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let mut page = HEAD.to_owned();
    page += &row(&mut ["for one saga"]
        .into_iter()
        .chain(WORKLOADS.map(|workload| workload.name))
        .map(str::to_owned));
    page += "|---|";
    page += &"--:|".repeat(WORKLOADS.len());
    page += "\n";
    for index in 0..ROWS {
        let cells = prices.iter().map(|price| price[index].to_string());
        page += &row(&mut std::iter::once(row_name(index).to_owned()).chain(cells));
    }
    page
}

/// Returns the numbers of a page, row by row.
fn numbers(page: &str) -> Vec<Vec<u64>> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.map(|row| {
        row.split('|')
            .filter_map(|cell| cell.trim().parse().ok())
            .collect()
    })
    .collect()
}

/// Returns whether a count agrees with the page: exactly, or for a count of the whole process within 2 %, because the
/// other threads do not always do the same between two readings. The minimum is a node of the memtable (808 bytes):
/// about every second saga splits one, so the median includes it or not.
fn agrees(row: usize, listed: u64, counted: u64) -> bool {
    let percent = listed / 50;
    let tolerance = match row_name(row) {
        "heap allocations" => percent.max(4),
        "bytes allocated" => percent.max(1024),
        "locks" => percent.max(1),
        _ => 0,
    };
    listed.abs_diff(counted) <= tolerance
}

#[test]
fn price_list_is_current() {
    let prices = WORKLOADS.map(|workload| measure(&workload));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page(&prices)).unwrap();
    }
    let (listed, actual) = (std::fs::read_to_string(&path).unwrap(), page(&prices));
    let is_current = numbers(&listed)
        .iter()
        .skip(2)
        .enumerate()
        .all(|(row, listed)| {
            listed.len() == prices.len()
                && prices
                    .iter()
                    .zip(listed)
                    .all(|(price, listed)| agrees(row, *listed, price[row]))
        });
    assert!(
        is_current && numbers(&listed).len() == numbers(&actual).len(),
        "{PAGE} is not current; state the reason in the commit message and run `{COMMAND}`\nlisted:\n{listed}\ncounted:\n{actual}"
    );
}
