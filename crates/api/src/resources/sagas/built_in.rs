//! Instances of built-in sagas as resources: lists, reads, and the signals that change them.

use axum::http::{HeaderMap, HeaderValue};
use orlog_model::{ControlAction, EventType, Instance, InstanceKey, SagaName, TenantId};
use orlog_store::InstanceQuery;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use super::request_key::IDEMPOTENCY_KEY;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::page_limits;
use crate::server::page::{BuiltPage, EncodedJson, PageBuilder};
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::sagas::instance_pages::{find, parse_cursor};

/// Page of a list, ordered by name or id.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Filter by prefix of the name or id.
    prefix: Option<String>,
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Status of an instance whose state cannot be read.
pub(crate) const UNREADABLE: &str = "unreadable";

/// View of an instance in a list.
pub(crate) trait ListedView: Serialize + 'static {
    /// Returns the entry of an instance whose state cannot be read: its status is [`UNREADABLE`].
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self;
}

/// Returns a page of views, encoded as `response` arranges it. An instance without a view is
/// omitted; one whose state cannot be read has an entry with the error.
pub(crate) async fn list<V, P, F>(
    api: &RequestContext,
    tenant: TenantId,
    saga: &'static str,
    params: ListQuery,
    view: F,
    response: fn(BuiltPage<V>) -> P,
) -> Result<EncodedJson, Problem>
where
    V: ListedView,
    P: Serialize + 'static,
    F: Fn(&ReadScope, &InstanceKey, &Instance) -> Result<Option<V>, Problem> + Send + 'static,
{
    let (shard, cursor) = parse_cursor(params.cursor.as_deref())?;
    let limits = page_limits(params.limit, api);
    let query = InstanceQuery {
        tenant,
        saga: Some(SagaName::new(saga).expect("the name is short")),
        prefix: params.prefix,
        cursor,
        limit: limits.entries,
        scan_limit: api.http().scan_limit,
        ..InstanceQuery::default()
    };

    api.read_json(move |scope| {
        let found = find(scope.stores(), query, shard)?;
        let mut page = PageBuilder::new(limits);
        for located in &found.items {
            let key = &located.found.key;
            let instance = &located.found.instance;
            let view = view(scope, key, instance)
                .or_else(|problem| or_unreadable(key, instance, problem))?;
            if let Some(view) = view
                && !page.push(view, located.cursor())
            {
                break;
            }
        }

        Ok(response(page.finish(found.next)))
    })
    .await
}

/// Returns the entry of an instance whose state cannot be read, so that it does not hide the
/// others.
///
/// # Errors
/// If the instance is not the cause of the problem.
fn or_unreadable<V: ListedView>(
    key: &InstanceKey,
    instance: &Instance,
    problem: Problem,
) -> Result<Option<V>, Problem> {
    if problem.code() != Code::StoreError {
        return Err(problem);
    }
    let error = problem.detail().to_owned();
    Ok(Some(V::unreadable(key, instance, error)))
}

/// Returns the view of one instance; `missing` creates the problem if there is none.
pub(crate) async fn show<V, F>(
    api: &RequestContext,
    key: InstanceKey,
    missing: fn(&InstanceKey) -> Problem,
    view: F,
) -> Result<V, Problem>
where
    V: Send + 'static,
    F: Fn(&ReadScope, &InstanceKey, &Instance) -> Result<Option<V>, Problem> + Send + 'static,
{
    let view = api.read(move |scope| {
        // The shard was here when the request arrived.
        let reader = scope.reader(&key).ok_or_else(Problem::moving)?;
        let instance = reader.instance(&key)?.ok_or_else(|| missing(&key))?;
        view(scope, &key, &instance)?.ok_or_else(|| missing(&key))
    });
    view.await
}

/// Returns the signal that changes an instance.
pub(crate) fn signal(kind: &str, data: Value) -> ControlAction {
    ControlAction::Signal {
        kind: EventType::new(kind).expect("the name is short"),
        data,
        due_at: None,
    }
}

/// Returns the key of a new instance: its id is the idempotency key of the request. A new id
/// becomes the idempotency key, so that another pod uses it, too.
///
/// # Errors
/// If the id is invalid, or the body states another id than the header.
pub(crate) fn identified(
    stated: Option<String>,
    headers: &mut HeaderMap,
    key: impl Fn(&str) -> Result<InstanceKey, String>,
) -> Result<InstanceKey, Problem> {
    let invalid =
        |reason: String| invalid_parameter(IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {reason}"));
    let header = headers.get(IDEMPOTENCY_KEY).map(|value| value.to_str());
    let header = header
        .transpose()
        .map_err(|_| invalid("the header is not printable ASCII".to_owned()))?;
    // The header may repeat the id of the body; two different ids would name two instances.
    let id = match (stated, header) {
        (Some(stated), Some(header)) if stated != header => {
            return Err(invalid(format!(
                "the header is {header:?}, and the id in the body is {stated:?}; send one"
            )));
        }
        // The owner of the shard finds the id in the body again, so that the headers stay
        // unchanged.
        (Some(stated), _) => return key(&stated).map_err(|error| invalid_parameter("id", error)),
        (None, Some(header)) => header.to_owned(),
        (None, None) => Uuid::now_v7().to_string(),
    };

    let key = key(&id).map_err(invalid)?;
    headers.insert(
        IDEMPOTENCY_KEY,
        HeaderValue::from_str(&id).expect("a header or a UUID is a valid header"),
    );
    Ok(key)
}

#[cfg(test)]
pub(crate) mod tests {
    use orlog_model::{CorrelationId, DefinitionRef, EventId, Status, Timestamp};

    use super::*;

    #[derive(Debug, PartialEq, Serialize)]
    struct Entry(String);

    impl ListedView for Entry {
        fn unreadable(key: &InstanceKey, _: &Instance, error: String) -> Self {
            Self(format!("{}: {error}", key.correlation))
        }
    }

    /// Returns a running instance with an empty state.
    pub(crate) fn instance(saga: &SagaName) -> Instance {
        Instance {
            definition: DefinitionRef {
                saga: saga.clone(),
                version: 1,
                hash: [1; 16],
            },
            version: 1,
            status: Status::Running,
            paused: false,
            state: Vec::new(),
            waits: Vec::new(),
            timers: Vec::new(),
            pending_work: Vec::new(),
            reference: None,
            last_input: EventId::new("e-1").unwrap(),
            last_error: None,
            node: "node".into(),
            trace: None,
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
            tasks: Vec::new(),
            parent: None,
            run_id: Uuid::nil(),
            users: None,
            result: None,
        }
    }

    #[test]
    fn unreadable_instance_has_an_entry_and_another_problem_fails_the_list() {
        let key = InstanceKey {
            tenant: TenantId::default(),
            saga: SagaName::new("orlog-schedule").unwrap(),
            correlation: CorrelationId::new("nightly").unwrap(),
        };
        let instance = instance(&key.saga);
        let unreadable = Problem::new(Code::StoreError, "unknown format");
        let entry = or_unreadable(&key, &instance, unreadable).unwrap();
        assert_eq!(entry, Some(Entry("nightly: unknown format".to_owned())));

        let moving = or_unreadable::<Entry>(&key, &instance, Problem::moving());
        assert_eq!(moving.unwrap_err().code(), Code::Unavailable);
    }
}
