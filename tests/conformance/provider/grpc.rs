//! gRPC provider, with descriptors from a file and by reflection, against a real server.

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::grpc::GrpcConfig;
use orlog_model::EffectName;
use orlog_testkit::grpc_server::{
    GrpcServerBuilder, Handler, ReceivedCall, Reflection, descriptors,
};
use orlog_testkit::provider_suite::{
    ProbeResponse, ProviderFixture, UpstreamResponse, UpstreamScript,
};
use orlog_testkit::{probe_suite, provider_suite};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Status};

const PROTO: &str = include_str!("../../protos/payments.proto");

/// Returns a `google.rpc.Status` with a `google.rpc.RetryInfo`.
fn throttled_status(pause: Duration) -> Status {
    let delay = prost_types::Duration::try_from(pause)
        .expect("it is short")
        .encode_to_vec();
    let nested = |tag: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).expect("it is short");
        [&[tag << 3 | 2, length], bytes].concat()
    };
    let info = prost_types::Any {
        type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
        value: nested(1, &delay),
    };
    let details = nested(3, &info.encode_to_vec());
    Status::with_details(Code::ResourceExhausted, "later, please", details.into())
}

async fn charge(script: Arc<UpstreamScript>, called: ReceivedCall) -> Result<Value, Status> {
    let header = |name: &str| {
        called
            .metadata
            .get(name)
            .map_or("", |value| value.to_str().expect("ASCII"))
    };
    let order = header("x-correlation-id");
    assert_eq!(header("x-tenant-id"), "acme");
    let key = header("idempotency-key");
    if called.method == "FindCharge" {
        assert_eq!(
            key, "",
            "the upstream would replay the response of the attempt"
        );
        let key = called.message["meta"]["requestId"].as_str().expect("a key");
        return match script.probe(key) {
            ProbeResponse::Executed(charge) => Ok(charge),
            ProbeResponse::NotExecuted => Err(Status::not_found("no such charge")),
            ProbeResponse::Unavailable => Err(Status::unavailable("the disk is full")),
        };
    }
    let meta = json!({ "requestId": key });
    assert_eq!(
        called.message,
        json!({ "order": { "id": order }, "amount": "125", "meta": meta })
    );
    match script.next_response(key) {
        UpstreamResponse::Done(payload) => Ok(payload),
        UpstreamResponse::Rejected => Err(Status::failed_precondition("the card was declined")),
        UpstreamResponse::Throttled(Some(pause)) => Err(throttled_status(pause)),
        UpstreamResponse::Throttled(None) => Err(Status::resource_exhausted("later, please")),
        UpstreamResponse::Unavailable => Err(Status::unavailable("the disk is full")),
        UpstreamResponse::NoResponse | UpstreamResponse::DoneWithoutResponse(_) => {
            script.silence().await;
            unreachable!("silence never ends")
        }
    }
}

async fn fixture(reflection: Reflection, probes: bool) -> ProviderFixture {
    let script = Arc::new(UpstreamScript::default());
    let upstream = Arc::clone(&script);
    let handler: Handler = Arc::new(move |called| Box::pin(charge(Arc::clone(&upstream), called)));
    let server = GrpcServerBuilder::new(PROTO, reflection)
        .start(handler)
        .await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut method =
        json!({ "method": "payments.v1.Payments/Charge", "key_field": "meta.request_id" });
    if probes {
        method["probe"] = json!({
            "method": "payments.v1.Payments/FindCharge",
            "key_field": "meta.request_id",
            "responses": [
                { "status": "OK", "result": "executed" },
                { "status": "NOT_FOUND", "result": "not_executed" },
            ],
        });
    }
    let mut config =
        json!({ "endpoint": server.endpoint(), "effects": { "payments.charge": method } });
    if reflection == Reflection::No {
        std::fs::write(dir.path().join("payments.pb"), descriptors(PROTO))
            .expect("the directory is writable");
        config["descriptors"] = json!("payments.pb");
    } else {
        config["reflection"] = json!(true);
    }
    let config: GrpcConfig = serde_json::from_value(config).expect("valid");
    let upstream = config
        .upstream(UpstreamSite::new("payments").in_dir(dir.path()))
        .expect("valid");
    ProviderFixture {
        provider: upstream.provider,
        effect: EffectName::new("payments.charge").expect("valid"),
        script,
    }
}

mod from_a_file {
    use super::*;
    provider_suite!(fixture(Reflection::No, false));

    mod with_probe {
        use super::*;
        probe_suite!(fixture(Reflection::No, true));
    }
}

mod by_reflection {
    use super::*;
    provider_suite!(fixture(Reflection::V1, false));
}

mod by_reflection_of_an_older_server {
    use super::*;
    provider_suite!(fixture(Reflection::V1Alpha, false));

    mod with_probe {
        use super::*;
        probe_suite!(fixture(Reflection::V1Alpha, true));
    }
}
