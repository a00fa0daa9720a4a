//! Tests of the quotas of one caller.

use super::*;

fn quotas(change: impl FnOnce(&mut HttpServerConfig)) -> Quotas {
    let mut config = HttpServerConfig::default();
    change(&mut config);
    Quotas::new(&config, 4096)
}

fn user(number: usize) -> CallerKey {
    CallerKey::User(format!("user-{number}").into())
}

/// Returns the header `Retry-After` and the text of a rejection.
fn rejection<T>(result: Result<T, Problem>) -> (u64, String) {
    let problem = result.err().expect("the quota is used up");
    let response = axum::response::IntoResponse::into_response(problem);
    assert_eq!(response.status(), 429);
    let retry_after = response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let body =
        futures::executor::block_on(axum::body::to_bytes(response.into_body(), 1 << 16)).unwrap();
    (retry_after, String::from_utf8(body.to_vec()).unwrap())
}

fn rejected(quotas: &Quotas, quota: Quota) -> u64 {
    quotas
        .rejected()
        .get_or_create(&QuotaLabels {
            quota: quota.as_str(),
        })
        .get()
}

#[test]
fn the_rate_of_one_caller_does_not_limit_another() {
    let quotas = quotas(|http| {
        http.per_caller.max_requests_per_second = 2;
        http.per_caller.request_burst = 3;
    });
    let start = Instant::now();
    for _ in 0..3 {
        quotas.begin(user(1), start).unwrap();
    }
    let (retry_after, text) = rejection(quotas.begin(user(1), start));
    assert_eq!(retry_after, 1);
    assert!(
        text.contains("OR0031") && text.contains("max_requests_per_second"),
        "{text}"
    );
    assert_eq!(rejected(&quotas, Quota::RequestRate), 1);
    assert!(quotas.begin(user(2), start).is_ok());
    assert!(
        quotas
            .begin(user(1), start + Duration::from_millis(400))
            .is_err()
    );
    assert!(
        quotas
            .begin(user(1), start + Duration::from_millis(500))
            .is_ok()
    );
}

#[test]
fn the_requests_in_progress_of_one_caller_are_limited() {
    let quotas = quotas(|http| http.per_caller.max_concurrent_requests = 2);
    let now = Instant::now();
    let (first, _second) = (
        quotas.begin(user(1), now).unwrap(),
        quotas.begin(user(1), now).unwrap(),
    );
    let (_, text) = rejection(quotas.begin(user(1), now));
    assert!(text.contains("max_concurrent_requests"), "{text}");
    assert_eq!(rejected(&quotas, Quota::Requests), 1);
    assert!(quotas.begin(user(2), now).is_ok());
    drop(first);
    assert!(quotas.begin(user(1), now).is_ok());
}

#[test]
fn one_caller_never_has_all_connections() {
    let quotas = Quotas::new(&HttpServerConfig::default(), 16);
    let now = Instant::now();
    let permits: Vec<_> = (0..12)
        .map(|_| quotas.begin(user(1), now).unwrap())
        .collect();
    assert!(quotas.begin(user(1), now).is_err());
    drop(permits);
}

#[test]
fn the_waiting_requests_of_one_caller_are_limited() {
    let quotas = quotas(|http| http.per_caller.max_long_polls = 1);
    let now = Instant::now();
    let requests = [user(1), user(1), user(2)].map(|key| quotas.begin(key, now).unwrap());
    let [first, second, other] = requests.each_ref().map(|request| Some(&request.budgets));
    let waiting = quotas.begin_long_poll(first).unwrap();
    let (_, text) = rejection(quotas.begin_long_poll(second));
    assert!(text.contains("max_long_polls"), "{text}");
    assert!(quotas.begin_long_poll(other).is_ok());
    drop(waiting);
    assert!(quotas.begin_long_poll(first).is_ok());
    assert_eq!(rejected(&quotas, Quota::LongPolls), 1);
}

#[test]
fn a_stream_counts_after_its_request_has_ended() {
    let quotas = quotas(|http| http.per_caller.max_long_polls = 1);
    let begin = || quotas.begin(user(1), Instant::now()).unwrap();
    let request = begin();
    let stream = quotas.begin_long_poll(Some(&request.budgets)).unwrap();
    drop(request);
    let request = begin();
    assert!(quotas.begin_long_poll(Some(&request.budgets)).is_err());
    drop((stream, request));
    assert!(quotas.table.lock().callers.is_empty());
    assert!(quotas.begin_message(Some(&begin().budgets)).is_ok());
}

#[test]
fn queries_of_one_caller_stop_when_their_time_is_used() {
    let quotas = quotas(|http| http.per_caller.max_query_time_per_minute = Duration::from_secs(6));
    let now = Instant::now();
    let requests = [user(1), user(2)].map(|key| quotas.begin(key, now).unwrap());
    let [first, other] = requests.each_ref().map(|request| Some(&request.budgets));
    assert!(quotas.begin_query(first, now).is_ok());
    quotas.charge_query(&user(1), 6.5, now);
    let (retry_after, text) = rejection(quotas.begin_query(first, now));
    assert_eq!(retry_after, 5, "a tenth of a second leaks in each second");
    assert!(text.contains("max_query_time_per_minute"), "{text}");
    assert!(quotas.begin_query(other, now).is_ok());
    assert!(
        quotas
            .begin_query(first, now + Duration::from_millis(5001))
            .is_ok()
    );
}

#[test]
fn a_query_is_charged_with_its_processor_time() {
    let quotas =
        quotas(|http| http.per_caller.max_query_time_per_minute = Duration::from_millis(1));
    let request = quotas.begin(user(1), Instant::now()).unwrap();
    let caller = Some(&request.budgets);
    let timer = quotas.begin_query(caller, Instant::now()).unwrap();
    let before = cpu_seconds();
    let sum = timer.run(|| {
        let mut sum = 0_u64;
        while cpu_seconds() - before < 0.01 {
            sum += 1;
        }
        sum
    });
    assert!(quotas.begin_query(caller, Instant::now()).is_err());
    assert!(sum > 0);
}

#[test]
fn the_table_of_callers_is_bounded() {
    let quotas = quotas(|http| {
        http.per_caller.max_requests_per_second = 1;
        http.per_caller.request_burst = 1;
    });
    // In the future, so that nothing leaks when the requests end.
    let start = Instant::now() + Duration::from_hours(1);
    for number in 0..MAX_CALLERS {
        quotas.begin(user(number), start).unwrap();
    }
    quotas.begin(user(MAX_CALLERS), start).unwrap();
    assert!(
        quotas.begin(user(MAX_CALLERS + 1), start).is_err(),
        "further callers are counted as one"
    );
    assert_eq!(quotas.table.lock().callers.len(), MAX_CALLERS + 1);
    assert!(
        quotas.begin(user(0), start).is_err(),
        "a known caller keeps its own count"
    );
    let later = start + Duration::from_secs(5);
    quotas.begin(user(MAX_CALLERS + 1), later).unwrap();
    assert_eq!(
        quotas.table.lock().callers.len(),
        1,
        "callers without use are removed"
    );
}

#[test]
fn a_caller_without_use_leaves_no_entry() {
    let quotas = quotas(|_| {});
    let request = quotas.begin(user(1), Instant::now()).unwrap();
    assert_eq!(quotas.table.lock().callers.len(), 1);
    drop(request);
    assert!(quotas.table.lock().callers.is_empty());
}

#[test]
fn one_caller_has_a_share_of_bytes_and_reads() {
    let quotas = quotas(|http| {
        http.max_bytes_in_flight = 64 << 20;
        http.max_concurrent_reads = 4;
    });
    let now = Instant::now();
    let [first, other] = [user(1), user(2)].map(|key| quotas.begin(key, now).unwrap());
    let CallerBudgets { bytes, reads, .. } = &first.budgets;
    assert_eq!(bytes.available_permits() * BYTES_PER_PERMIT, 32 << 20);
    let held = (reads.try_acquire().unwrap(), reads.try_acquire().unwrap());
    assert!(
        reads.try_acquire().is_err(),
        "half of the reads belong to other callers"
    );
    assert_eq!(other.budgets.reads.available_permits(), 2);
    drop(held);
}
