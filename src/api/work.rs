//! `/v1/work`: what workers outside the process take and bring. The protocol stands in `docs/workers.md`.

pub(super) mod list;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use orlog_effect::worker::{Answer as BroughtAnswer, Ask, Board, Brought, Claimed, Lost, Terms};
use orlog_effect::{Refusal, Reply};
use orlog_model::{EffectName, EventType, Fact, TenantId, TraceParent, Work};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body;
use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Part, Tenant};
use super::problem::{Code, Problem};

/// The longest that a request for work waits, in seconds; below what proxies commonly allow.
const LONGEST_WAIT: u64 = 25;

/// The most jobs that one claim takes.
const MOST: usize = 100;

/// The most lines that one request brings.
const MOST_LINES: usize = 1000;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    /// What it can do: effects of one upstream.
    #[schema(value_type = Vec<String>)]
    effects: Vec<EffectName>,
    /// Its name, for people.
    worker: String,
    /// Jobs at most; what the upstream says where absent.
    max: Option<usize>,
    /// How long the request waits for work, in seconds; 25 at most, and where absent.
    wait_seconds: Option<u64>,
}

/// Jobs that the worker has now; none when there was no work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Jobs {
    jobs: Vec<Job>,
}

/// A job in the worker's hands.
#[derive(Debug, Serialize, ToSchema)]
struct Job {
    /// Names the job, and is the idempotency key of the effect.
    #[serde(rename = "job")]
    #[schema(value_type = String)]
    id: Uuid,
    /// Names this claim; goes with everything that is said about the job.
    #[schema(value_type = String)]
    claim: Uuid,
    /// Which claim of the job it is, from 1.
    number: u32,
    /// When the claim expires unless a heartbeat extends it.
    expires_at: String,
    /// The whole effect has to be done by then.
    deadline: Option<String>,
    effect: String,
    payload: Value,
    saga: String,
    correlation: String,
    traceparent: Option<String>,
}

/// The worker lives.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Heartbeat {
    #[schema(value_type = String)]
    claim: Uuid,
}

/// Until when the claim holds now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Extended {
    expires_at: String,
}

/// What the worker has to say.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Lines {
    #[schema(value_type = String)]
    claim: Uuid,
    lines: Vec<String>,
}

/// What became of the job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Outcome {
    #[schema(value_type = String)]
    claim: Uuid,
    result: Ending,
    /// The answer.
    #[serde(default)]
    payload: Value,
    /// The event that the saga hears.
    #[schema(value_type = Option<String>)]
    event: Option<EventType>,
    /// What there is to tell everybody besides: facts that go out whatever the saga makes of the answer.
    #[serde(default)]
    facts: Vec<Told>,
    /// Of a failure.
    code: Option<String>,
    /// Of a failure.
    message: Option<String>,
    /// Before another attempt.
    retry_after_seconds: Option<u64>,
    /// The W3C trace context of the span in which the worker did it.
    traceparent: Option<String>,
}

/// A fact.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Told {
    /// Its event type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// How the job ended.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Ending {
    /// It was done.
    Succeeded,
    /// It was refused for good.
    Failed,
    /// It was not done; another attempt may help.
    Retry,
}

/// Whether the result counts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Taken {
    /// The same claim has brought one before, and that one counts.
    duplicate: bool,
}

/// Take work
///
/// Waits until there is some.
#[utoipa::path(
    post,
    path = "/v1/work/claim",
    tag = "work",
    request_body = Claim,
    responses((status = 200, description = "The jobs that are the worker's now", body = Jobs))
)]
pub(super) async fn claim(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Jobs>, Problem> {
    let asked: Claim = read(&api, &headers, body).await?;
    if asked.worker.is_empty() || asked.worker.chars().count() > 200 {
        return Err(bad_parameter("worker", "a worker has a name of 1 to 200 characters"));
    }
    let ask = Ask { tenant: tenant.clone(), effects: asked.effects, worker: asked.worker };
    let Some((board, terms)) = board_for(&api, &ask.effects, &tenant) else {
        return Err(bad_parameter("effects", "no single upstream of the kind worker performs these"));
    };
    let most = asked.max.unwrap_or(terms.batch).clamp(1, MOST);
    let clock = api.app.clock.as_ref();
    let patience = Duration::from_secs(asked.wait_seconds.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT));
    let claimed = tokio::select! {
        biased;
        claimed = board.claim(clock, &ask, most, terms, clock.now().after(patience)) => claimed,
        // The process ends, and would wait for this answer.
        () = api.app.drained() => Vec::new(),
    };
    Ok(Json(Jobs { jobs: claimed.into_iter().map(job).collect() }))
}

/// Keep a claim
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/heartbeat",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = Heartbeat,
    responses((status = 200, description = "The claim holds longer", body = Extended))
)]
pub(super) async fn heartbeat(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(job): Part,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Extended>, Problem> {
    let (job, said) = (id(&job)?, read::<Heartbeat>(&api, &headers, body).await?);
    let now = api.app.clock.now();
    let until = on_boards(&api, |board, terms| {
        board.heartbeat(&tenant, job, said.claim, now.after(terms.heartbeat))
    })?;
    Ok(Json(Extended { expires_at: until.to_string() }))
}

/// Tell how far it is
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/lines",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = Lines,
    responses((status = 204, description = "They are kept for a while longer than the job"))
)]
pub(super) async fn lines(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(job): Part,
    headers: HeaderMap,
    body: Body,
) -> Result<axum::http::StatusCode, Problem> {
    let (job, said) = (id(&job)?, read::<Lines>(&api, &headers, body).await?);
    if said.lines.len() > MOST_LINES {
        return Err(bad_parameter("lines", format!("at most {MOST_LINES} lines at once")));
    }
    let now = api.app.clock.now();
    on_boards(&api, |board, _| board.write(&tenant, job, said.claim, &said.lines, now))?;
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Bring the result
#[utoipa::path(
    post,
    path = "/v1/work/jobs/{job}/result",
    tag = "work",
    params(("job" = String, Path, description = "The job")),
    request_body = Outcome,
    responses((status = 200, description = "The job is over", body = Taken))
)]
pub(super) async fn result(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(job): Part,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Taken>, Problem> {
    let (job, said) = (id(&job)?, read::<Outcome>(&api, &headers, body).await?);
    let claim = said.claim;
    let trace = said.traceparent.as_deref().and_then(TraceParent::new);
    let result = BroughtAnswer { result: answer(said), trace };
    let brought = on_boards(&api, |board, _| board.bring(&tenant, job, claim, result.clone()))?;
    Ok(Json(Taken { duplicate: brought == Brought::Duplicate }))
}

fn job(claimed: Claimed) -> Job {
    let Claimed { item, claim, number, until } = claimed;
    let effect = item.work.label();
    let payload = match item.work {
        Work::Effect(effect) => effect.payload,
        Work::Command(_) | Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => Value::Null,
    };
    Job {
        id: item.id,
        claim,
        number,
        expires_at: until.to_string(),
        deadline: item.deadline.map(|deadline| deadline.to_string()),
        effect,
        payload,
        saga: item.instance.saga.to_string(),
        correlation: item.instance.correlation.to_string(),
        traceparent: item.trace.map(|trace| trace.as_str().to_owned()),
    }
}

fn answer(said: Outcome) -> Result<Reply, Refusal> {
    let code = said.code.unwrap_or_else(|| "worker_failed".to_owned());
    let message = said.message.unwrap_or_else(|| "the worker gave no message".to_owned());
    let facts: Vec<_> =
        said.facts.into_iter().map(|told| Fact { kind: told.kind, data: told.data }).collect();
    let refusal = match (said.result, said.event) {
        (Ending::Succeeded, event) => return Ok(Reply { event, payload: said.payload, facts }),
        (Ending::Failed, Some(event)) => Refusal::declined(event, code, message),
        (Ending::Failed, None) => Refusal::failed(code, message),
        (Ending::Retry, _) => Refusal::retry(code, message),
    };
    let refusal = refusal.with_payload(said.payload).telling(facts);
    Err(match said.retry_after_seconds {
        Some(seconds) => refusal.after(Duration::from_secs(seconds)),
        None => refusal,
    })
}

/// The board of the upstream that performs these effects for the tenant.
fn board_for(api: &Api, effects: &[EffectName], tenant: &TenantId) -> Option<(Arc<Board>, Terms)> {
    let mut boards = api.app.catalog.boards().into_iter();
    boards.find_map(|(board, terms, performer)| {
        let upstream = performer.upstream();
        let serves = upstream.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
            && upstream.performs_all(effects);
        serves.then_some((board, terms))
    })
}

/// Does it on the board where the job hangs.
fn on_boards<T>(api: &Api, act: impl Fn(&Board, Terms) -> Result<T, Lost>) -> Result<T, Problem> {
    let mut boards = api.app.catalog.boards().into_iter();
    let done = boards.find_map(|(board, terms, _)| act(&board, terms).ok());
    done.ok_or_else(|| Problem::new(Code::ClaimLost, Lost.to_string()))
}

fn id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_| bad_parameter("job", format!("{text:?} is no id of a job")))
}

async fn read<T: DeserializeOwned>(api: &Api, headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    let limit = api.app.config.http.max_body_size;
    body::parse(&body::read(headers, body, limit, api.app.config.http.request_timeout).await?)
}
