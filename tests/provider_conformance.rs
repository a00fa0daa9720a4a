//! Holds every provider to the conformance suite, with a real upstream where a user would have one.

#[path = "provider_conformance/grpc.rs"]
mod grpc;
#[path = "provider_conformance/smtp.rs"]
mod smtp;

mod native {
    use std::sync::Arc;

    use orlog_effect::{Native, NativeCall, Refusal, Reply};
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{Answer, Rig, Script};

    async fn answer(script: Arc<Script>, call: NativeCall) -> Result<Reply, Refusal> {
        match script.ask(call.key.to_string()) {
            Answer::Done(payload) => Ok(Reply::from(payload)),
            Answer::Refused => Err(Refusal::failed("card_declined", "the card was declined")),
            Answer::Busy(Some(pause)) => Err(Refusal::busy("busy", "later, please").after(pause)),
            Answer::Busy(None) => Err(Refusal::busy("busy", "later, please")),
            Answer::Ill => Err(Refusal::retry("ill", "the disk is full")),
            Answer::Silence => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    fn rig() -> std::future::Ready<Rig> {
        let script = Arc::new(Script::default());
        let upstream = Arc::clone(&script);
        let native = Native::new().effect("payments.charge", move |call| answer(Arc::clone(&upstream), call));
        let effect = EffectName::new("payments.charge").expect("valid");
        std::future::ready(Rig { provider: Arc::new(native), effect, script })
    }

    provider_suite!(rig());
}

mod http {
    use std::sync::Arc;

    use axum::extract::{Path, State};
    use axum::http::{HeaderMap, StatusCode};
    use axum::response::{IntoResponse, Response};
    use axum::routing::post;
    use axum::{Json, Router};
    use orlog_effect::HttpConfig;
    use orlog_model::EffectName;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{Answer, Rig, Script};
    use serde_json::{Value, json};

    async fn charge(
        State(script): State<Arc<Script>>,
        Path(order): Path<String>,
        headers: HeaderMap,
        Json(body): Json<Value>,
    ) -> Response {
        assert_eq!(headers["x-tenant-id"], "acme");
        assert_eq!(headers["x-correlation-id"], order.as_str());
        assert_eq!(body, json!({"order": {"id": order}, "amount": 125}));
        match script.ask(headers["idempotency-key"].to_str().expect("ASCII")) {
            Answer::Done(payload) => Json(payload).into_response(),
            Answer::Refused => (StatusCode::PAYMENT_REQUIRED, "the card was declined").into_response(),
            Answer::Busy(Some(pause)) => {
                (StatusCode::TOO_MANY_REQUESTS, [("retry-after", pause.as_secs().to_string())])
                    .into_response()
            }
            Answer::Busy(None) => StatusCode::TOO_MANY_REQUESTS.into_response(),
            Answer::Ill => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Answer::Silence => {
                script.silence().await;
                unreachable!("silence never ends")
            }
        }
    }

    async fn rig() -> Rig {
        let script = Arc::new(Script::default());
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
        let provider = config.upstream("payments").expect("valid").provider;
        Rig { provider, effect: EffectName::new("payments.charge").expect("valid"), script }
    }

    provider_suite!(rig());
}

mod worker {
    use std::sync::Arc;

    use orlog_effect::worker::{Ask, Board, Claimed, Terms, Worker};
    use orlog_effect::{Refusal, Reply};
    use orlog_model::{Clock, EffectName, TenantId, Timestamp};
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite;
    use orlog_testkit::provider_suite::{Answer, Rig, START, Script};

    /// Works off the board, one task a job.
    async fn work(board: Arc<Board>, script: Arc<Script>, effect: EffectName) {
        let clock = SimClock::new(START);
        let tenant = TenantId::new("acme").expect("valid");
        let ask = Ask { tenant, effects: vec![effect], worker: "w".to_owned() };
        loop {
            for claimed in
                board.claim(clock.as_ref() as &dyn Clock, &ask, 1, Terms::default(), Timestamp::MAX).await
            {
                tokio::spawn(see_through(Arc::clone(&board), Arc::clone(&script), claimed));
            }
        }
    }

    async fn see_through(board: Arc<Board>, script: Arc<Script>, claimed: Claimed) {
        let result = match script.ask(claimed.item.id.to_string()) {
            Answer::Done(payload) => Ok(Reply::from(payload)),
            Answer::Refused => Err(Refusal::failed("card_declined", "the card was declined")),
            Answer::Busy(Some(pause)) => Err(Refusal::busy("busy", "later, please").after(pause)),
            Answer::Busy(None) => Err(Refusal::busy("busy", "later, please")),
            Answer::Ill => Err(Refusal::retry("ill", "the disk is full")),
            Answer::Silence => {
                tokio::select! {
                    () = script.silence() => unreachable!("silence never ends"),
                    () = lost(&board, &claimed) => return,
                }
            }
        };
        let tenant = &claimed.item.instance.tenant;
        board.bring(tenant, claimed.item.id, claimed.claim, result).expect("the claim holds");
    }

    /// Heartbeats until the job is taken away.
    async fn lost(board: &Board, claimed: &Claimed) {
        let (tenant, job) = (&claimed.item.instance.tenant, claimed.item.id);
        while board.heartbeat(tenant, job, claimed.claim, claimed.until).is_ok() {
            tokio::task::yield_now().await;
        }
    }

    fn rig() -> std::future::Ready<Rig> {
        let (script, board) = (Arc::new(Script::default()), Arc::new(Board::default()));
        let effect = EffectName::new("payments.charge").expect("valid");
        tokio::spawn(work(Arc::clone(&board), Arc::clone(&script), effect.clone()));
        std::future::ready(Rig { provider: Arc::new(Worker::new(board)), effect, script })
    }

    provider_suite!(rig());
}

#[path = "provider_conformance/script.rs"]
mod script;

#[path = "provider_conformance/sql.rs"]
mod sql;
