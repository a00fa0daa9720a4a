//! How much CPU the performer adds to an in-process effect.

use std::sync::Arc;

use divan::Bencher;
use futures::executor::block_on;
use orlog_effect::{Native, Performer, Policy};
use orlog_model::{Clock, EffectName};
use orlog_testkit::SimClock;
use orlog_testkit::provider_suite::{START, item};
use serde_json::Value;

fn main() {
    divan::main();
}

fn bench(bencher: Bencher<'_, '_>, native: Native, policy: Policy) {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let performer = Performer::new(native.upstream("native", policy), clock);
    let item = item(&EffectName::new("payments.charge").expect("valid"), 1);
    bencher.bench_local(|| block_on(performer.perform(&item)));
}

#[divan::bench]
fn plain_in_process(bencher: Bencher<'_, '_>) {
    bench(bencher, Native::new().plain("payments.charge", |_| Ok(Value::Null)), Policy::in_process());
}

#[divan::bench]
fn awaiting_in_process(bencher: Bencher<'_, '_>) {
    bench(
        bencher,
        Native::new().effect("payments.charge", |_| async { Ok(Value::Null) }),
        Policy::in_process(),
    );
}

#[divan::bench]
fn plain_with_breaker_and_timeouts(bencher: Bencher<'_, '_>) {
    bench(bencher, Native::new().plain("payments.charge", |_| Ok(Value::Null)), Policy::default());
}
