//! Runs the provider conformance suite on every provider, with a real upstream if a user would have
//! one.

mod grpc;
mod smtp;

mod native {
    use std::sync::Arc;

    use orlog_effect::{FunctionCall, FunctionProvider, ProviderError, Reply};
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{ProviderFixture, UpstreamResponse, UpstreamScript};

    async fn respond(script: Arc<UpstreamScript>, call: FunctionCall) -> Result<Reply, ProviderError> {
        match script.next_response(call.idempotency_key.to_string()) {
            UpstreamResponse::Done(payload) => Ok(Reply::from(payload)),
            UpstreamResponse::Rejected => {
                Err(ProviderError::permanent("card_declined", "the card was declined"))
            }
            UpstreamResponse::Throttled(Some(pause)) => {
                Err(ProviderError::throttled("busy", "later, please").with_retry_after(pause))
            }
            UpstreamResponse::Throttled(None) => Err(ProviderError::throttled("busy", "later, please")),
            UpstreamResponse::Unavailable => Err(ProviderError::unavailable("ill", "the disk is full")),
            UpstreamResponse::NoResponse => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    fn fixture() -> std::future::Ready<ProviderFixture> {
        let script = Arc::new(UpstreamScript::default());
        let upstream = Arc::clone(&script);
        let native = FunctionProvider::new()
            .effect("payments.charge", move |call| respond(Arc::clone(&upstream), call));
        let effect = EffectName::new("payments.charge").expect("valid");
        std::future::ready(ProviderFixture { provider: Arc::new(native), effect, script })
    }

    provider_suite!(fixture());
}

mod http {
    use std::sync::Arc;

    use axum::extract::{Path, State};
    use axum::http::{HeaderMap, StatusCode};
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use axum::{Json, Router};
    use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
    use orlog_effect::providers::http::HttpConfig;
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{ProviderFixture, UpstreamResponse, UpstreamScript};
    use serde_json::{Value, json};

    async fn charge(
        State(script): State<Arc<UpstreamScript>>,
        Path(order): Path<String>,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> Response {
        assert_eq!(headers["x-tenant-id"], "acme");
        assert_eq!(headers["x-correlation-id"], order.as_str());
        assert_eq!(body, json!({"order": {"id": order}, "amount": 125}));
        match script.next_response(headers["idempotency-key"].to_str().expect("ASCII")) {
            UpstreamResponse::Done(payload) => Json(payload).into_response(),
            UpstreamResponse::Rejected => {
                (StatusCode::PAYMENT_REQUIRED, "the card was declined").into_response()
            }
            UpstreamResponse::Throttled(Some(pause)) => {
                (StatusCode::TOO_MANY_REQUESTS, [("retry-after", pause.as_secs().to_string())])
                    .into_response()
            }
            UpstreamResponse::Throttled(None) => StatusCode::TOO_MANY_REQUESTS.into_response(),
            UpstreamResponse::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            UpstreamResponse::NoResponse => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    async fn fixture() -> ProviderFixture {
        let script = Arc::new(UpstreamScript::default());
        let shop =
            Router::new().route("/orders/{order}/charges", post(charge)).with_state(Arc::clone(&script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, shop).await });
        let config = json!({
            "base_url": base_url,
            "effects": {"payments.charge": {"path": "/orders/{order.id}/charges"}},
        });
        let config: HttpConfig = serde_json::from_value(config).expect("valid");
        let provider = config.upstream(UpstreamSite::new("payments")).expect("valid").provider;
        ProviderFixture { provider, effect: EffectName::new("payments.charge").expect("valid"), script }
    }

    provider_suite!(fixture());
}

mod worker {
    use std::sync::Arc;
    use std::time::Duration;

    use orlog_effect::worker::{
        ClaimOptions, ClaimRequest, ClaimedJob, JobBoard, JobReport, ReportContent, Reports, WorkerProvider,
    };
    use orlog_effect::{ProviderError, Reply};
    use orlog_model::{Clock, EffectName, TenantId};
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{ProviderFixture, START, UpstreamResponse, UpstreamScript};

    /// Executes the jobs of the board, one task per job.
    async fn work(job_board: Arc<JobBoard>, script: Arc<UpstreamScript>, effect: EffectName) {
        let clock = SimClock::new(START);
        let tenant = TenantId::new("acme").expect("valid");
        let request = ClaimRequest { tenant, effects: vec![effect], worker: "w".to_owned() };
        loop {
            for claimed in job_board
                .claim(clock.as_ref() as &dyn Clock, &request, 1, ClaimOptions::default(), Duration::MAX)
                .await
            {
                tokio::spawn(see_through(Arc::clone(&job_board), Arc::clone(&script), claimed));
            }
        }
    }

    async fn see_through(job_board: Arc<JobBoard>, script: Arc<UpstreamScript>, claimed: ClaimedJob) {
        let result = match script.next_response(claimed.item.id.to_string()) {
            UpstreamResponse::Done(payload) => Ok(Reply::from(payload)),
            UpstreamResponse::Rejected => {
                Err(ProviderError::permanent("card_declined", "the card was declined"))
            }
            UpstreamResponse::Throttled(Some(pause)) => {
                Err(ProviderError::throttled("busy", "later, please").with_retry_after(pause))
            }
            UpstreamResponse::Throttled(None) => Err(ProviderError::throttled("busy", "later, please")),
            UpstreamResponse::Unavailable => Err(ProviderError::unavailable("ill", "the disk is full")),
            UpstreamResponse::NoResponse => {
                tokio::select! {
                    () = script.silence() => unreachable!("silence never ends"),
                    () = lost(&job_board, &claimed) => return,
                }
            }
        };
        assert!(
            report(&job_board, &claimed, ReportContent::Result(Box::new(result.into()))),
            "the claim holds"
        );
    }

    /// Reports about a claimed job; returns whether the claim holds.
    fn report(job_board: &JobBoard, claimed: &ClaimedJob, content: ReportContent) -> bool {
        let (clock, tenant) = (SimClock::new(START), &claimed.item.instance.tenant);
        let mut reports = Reports::new([JobReport { job: claimed.item.id, claim: claimed.claim, content }]);
        job_board.report(clock.as_ref(), tenant, Duration::ZERO, &mut reports);
        reports.into_acks().iter().all(Result::is_ok)
    }

    /// Sends heartbeats until the claim is lost.
    async fn lost(job_board: &JobBoard, claimed: &ClaimedJob) {
        while report(job_board, claimed, ReportContent::Heartbeat) {
            tokio::task::yield_now().await;
        }
    }

    fn fixture() -> std::future::Ready<ProviderFixture> {
        let (script, job_board) = (Arc::new(UpstreamScript::default()), Arc::new(JobBoard::default()));
        let effect = EffectName::new("payments.charge").expect("valid");
        tokio::spawn(work(Arc::clone(&job_board), Arc::clone(&script), effect.clone()));
        std::future::ready(ProviderFixture {
            provider: Arc::new(WorkerProvider::new(job_board)),
            effect,
            script,
        })
    }

    provider_suite!(fixture());
}

mod script;

mod sql;

mod webhook;
