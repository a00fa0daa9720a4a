//! Benchmark of the CPU overhead of the effect executor for an in-process effect.

use std::sync::Arc;

use divan::Bencher;
use futures::executor::block_on;
use orlog_effect::{EffectExecutor, FunctionProvider, Policy};
use orlog_model::{Clock, EffectName};
use orlog_testkit::SimClock;
use orlog_testkit::provider_suite::{START, item};
use serde_json::Value;

fn main() {
    divan::main();
}

fn bench(bencher: Bencher<'_, '_>, native: FunctionProvider, policy: Policy) {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let executor = EffectExecutor::new(native.upstream("native", policy), clock);
    let item = item(&EffectName::new("payments.charge").expect("valid"), 1);
    bencher.bench_local(|| block_on(executor.execute(&item)));
}

#[divan::bench]
fn plain_in_process(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        FunctionProvider::new().sync_effect("payments.charge", |_| Ok(Value::Null)),
        Policy::in_process(),
    );
}

#[divan::bench]
fn awaiting_in_process(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        FunctionProvider::new().effect("payments.charge", |_| async { Ok(Value::Null) }),
        Policy::in_process(),
    );
}

#[divan::bench]
fn plain_with_breaker_and_timeouts(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        FunctionProvider::new().sync_effect("payments.charge", |_| Ok(Value::Null)),
        Policy::default(),
    );
}
