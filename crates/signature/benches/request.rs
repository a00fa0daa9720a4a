//! Cost of signing and verifying one request, with the allocations of each.

use std::time::Duration;

use divan::counter::BytesCount;
use divan::{AllocProfiler, Bencher, black_box};
use http::{HeaderMap, HeaderValue};
use orlog_signature::{ContentDigest, RequestSignature, RequestTarget, SigningKey};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

const TARGET: RequestTarget<'static> = RequestTarget {
    method: "POST",
    authority: "orlog.example",
    path: "/v1/events",
    query: None,
};
/// Body sizes in bytes: none, an event, a batch of events.
const SIZES: [usize; 3] = [0, 256, 65_536];

fn main() {
    divan::main();
}

fn key() -> SigningKey {
    SigningKey::from_pem(&SigningKey::generate_pem().expect("random bytes")).expect("a created key")
}

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("x-tenant-id", HeaderValue::from_static("acme"));
    headers
}

#[divan::bench(args = SIZES)]
fn sign(bencher: Bencher, size: usize) {
    let (key, body) = (key(), vec![b'x'; size]);
    bencher
        .counter(BytesCount::new(size))
        .with_inputs(headers)
        .bench_values(|mut headers| {
            key.sign(
                &TARGET,
                &mut headers,
                black_box(&body),
                1000,
                Duration::from_mins(5),
            )
            .expect("signed");
            headers
        });
}

/// Reads and verifies the signature, and computes the digest of the body.
#[divan::bench(args = SIZES)]
fn verify(bencher: Bencher, size: usize) {
    let (key, body, mut headers) = (key(), vec![b'x'; size], headers());
    key.sign(&TARGET, &mut headers, &body, 1000, Duration::from_mins(5))
        .expect("signed");
    let public = key.public_key();
    bencher.counter(BytesCount::new(size)).bench(|| {
        let read = RequestSignature::read(&TARGET, black_box(&headers), size > 0);
        let signature = read.expect("valid").expect("signed");
        assert!(signature.is_by(&public));
        assert!(
            signature
                .digest
                .is_none_or(|digest| digest == ContentDigest::of(black_box(&body)))
        );
    });
}
