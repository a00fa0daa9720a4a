//! Effects behind nginx and HAProxy, which answer after the upstream has executed the call: its
//! connection breaks, it is too slow, or its answer is replaced. The upstream counts its executions.
//! None of them may count as "not executed".

#![cfg(feature = "grpc")]

use std::time::Duration;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::grpc::GrpcConfig;
use orlog_effect::providers::http::HttpConfig;
use orlog_effect::{Attempt, ProviderError, Reply, TransientCause, Upstream};
use orlog_model::{EffectName, Work};
use orlog_testkit::faulty_upstream::{ENDS, FaultyUpstream, GRPC_ENDS, GrpcProxy, HttpProxy};
use orlog_testkit::grpc_server::descriptors;
use orlog_testkit::provider_suite::{START, item};
use orlog_testkit::servers::TestServer;
use serde_json::json;

const PROTO: &str = include_str!("../../../tests/protos/payments.proto");

/// Makes one attempt of `pay.charge`.
async fn perform(upstream: &Upstream) -> Result<Reply, ProviderError> {
    let mut item = item(&EffectName::new("pay.charge").expect("valid"), 1);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = json!({});
    }
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_secs(20),
        at: START,
        in_doubt: false,
    };
    upstream.provider.execute(&item, attempt).await
}

/// Returns whether a result claims that the attempt was not executed.
fn excludes_execution(result: &Result<Reply, ProviderError>) -> bool {
    match result {
        Ok(_) | Err(ProviderError::Abandoned { .. }) => false,
        Err(ProviderError::Permanent { .. }) => true,
        Err(ProviderError::Transient { trouble, .. }) => match trouble {
            TransientCause::Throttled | TransientCause::Unavailable => true,
            TransientCause::ReportedThrottled
            | TransientCause::ReportedUnavailable
            | TransientCause::ResponseLost
            | TransientCause::Undetermined => false,
        },
    }
}

fn http(proxy: &TestServer) -> Upstream {
    let config = format!(
        "base_url = \"http://127.0.0.1:{}\"\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        proxy.port
    );
    let config: HttpConfig = toml::from_str(&config).expect("valid");
    config.upstream(UpstreamSite::new("pay")).expect("valid")
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn executed_http_request_behind_a_proxy_never_counts_as_not_executed() {
    for proxy in HttpProxy::ALL {
        for end in &ENDS {
            // The fault is at the first request of a connection, or at a later one.
            for answered in [0, 1] {
                let faulty = FaultyUpstream::http(answered, std::slice::from_ref(end)).await;
                let running = proxy.start(faulty.port);
                let upstream = http(&running);
                for _ in 0..answered {
                    perform(&upstream).await.expect("valid");
                }

                let result = perform(&upstream).await;
                let case = format!("{proxy:?}, {end:?}, {answered} answered: {result:?}");
                assert_eq!(faulty.charges(), answered + 1, "{case}");
                assert!(!excludes_execution(&result), "{case}");
                assert!(result.is_err(), "{case}");
            }
        }
    }
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn executed_grpc_call_behind_a_proxy_never_counts_as_not_executed() {
    let dir = tempfile::tempdir().expect("valid");
    std::fs::write(dir.path().join("payments.pb"), descriptors(PROTO)).expect("valid");
    for proxy in GrpcProxy::ALL {
        for end in GRPC_ENDS {
            let faulty = FaultyUpstream::grpc(end).await;
            let running = proxy.start(faulty.port);
            let config = format!(
                "endpoint = \"http://127.0.0.1:{}\"\ndescriptors = \"payments.pb\"\n\
                 [effects.\"pay.charge\"]\nmethod = \"payments.v1.Payments/Echo\"\n",
                running.port
            );
            let config: GrpcConfig = toml::from_str(&config).expect("valid");
            let site = UpstreamSite::new("pay").in_dir(dir.path());
            let upstream = config.upstream(site).expect("valid");

            let result = perform(&upstream).await;
            let case = format!("{proxy:?}, {end:?}: {result:?}");
            assert!(faulty.charges() > 0, "{case}");
            assert!(!excludes_execution(&result), "{case}");
            assert!(result.is_err(), "{case}");
        }
    }
}
