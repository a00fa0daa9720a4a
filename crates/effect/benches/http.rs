//! Benchmark of the CPU time of an HTTP effect: the client alone, with the upstream in another process.
//!
//! `cargo bench -p orlog-effect --bench http` prints the CPU time of this process per effect, and the same for a
//! client that only writes a request and reads its response. The difference is the cost of the executor and of the HTTP
//! client.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orlog_effect::{EffectExecutor, EffectsConfig};
use orlog_model::{Clock as _, EffectName, WorkOutcome};
use orlog_testkit::WallClock;
use orlog_testkit::provider_suite::item;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Effects of one run.
const EFFECTS: u32 = 40_000;
const CONCURRENCY: [usize; 2] = [64, 256];
const ROUNDS: usize = 3;
/// Argument of the process of the upstream.
const UPSTREAM: &str = "--serve-upstream";
const REQUEST: &[u8] = b"POST /charges/o-1 HTTP/1.1\r\nidempotency-key: 00000000-0000-0001-9e37-79b97f4a7c15\r\n\
    x-tenant-id: acme\r\nx-correlation-id: o-1\r\nx-api-version: 2\r\ncontent-type: application/json\r\n\
    accept: */*\r\nhost: 127.0.0.1:40001\r\ncontent-length: 38\r\n\r\n{\"amount\":125,\"order\":{\"id\":\"o-1000\"}}";
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 33\r\n\r\n{\"charge\":\"ch-1\",\"captured\":true}";

fn main() {
    let threads = if std::env::args().any(|argument| argument == UPSTREAM) {
        1
    } else {
        2
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build();
    let runtime = runtime.expect("the system can start threads");
    if threads == 1 {
        runtime.block_on(serve());
    } else {
        runtime.block_on(measure());
    }
}

async fn measure() {
    let (mut upstream, address) = start_upstream();
    for round in 1..=ROUNDS {
        for concurrency in CONCURRENCY {
            let executor = executor(address, concurrency);
            run_effects(&executor, concurrency, EFFECTS / 10).await;
            let effect = cpu_per_call(run_effects(&executor, concurrency, EFFECTS)).await;
            let minimum = cpu_per_call(run_raw(address, concurrency)).await;
            println!("round {round}, {concurrency} concurrent: {effect}; bare sockets: {minimum}");
        }
    }
    upstream.kill().expect("the process exists");
    upstream.wait().expect("the process exists");
}

/// Returns the CPU time of this process and the rate of a run.
async fn cpu_per_call(run: impl Future<Output = ()>) -> String {
    let (cpu, started) = (cpu_time(), Instant::now());
    run.await;
    let (cpu, took) = (cpu_time().saturating_sub(cpu), started.elapsed());
    let per_call = cpu.as_secs_f64() * 1e6 / f64::from(EFFECTS);
    format!(
        "{per_call:.1} µs CPU each, {:.0}/s",
        f64::from(EFFECTS) / took.as_secs_f64()
    )
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is positive")
}

fn executor(address: SocketAddr, concurrency: usize) -> Arc<EffectExecutor> {
    let config = format!(
        r#"
        [upstreams.payments]
        base_url = "http://{address}"
        max_concurrency = {concurrency}
        [upstreams.payments.effects."payments.charge"]
        path = "/charges/{{order.id}}"
        headers = {{ "x-api-version" = "2" }}
        "#
    );
    let config: EffectsConfig = toml::from_str(&config).expect("the configuration is valid");
    let upstream = config
        .upstreams()
        .expect("the configuration is valid")
        .remove(0);
    EffectExecutor::new(upstream, WallClock::shared())
}

/// Executes effects in tasks of their own, as a node does.
async fn run_effects(executor: &Arc<EffectExecutor>, concurrency: usize, effects: u32) {
    let name = EffectName::new("payments.charge").expect("valid");
    let mut running = JoinSet::new();
    for number in 1..=effects {
        if running.len() == concurrency {
            check(running.join_next().await);
        }
        let (executor, mut item) = (Arc::clone(executor), item(&name, u128::from(number)));
        item.created_at = WallClock.now();
        running.spawn(async move { executor.execute(&item).await.outcome });
    }
    while let Some(outcome) = running.join_next().await {
        check(Some(outcome));
    }
}

fn check(outcome: Option<Result<WorkOutcome, tokio::task::JoinError>>) {
    let outcome = outcome
        .expect("an effect is running")
        .expect("an effect does not panic");
    assert!(
        matches!(outcome, WorkOutcome::Succeeded { .. }),
        "{outcome:?}"
    );
}

/// Sends the same requests without an HTTP client.
async fn run_raw(address: SocketAddr, concurrency: usize) {
    let sent = Arc::new(AtomicU32::new(0));
    let mut running = JoinSet::new();
    for _ in 0..concurrency {
        let sent = Arc::clone(&sent);
        running.spawn(async move {
            let mut stream = TcpStream::connect(address)
                .await
                .expect("the upstream listens");
            let mut buffer = [0; 1024];
            while sent.fetch_add(1, Ordering::Relaxed) < EFFECTS {
                stream.write_all(REQUEST).await.expect("the upstream reads");
                let read = stream
                    .read(&mut buffer)
                    .await
                    .expect("the upstream responds");
                assert_eq!(read, RESPONSE.len());
            }
        });
    }
    running.join_all().await;
}

fn start_upstream() -> (Child, SocketAddr) {
    let program = std::env::current_exe().expect("the program has a path");
    let upstream = Command::new(program)
        .arg(UPSTREAM)
        .stdout(Stdio::piped())
        .spawn();
    let mut upstream = upstream.expect("the program can start itself");
    let mut line = String::new();
    let output = upstream.stdout.take().expect("the output is a pipe");
    std::io::BufReader::new(output)
        .read_line(&mut line)
        .expect("the upstream prints its address");
    (upstream, line.trim().parse().expect("an address"))
}

/// Serves requests that arrive whole in one segment.
async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("an address is free");
    println!(
        "{}",
        listener.local_addr().expect("the listener has an address")
    );
    loop {
        let (mut stream, _) = listener.accept().await.expect("accepts");
        stream.set_nodelay(true).expect("the socket is open");
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                if stream.write_all(RESPONSE).await.is_err() {
                    return;
                }
            }
        });
    }
}
