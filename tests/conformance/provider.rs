//! Runs the provider conformance suite on every provider, with a real upstream if a user would have
//! one.

mod grpc;
mod smtp;

mod native {
    use std::sync::Arc;

    use orlog_effect::{FunctionCall, FunctionProvider, ProbeResult, ProviderError, Reply};
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite::{
        ProbeResponse, ProviderFixture, UpstreamResponse, UpstreamScript,
    };
    use orlog_testkit::{probe_suite, provider_suite};

    fn probe(script: &UpstreamScript, call: &FunctionCall) -> ProbeResult {
        match script.probe(&call.idempotency_key.to_string()) {
            ProbeResponse::Executed(payload) => ProbeResult::Done(Reply::from(payload)),
            ProbeResponse::NotExecuted => ProbeResult::NotDone,
            ProbeResponse::Unavailable => {
                ProbeResult::from_error(ProviderError::unavailable("ill", "the disk is full"))
            }
        }
    }

    async fn respond(
        script: Arc<UpstreamScript>,
        call: FunctionCall,
    ) -> Result<Reply, ProviderError> {
        match script.next_response(call.idempotency_key.to_string()) {
            UpstreamResponse::Done(payload) => Ok(Reply::from(payload)),
            UpstreamResponse::Rejected => Err(ProviderError::permanent(
                "card_declined",
                "the card was declined",
            )),
            UpstreamResponse::Throttled(Some(pause)) => {
                Err(ProviderError::throttled("busy", "later, please").with_retry_after(pause))
            }
            UpstreamResponse::Throttled(None) => {
                Err(ProviderError::throttled("busy", "later, please"))
            }
            UpstreamResponse::Unavailable => {
                Err(ProviderError::unavailable("ill", "the disk is full"))
            }
            UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    fn fixture(probes: bool) -> std::future::Ready<ProviderFixture> {
        let script = Arc::new(UpstreamScript::default());
        let upstream = Arc::clone(&script);
        let native = FunctionProvider::new().effect("payments.charge", move |call| {
            respond(Arc::clone(&upstream), call)
        });
        let upstream = Arc::clone(&script);
        let native = if probes {
            native.probe("payments.charge", move |call| {
                std::future::ready(probe(&upstream, &call))
            })
        } else {
            native
        };
        let effect = EffectName::new("payments.charge").expect("valid");
        std::future::ready(ProviderFixture {
            provider: Arc::new(native),
            effect,
            script,
        })
    }

    provider_suite!(fixture(false));

    mod with_probe {
        use super::*;
        probe_suite!(fixture(true));
    }
}

mod http {
    use std::sync::Arc;

    use axum::extract::{Path, State};
    use axum::http::{HeaderMap, StatusCode};
    use axum::response::{IntoResponse, Response};
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
    use orlog_effect::providers::http::HttpConfig;
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite::{
        ProbeResponse, ProviderFixture, UpstreamResponse, UpstreamScript,
    };
    use orlog_testkit::{probe_suite, provider_suite};
    use serde_json::{Value, json};

    async fn find(
        State(script): State<Arc<UpstreamScript>>,
        Path((order, key)): Path<(String, String)>,
        headers: HeaderMap,
    ) -> Response {
        assert_eq!(
            (
                headers["x-tenant-id"].as_bytes(),
                headers["x-correlation-id"].as_bytes()
            ),
            (b"acme".as_slice(), order.as_bytes())
        );
        assert!(
            !headers.contains_key("idempotency-key"),
            "the upstream would replay the response of the attempt"
        );
        match script.probe(&key) {
            ProbeResponse::Executed(charge) => {
                Json(json!({"state": "settled", "charge": charge})).into_response()
            }
            ProbeResponse::NotExecuted => Json(json!({"state": "none"})).into_response(),
            ProbeResponse::Unavailable => StatusCode::BAD_GATEWAY.into_response(),
        }
    }

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
            UpstreamResponse::Throttled(Some(pause)) => (
                StatusCode::TOO_MANY_REQUESTS,
                [("retry-after", pause.as_secs().to_string())],
            )
                .into_response(),
            UpstreamResponse::Throttled(None) => StatusCode::TOO_MANY_REQUESTS.into_response(),
            UpstreamResponse::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    async fn fixture(probes: bool) -> ProviderFixture {
        let script = Arc::new(UpstreamScript::default());
        let shop = Router::new()
            .route("/orders/{order}/charges", post(charge))
            .route("/orders/{order}/charges/{key}", get(find))
            .with_state(Arc::clone(&script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, shop).await });
        let mut config = json!({
            "base_url": base_url,
            "effects": {"payments.charge": {"path": "/orders/{order.id}/charges"}},
        });
        if probes {
            config["effects"]["payments.charge"]["probe"] = json!({
                "path": "/orders/{order.id}/charges/{@id}",
                "responses": [
                    {"status": 200, "when": {"/state": "settled"}, "result": "executed", "payload": "/charge"},
                    {"status": 200, "when": {"/state": "none"}, "result": "not_executed"},
                ],
            });
        }
        let config: HttpConfig = serde_json::from_value(config).expect("valid");
        let provider = config
            .upstream(UpstreamSite::new("payments"))
            .expect("valid")
            .provider;
        ProviderFixture {
            provider,
            effect: EffectName::new("payments.charge").expect("valid"),
            script,
        }
    }

    provider_suite!(fixture(false));

    mod with_probe {
        use super::*;
        probe_suite!(fixture(true));
    }
}

mod worker {
    use std::sync::Arc;
    use std::time::Duration;

    use orlog_effect::worker::{
        ClaimOptions, ClaimRequest, ClaimedJob, JobBoard, JobReport, ReportContent, ReportRules,
        Reports, WorkerProvider,
    };
    use orlog_effect::{FactTypes, ProviderError, Reply};
    use orlog_model::{Clock, EffectName, InDoubtPolicy, TenantId};
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{
        ProbeResponse, ProviderFixture, START, UpstreamResponse, UpstreamScript,
    };

    /// Executes the jobs of the board, one task per job.
    async fn work(
        job_board: Arc<JobBoard>,
        script: Arc<UpstreamScript>,
        effect: EffectName,
        probes: bool,
    ) {
        let clock = SimClock::new(START);
        let tenant = TenantId::new("acme").expect("valid");
        let request = ClaimRequest {
            tenant,
            effects: vec![effect],
            worker: "w".to_owned(),
            probes,
            labels: std::collections::BTreeMap::new(),
            capacity: None,
        };
        loop {
            for claimed in job_board
                .claim(
                    clock.as_ref() as &dyn Clock,
                    &request,
                    1,
                    ClaimOptions::default(),
                    Duration::MAX,
                )
                .await
            {
                tokio::spawn(see_through(
                    Arc::clone(&job_board),
                    Arc::clone(&script),
                    claimed,
                    probes,
                ));
            }
        }
    }

    /// Returns the result of an earlier execution of a job in doubt; `None`: the job must be executed.
    fn probe(
        script: &UpstreamScript,
        claimed: &ClaimedJob,
    ) -> Option<Result<Reply, ProviderError>> {
        if !claimed.in_doubt {
            return None;
        }
        match script.probe(&claimed.item.id.to_string()) {
            ProbeResponse::Executed(payload) => Some(Ok(Reply::from(payload))),
            ProbeResponse::NotExecuted => None,
            ProbeResponse::Unavailable => {
                Some(Err(ProviderError::unavailable("ill", "the disk is full")))
            }
        }
    }

    async fn see_through(
        job_board: Arc<JobBoard>,
        script: Arc<UpstreamScript>,
        claimed: ClaimedJob,
        probes: bool,
    ) {
        let earlier = if probes {
            probe(&script, &claimed)
        } else {
            None
        };
        let result = match earlier {
            Some(result) => result,
            None => match script.next_response(claimed.item.id.to_string()) {
                UpstreamResponse::Done(payload) => Ok(Reply::from(payload)),
                UpstreamResponse::Rejected => Err(ProviderError::permanent(
                    "card_declined",
                    "the card was declined",
                )),
                UpstreamResponse::Throttled(Some(pause)) => {
                    Err(ProviderError::throttled("busy", "later, please").with_retry_after(pause))
                }
                UpstreamResponse::Throttled(None) => {
                    Err(ProviderError::throttled("busy", "later, please"))
                }
                UpstreamResponse::Unavailable => {
                    Err(ProviderError::unavailable("ill", "the disk is full"))
                }
                UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
                    tokio::select! {
                        () = script.silence() => unreachable!("silence never ends"),
                        () = lost(&job_board, &claimed) => return,
                    }
                }
            },
        };
        assert!(
            report(
                &job_board,
                &claimed,
                ReportContent::Result(Box::new(result.into()))
            ),
            "the claim holds"
        );
    }

    /// Reports about a claimed job; returns whether the claim holds.
    fn report(job_board: &JobBoard, claimed: &ClaimedJob, content: ReportContent) -> bool {
        let (clock, tenant) = (SimClock::new(START), &claimed.item.instance.tenant);
        let mut reports = Reports::new([JobReport {
            job: claimed.item.id,
            claim: claimed.claim,
            content,
        }]);
        let rules = ReportRules {
            claim_ttl: Duration::ZERO,
            facts: &FactTypes::none(),
        };
        job_board.report(clock.as_ref(), tenant, rules, &mut reports);
        reports.into_acks().iter().all(Result::is_ok)
    }

    /// Sends heartbeats until the claim is lost.
    async fn lost(job_board: &JobBoard, claimed: &ClaimedJob) {
        while report(job_board, claimed, ReportContent::Heartbeat) {
            tokio::task::yield_now().await;
        }
    }

    fn fixture(probes: bool) -> std::future::Ready<ProviderFixture> {
        let (script, job_board) = (
            Arc::new(UpstreamScript::default()),
            Arc::new(JobBoard::default()),
        );
        let effect = EffectName::new("payments.charge").expect("valid");
        tokio::spawn(work(
            Arc::clone(&job_board),
            Arc::clone(&script),
            effect.clone(),
            probes,
        ));
        std::future::ready(ProviderFixture {
            provider: Arc::new(WorkerProvider::new(job_board, probes, InDoubtPolicy::Retry)),
            effect,
            script,
        })
    }

    provider_suite!(fixture(false));

    /// The worker that claims the next attempt probes. If it cannot, it returns the job, without a bound other than
    /// those of attempts.
    mod with_probe {
        use super::*;
        provider_suite!(fixture(true);
            executed_attempt_is_found_after_a_crash
            attempt_unexecuted_at_the_crash_is_executed
            executed_attempt_is_found_after_a_timeout
            unanswered_probe_is_repeated
        );
    }
}

mod script;

mod sql;

mod webhook;
