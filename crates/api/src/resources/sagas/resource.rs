//! Built-in sagas as resources of the API: their instances are listed, shown and changed under
//! names of their own.
//!
//! [`Resource`] states what differs between two resources, `resource!` declares their routes. A new
//! resource is a table of routes, a view and its program.

use std::marker::PhantomData;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use orlog_model::{ControlAction, Instance, InstanceKey, TenantId};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::built_in::{self, ListQuery, ListedView};
use super::control::{ControlBody, ControlResponse, send_control};
use crate::server::body::CheckedBody;
use crate::server::context::{ApiState, RequestContext};
use crate::server::errors::invalid_parameter;
use crate::server::page::{BuiltPage, EncodedJson};
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::auth::Caller;
use orlog_node::url_path::path;

/// Resource with a path, which `resource!` declares.
pub(crate) trait NamedInPath {
    /// Parameter of the path that names an instance.
    const PARAMETER: &'static str;
}

/// Built-in saga as a resource.
pub(crate) trait Resource: NamedInPath + 'static {
    /// Code of the error that an instance does not exist.
    const NOT_FOUND: Code;
    /// View of an instance.
    type View: Serialize + Send + 'static;

    /// Returns the instance with a name or id.
    ///
    /// # Errors
    /// If the name or id is invalid.
    fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String>;

    /// Returns the detail of the error that an instance does not exist.
    fn missing(key: &InstanceKey) -> String;

    /// Returns the view of an instance; `None` if it does not exist for users.
    ///
    /// # Errors
    /// If its state cannot be read.
    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self::View>, Problem>;

    /// Checks a change beyond the right that its route requires, before its body is read.
    ///
    /// # Errors
    /// If the caller may not make it, or the instance does not exist for users.
    fn permit(
        changes: &Changes,
        key: &InstanceKey,
        verb: Verb,
    ) -> impl Future<Output = Result<(), Problem>> + Send {
        let _ = (changes, key, verb);
        std::future::ready(Ok(()))
    }
}

/// Kind of a change of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Cancels it.
    Cancel,
    /// Sends it the signal of this type.
    Signal(&'static str),
}

impl Verb {
    /// Returns the action of a control request; `data` is that of a signal.
    fn action(self, reason: &str, data: Value) -> ControlAction {
        match self {
            Self::Cancel => ControlAction::Cancel {
                reason: reason.to_owned(),
            },
            Self::Signal(kind) => built_in::signal(kind, data),
        }
    }
}

/// Resource whose list contains the instances of one saga.
pub(crate) trait ListedResource: Resource {
    /// Name of the saga.
    const SAGA: &'static str;
    /// View of an instance in a list.
    type Entry: ListedView;

    /// Returns the view of an instance in a list; `None` if it does not exist for users.
    ///
    /// # Errors
    /// If its state cannot be read.
    fn entry(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self::Entry>, Problem>;
}

/// Returns the instance with a name or id of a path.
pub(crate) fn key<R: Resource>(tenant: TenantId, id: &str) -> Result<InstanceKey, Problem> {
    R::key(tenant, id).map_err(|error| invalid_parameter(R::PARAMETER, error))
}

/// Returns the problem of an instance that does not exist.
pub(crate) fn missing<R: Resource>(key: &InstanceKey) -> Problem {
    Problem::new(R::NOT_FOUND, R::missing(key))
}

/// Returns a page of instances, encoded as `response` arranges it.
pub(crate) async fn list<R: ListedResource, P: Serialize + 'static>(
    api: &RequestContext,
    tenant: TenantId,
    query: ListQuery,
    response: fn(BuiltPage<R::Entry>) -> P,
) -> Result<EncodedJson, Problem> {
    built_in::list(api, tenant, R::SAGA, query, R::entry, response).await
}

/// Returns the view of an instance.
pub(crate) async fn show<R: Resource>(
    api: &RequestContext,
    key: InstanceKey,
) -> Result<Json<R::View>, Problem> {
    let view = built_in::show(api, key, missing::<R>, R::view);
    view.await.map(Json)
}

/// Changes of instances in the name of the caller of a request.
pub(crate) struct Changes {
    pub(crate) instances: Instances,
    pub(crate) access: Access,
    pub(crate) caller: Caller,
}

impl FromRequestParts<ApiState> for Changes {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Response> {
        let Ok(instances) = Instances::from_request_parts(parts, api).await;
        let caller = Extension::<Caller>::from_request_parts(parts, api).await;
        let Extension(caller) = caller.map_err(IntoResponse::into_response)?;
        Ok(Self {
            instances,
            access: Access::from_ref(api),
            caller,
        })
    }
}

impl Changes {
    /// Checks that the caller may change an instance.
    ///
    /// # Errors
    /// Those of [`Resource::permit`].
    pub(crate) async fn permit<R: Resource>(
        &self,
        key: InstanceKey,
        verb: Verb,
    ) -> Result<PermittedChange<'_, R>, Problem> {
        R::permit(self, &key, verb).await?;
        Ok(PermittedChange {
            changes: self,
            key,
            verb,
            resource: PhantomData,
        })
    }

    /// Makes a change with the options of a body, and returns the instance after its commit.
    pub(crate) async fn apply<R: Resource>(
        &self,
        key: InstanceKey,
        verb: Verb,
        data: Value,
        body: &CheckedBody,
    ) -> Result<Changed<R::View>, Problem> {
        let change = self.permit::<R>(key, verb).await?;
        change.show(body.optional()?, data).await
    }
}

/// Change of an instance that its caller may make.
pub(crate) struct PermittedChange<'a, R> {
    changes: &'a Changes,
    key: InstanceKey,
    verb: Verb,
    resource: PhantomData<R>,
}

impl<R: Resource> PermittedChange<'_, R> {
    /// Makes the change, and returns the instance after its commit.
    pub(crate) async fn show(
        self,
        options: ControlBody,
        data: Value,
    ) -> Result<Changed<R::View>, Problem> {
        let request = &self.changes.instances.request;
        let key = self.key.clone();
        let deferral = self.send(options, data).await?;
        let Json(view) = show::<R>(request, key).await?;

        Ok(Changed { view, deferral })
    }

    /// Makes the change; returns after its commit.
    pub(crate) async fn send(self, options: ControlBody, data: Value) -> Result<Deferral, Problem> {
        let Changes {
            instances, caller, ..
        } = self.changes;
        let action = self.verb.action(options.reason(), data);

        match send_control(instances, caller, &self.key, options, action).await {
            Ok(Json(response)) => Ok(Deferral::of(&self.key, &response)),
            // A missing instance is a missing resource for the caller, with a code of its own.
            Err(problem) if problem.code() == Code::InstanceNotFound => {
                Err(missing::<R>(&self.key))
            }
            Err(problem) => Err(problem),
        }
    }
}

/// Whether a change waits: a paused instance stores its inputs, and applies them when it is resumed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Deferral {
    /// When the change is applied; absent if it is applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    deferred: Option<String>,
}

impl Deferral {
    fn of(key: &InstanceKey, response: &ControlResponse) -> Self {
        let InstanceKey {
            saga, correlation, ..
        } = key;
        let deferred = response.is_deferred().then(|| {
            let path = path(&["v1", "sagas", saga.as_str(), correlation.as_str(), "resume"]);
            format!(
                "accepted; applied on resume: the instance {saga} {correlation} is paused (POST \
                 {path})"
            )
        });
        Self { deferred }
    }

    /// Returns the status of the response to a change whose status is `applied` if it is applied.
    pub(crate) fn status(&self, applied: StatusCode) -> StatusCode {
        if self.deferred.is_some() {
            StatusCode::ACCEPTED
        } else {
            applied
        }
    }
}

/// View of an instance after a change.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Changed<V> {
    #[serde(flatten)]
    view: V,
    #[serde(flatten)]
    deferral: Deferral,
}

impl<V: Serialize> IntoResponse for Changed<V> {
    fn into_response(self) -> Response {
        (self.deferral.status(StatusCode::OK), Json(self)).into_response()
    }
}

/// Declares the routes of a [`Resource`], with their documentation: its path, then the list, the
/// view of one instance and the changes, of which any can be left out.
macro_rules! resource {
    (
        $resource:ty, $tag:literal, $path:ident { $parameter:ident: $parameter_doc:literal }
        $(list $list_path:literal -> $page:ident { $(#[doc = $list_doc:literal])+ })?
        $(show $show_path:literal -> $shown:ident, $shown_doc:literal {
            $(#[doc = $show_doc:literal])+
        })?
        $(change $verb:ident $verb_path:literal -> $changed:ident = $kind:expr, {
            $(#[doc = $verb_doc:literal])+
        })*
    ) => {
        #[derive(serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Path)]
        pub(crate) struct $path {
            #[doc = $parameter_doc]
            $parameter: String,
        }

        impl $crate::resources::sagas::resource::NamedInPath for $resource {
            const PARAMETER: &'static str = stringify!($parameter);
        }

        $(
            $(#[doc = $list_doc])+
            #[utoipa::path(
                get,
                path = $list_path,
                tag = $tag,
                params($crate::resources::sagas::built_in::ListQuery),
                responses((status = 200, description = "A page", body = $page))
            )]
            pub(crate) async fn list(
                api: $crate::server::context::RequestContext,
                $crate::server::extract::Tenant(tenant): $crate::server::extract::Tenant,
                $crate::server::extract::QueryParams(query): $crate::server::extract::QueryParams<
                    $crate::resources::sagas::built_in::ListQuery,
                >,
            ) -> Result<$crate::server::page::EncodedJson, $crate::server::problem::Problem> {
                $crate::resources::sagas::resource::list::<$resource, _>(
                    &api, tenant, query, $page::of,
                )
                .await
            }
        )?

        $(
            $(#[doc = $show_doc])+
            #[utoipa::path(
                get,
                path = $show_path,
                tag = $tag,
                params($path),
                responses((status = 200, description = $shown_doc, body = $shown))
            )]
            pub(crate) async fn show(
                api: $crate::server::context::RequestContext,
                $crate::server::extract::Tenant(tenant): $crate::server::extract::Tenant,
                $crate::server::extract::PathParams(path):
                    $crate::server::extract::PathParams<$path>,
            ) -> Result<axum::Json<$shown>, $crate::server::problem::Problem> {
                use $crate::resources::sagas::resource;
                let key = resource::key::<$resource>(tenant, &path.$parameter)?;
                resource::show::<$resource>(&api, key).await
            }
        )?

        $(
            $(#[doc = $verb_doc])+
            #[utoipa::path(
                post,
                path = $verb_path,
                tag = $tag,
                params($path),
                request_body(content = Option<$crate::resources::sagas::control::ControlBody>),
                responses(
                    (status = 200, description = "Durable", body = $changed),
                    (
                        status = 202,
                        description = "Durable; applied when the paused instance is resumed",
                        body = $crate::resources::sagas::resource::Changed<$changed>
                    )
                )
            )]
            pub(crate) async fn $verb(
                changes: $crate::resources::sagas::resource::Changes,
                $crate::server::extract::Tenant(tenant): $crate::server::extract::Tenant,
                $crate::server::extract::PathParams(path):
                    $crate::server::extract::PathParams<$path>,
                body: $crate::server::body::CheckedBody,
            ) -> Result<
                $crate::resources::sagas::resource::Changed<$changed>,
                $crate::server::problem::Problem,
            > {
                use $crate::resources::sagas::resource;
                let key = resource::key::<$resource>(tenant, &path.$parameter)?;
                changes
                    .apply::<$resource>(key, $kind, serde_json::Value::Null, &body)
                    .await
            }
        )*
    };
}
pub(crate) use resource;
