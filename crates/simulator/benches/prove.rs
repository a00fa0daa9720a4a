//! Benchmark of proofs: the examples whose proofs visit the most states.

use std::num::NonZeroUsize;
use std::sync::Arc;

use divan::{Bencher, counter::ItemsCount};
use orlog_program::{Program, compile_yaml};
use orlog_simulator::prove::{ProveOptions, prove};

const TRIP: &str = include_str!("../../../examples/trip/trip.saga.yaml");
const ORDERS: &str = include_str!("../../../examples/orders/order.saga.yaml");

fn main() {
    divan::main();
}

/// Proves a definition on one thread. An item is a visited state.
fn bench(bencher: Bencher<'_, '_>, definition: &str) {
    let compiled = compile_yaml(definition, "bench").expect("the definition is valid");
    let program: Arc<dyn Program> = Arc::new(compiled);
    let options = ProveOptions {
        max_states: 40_000,
        max_steps: 500,
        disturbances: 1,
        threads: NonZeroUsize::MIN,
    };

    let report = prove(&program, options).expect("a definition has steps");
    bencher
        .counter(ItemsCount::new(report.states))
        .bench(|| prove(&program, options).map(|report| report.states));
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn trip(bencher: Bencher<'_, '_>) {
    bench(bencher, TRIP);
}

#[divan::bench(sample_count = 3, sample_size = 1)]
fn orders(bencher: Bencher<'_, '_>) {
    bench(bencher, ORDERS);
}
