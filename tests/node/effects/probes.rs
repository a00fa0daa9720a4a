//! Probes of attempts in doubt: the documented examples, and the errors of their configuration.

use std::path::Path;
use std::time::Duration;

use orlog::workflow::{
    Context, Contract, Event, Handler, HandlerError, NoFailure, NodeParts, ProbeOutcome, TaskError,
    Workflow,
};
use orlog_effect::config::{UpstreamConfig, UpstreamSite};
use orlog_effect::providers::grpc::GrpcConfig;
use orlog_effect::providers::http::HttpConfig;
use orlog_effect::providers::smtp::SmtpConfig;
use orlog_effect::{Probe, ProbeResult, ProviderError, Reply, Upstream};
use orlog_model::{EffectName, EventType, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::effects::attempts::{charge, request};
use crate::effects::docs::{block, with};
use crate::effects::http_upstream::HttpUpstream;

const PROBE: Probe = Probe {
    timeout: Duration::from_secs(10),
    at: Timestamp::from_millis(1_700_000_000_000),
};

fn upstream<C: UpstreamConfig + DeserializeOwned>(text: &str) -> Result<Upstream, String> {
    let config: C = toml::from_str(text).map_err(|error| error.to_string())?;
    config
        .upstream(UpstreamSite::new("pay").in_dir(Path::new(".")))
        .map_err(|error| error.to_string())
}

#[track_caller]
fn check_rejected<C: UpstreamConfig + DeserializeOwned>(text: &str, expected: &str) {
    let error = upstream::<C>(text)
        .err()
        .unwrap_or_else(|| panic!("it is accepted:\n{text}"));
    assert!(error.contains(expected), "{error}");
}

/// Requirements: R10.
#[tokio::test]
async fn documented_probe_of_http_classifies_the_response() {
    let shop = HttpUpstream::open().await;
    let text = format!(
        "base_url = {:?}\n[effects.\"payments.charge\"]\npath = \"/charges\"\n\
         [effects.\"payments.charge\".probe]\n{}",
        shop.url,
        block("http.md", "probe]")
    );
    let upstream = upstream::<HttpConfig>(&text).unwrap();
    assert!(
        upstream
            .provider
            .can_probe(&EffectName::new("payments.charge").unwrap())
    );
    let item = request("payments.charge", json!({ "order": 1 }));
    let probe = async |status: u16, body: &str| {
        shop.script(status, &[("retry-after", "7")], body);
        upstream.provider.probe(&item, PROBE).await
    };
    let settled = probe(200, r#"{"state": "settled", "charge": {"receipt": "r-1"}}"#).await;
    assert_eq!(
        settled,
        ProbeResult::Done(Reply::from(json!({ "receipt": "r-1" })))
    );
    let declined = probe(
        200,
        r#"{"state": "declined", "error": {"code": "no_funds"}}"#,
    )
    .await;
    let ProbeResult::Failed(ProviderError::Permanent { failure, event, .. }) = declined else {
        panic!("{declined:?}")
    };
    assert_eq!(
        (failure.code.as_str(), event),
        ("no_funds", EventType::new("PaymentDeclined").ok())
    );
    assert_eq!(probe(404, "").await, ProbeResult::NotDone);
    for (status, body) in [(200, r#"{"state": "processing"}"#), (500, ""), (429, "")] {
        let unanswered = probe(status, body).await;
        let ProbeResult::Unanswered { retry_after, .. } = unanswered else {
            panic!("{unanswered:?}")
        };
        assert_eq!(retry_after, Some(Duration::from_secs(7)));
    }
    // Neither another success nor a rejection of the request tells anything about the effect.
    for status in [200, 204, 403] {
        assert_eq!(probe(status, "").await, ProbeResult::Unknown);
    }
    let received = &shop.received()[0];
    assert_eq!(
        (received.method.as_str(), received.header("idempotency-key")),
        ("GET", "")
    );
    assert_eq!(
        received.uri.to_string(),
        format!("/charges?key={}", item.id)
    );
    drop(shop);
}

#[tokio::test]
async fn unreachable_upstream_leaves_a_probe_unanswered() {
    let text = "base_url = \"http://127.0.0.1:9\"\n[effects.\"pay.charge\"]\npath = \"/c\"\n\
                [effects.\"pay.charge\".probe]\npath = \"/c\"\nresponses = [{ result = \"executed\" }]\n";
    let upstream = upstream::<HttpConfig>(text).unwrap();
    let result = upstream.provider.probe(&charge(json!({})), PROBE).await;
    assert!(
        matches!(&result, ProbeResult::Unanswered { failure, .. } if failure.code == "unreachable"),
        "{result:?}"
    );
}

#[test]
fn documented_probe_of_smtp_is_valid() {
    let text = format!(
        "host = \"smtp.example.com\"\nfrom = \"shop@example.com\"\n[effects.\"mail.receipt\"]\n[probe]\n{}",
        block("smtp.md", "[probe]")
    );
    let upstream = upstream::<SmtpConfig>(&text).unwrap();
    assert!(
        upstream
            .provider
            .can_probe(&EffectName::new("mail.receipt").unwrap())
    );
}

/// Requirements: R10.
#[test]
fn invalid_probe_is_rejected_with_its_location() {
    let http = |probe: &str| {
        format!(
            "base_url = \"http://h\"\n[effects.\"p.x\"]\npath = \"/x\"\n[effects.\"p.x\".probe]\n{probe}\n"
        )
    };
    let place = "upstream pay, effect p.x: probe: ";
    check_rejected::<HttpConfig>(
        &http("path = \"/x\""),
        &format!("{place}responses is missing; example: responses = ["),
    );
    check_rejected::<HttpConfig>(
        &http("responses = [{ result = \"executed\" }]"),
        &format!("{place}path or url is required"),
    );
    check_rejected::<HttpConfig>(
        &http("path = \"/x\"\nresponses = [{ result = \"succeeded\" }]"),
        "not_executed",
    );
    let rule = "path = \"/x\"\nresponses = [{ result = \"executed\", payload = \"charge\" }]";
    check_rejected::<HttpConfig>(
        &http(rule),
        &format!("{place}responses[0]: \"charge\" is not a valid JSON pointer"),
    );
    check_rejected::<HttpConfig>(&http("pfad = \"/x\""), "unknown field `pfad`");

    let grpc = "endpoint = \"http://h:1\"\nreflection = true\n[effects.\"p.x\"]\nmethod = \"a.B/C\"\n\
                [effects.\"p.x\".probe]\nmethod = \"a.B/Find\"\n";
    check_rejected::<GrpcConfig>(
        grpc,
        &format!("{place}responses is missing; example: responses = [{{ status = \"OK\""),
    );

    let smtp = block("smtp.md", "[probe]");
    let smtp = with(&smtp, "/messages?", "messages?");
    let smtp = format!("host = \"h\"\nfrom = \"a@b.c\"\n[effects.\"m.x\"]\n[probe]\n{smtp}");
    check_rejected::<SmtpConfig>(&smtp, "upstream pay: probe: invalid path \"messages?");
}

#[derive(Clone, Serialize, Deserialize)]
struct Seated {
    seat: u32,
}

impl Event for Seated {
    const TYPE: &'static str = "Seated";
}

/// Payload of the handler below: what its ledger contains.
#[derive(Clone, Serialize, Deserialize)]
struct Seat {
    ledger: Option<u32>,
    is_down: bool,
}

struct Seats;

impl Contract for Seats {
    const EFFECT: &'static str = "seats.reserve";
    type Command = Seat;
    type Ok = Seated;
    type Fail = NoFailure;
}

impl Handler for Seats {
    async fn handle(&self, _: &Context, _: Seat) -> Result<Seated, HandlerError<NoFailure>> {
        Ok(Seated { seat: 0 })
    }

    async fn probe(
        &self,
        context: &Context,
        seat: Seat,
    ) -> Result<ProbeOutcome<Seated, NoFailure>, TaskError> {
        assert_eq!(context.attempt(), 0);
        if seat.is_down {
            return Err(TaskError::retryable("the ledger is locked"));
        }
        let Some(seat) = seat.ledger else {
            return Ok(ProbeOutcome::NotExecuted);
        };
        context.emit(&Seated { seat })?;
        Ok(ProbeOutcome::Executed(Seated { seat }))
    }
}

/// Requirements: R10, T2.
#[tokio::test]
async fn handler_of_a_workflow_answers_probes_with_its_events() {
    let workflow = Workflow::builder("seating")
        .handle("reserve", Seats)
        .build()
        .unwrap();
    let provider = NodeParts::of([workflow.on_node()])
        .unwrap()
        .upstream
        .unwrap()
        .provider;
    assert!(provider.can_probe(&EffectName::new("seats.reserve").unwrap()));
    let probe = async |payload| {
        provider
            .probe(&request("seats.reserve", payload), PROBE)
            .await
    };
    let found = probe(json!({ "ledger": 7, "is_down": false })).await;
    let ProbeResult::Done(Reply {
        event,
        payload,
        schema_version: 1,
        facts,
    }) = found
    else {
        panic!("{found:?}")
    };
    assert_eq!(
        (event, payload),
        (EventType::new("Seated").ok(), json!({ "seat": 7 }))
    );
    assert_eq!(
        facts.len(),
        1,
        "facts of the lost result are published with it"
    );
    assert_eq!(
        probe(json!({ "ledger": null, "is_down": false })).await,
        ProbeResult::NotDone
    );
    let locked = probe(json!({ "ledger": 7, "is_down": true })).await;
    assert!(
        matches!(&locked, ProbeResult::Unanswered { failure, .. } if failure.message == "the ledger is locked"),
        "{locked:?}"
    );
    assert_eq!(probe(json!("no command")).await, ProbeResult::Unknown);
}
