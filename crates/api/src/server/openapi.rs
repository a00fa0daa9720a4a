//! General parts of the API description: info, tenant header and errors.

use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::extensions::{Extensions, ExtensionsBuilder};
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{Object, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required,
    Response, ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::extract::TENANT_HEADER;
use super::permissions::{self, Permission};
use super::problem::{Problem, ProblemDetail};
use super::query_parameters::operations;
use orlog_node::auth::Right;

const DESCRIPTION: &str = "Durable saga runner: publish events, inspect and control instances. \
                           Every error is a \
    problem (RFC 9457) with a code; its `type` is the URL of its page.";

/// Paths without a tenant under `/v1`: actors and peers belong to the node.
const NODE_PATHS: [&str; 3] = ["/v1/actors", "/v1/node-documents", "/v1/peers"];

/// Name of the error response of every operation.
const PROBLEM: &str = "Problem";

/// Returns title, version and license.
pub(crate) fn head() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Orlog")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").build()))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// Adds the common parts to every operation.
pub(crate) fn finish(description: &mut OpenApi) {
    for (path, item) in &mut description.paths.paths {
        for (method, operation) in operations(item) {
            let permission = permissions::required_permission(method, path, &[]);
            operation.extensions = Some(permission_extensions(permission));
            name_operation(operation);
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                reject_null(body);
            }

            let problem = RefOr::Ref(Ref::from_response_name(PROBLEM));
            operation
                .responses
                .responses
                .insert("default".to_owned(), problem);

            // A route of a context has its tenant in the path, and needs no header.
            if path.starts_with("/v1/")
                && matches!(permission, Permission::Tenant(_) | Permission::Node(_))
                && !NODE_PATHS.iter().any(|start| path.starts_with(start))
            {
                add_tenant(operation);
            }
        }
    }

    let components = description
        .components
        .get_or_insert_with(|| ComponentsBuilder::new().build());
    components
        .schemas
        .insert(Problem::name().into_owned(), Problem::schema());
    components
        .schemas
        .insert(ProblemDetail::name().into_owned(), ProblemDetail::schema());
    components
        .responses
        .insert(PROBLEM.to_owned(), RefOr::T(problem()));

    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("bearer", bearer);
    // No authentication, or a token: the configuration decides.
    let any = [
        SecurityRequirement::default(),
        SecurityRequirement::new("bearer", Vec::<String>::new()),
    ];
    description.security = Some(any.into());
}

/// Prefixes the id of an operation, which is the name of its function, with its tag: ids are
/// unique.
fn name_operation(operation: &mut Operation) {
    if let (Some(tag), Some(id)) = (
        operation.tags.iter().flatten().next(),
        &mut operation.operation_id,
    ) {
        *id = format!("{}_{id}", tag.replace(' ', "_"));
    }
}

/// Describes an optional body as one that can be omitted: `null` is no object.
fn reject_null(body: &mut RequestBody) {
    for content in body.content.values_mut() {
        let RefOr::T(content) = content else { continue };
        let Some(RefOr::T(Schema::OneOf(choice))) = &content.schema else {
            continue;
        };

        let has_null = choice.items.iter().any(is_null);
        let objects: Vec<_> = choice.items.iter().filter(|item| !is_null(item)).collect();
        // The crate utoipa describes an optional body as a choice of an object and null.
        if let [object] = objects.as_slice()
            && has_null
        {
            content.schema = Some((*object).clone());
            body.required = Some(Required::False);
        }
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => object.schema_type == Type::Null.into(),
        _ => false,
    }
}

/// Returns the required right and the scope of an operation: `public`, `authenticated`, `tenant` or
/// `node`.
fn permission_extensions(permission: Permission) -> Extensions {
    let (scope, right) = match permission {
        Permission::Public => ("public", None),
        Permission::Authenticated => ("authenticated", None),
        Permission::Tenant(right) => ("tenant", Some(right.as_str())),
        Permission::Context(right) => ("context", Some(right.as_str())),
        Permission::Actor => ("actor", Some(Right::Admin.as_str())),
        Permission::Peer => ("peer", None),
        Permission::Node(right) => ("node", Some(right.as_str())),
    };
    ExtensionsBuilder::new()
        .add("x-orlog-scope", scope)
        .add("x-orlog-right", right)
        .build()
}

fn add_tenant(operation: &mut Operation) {
    let tenant = ParameterBuilder::new()
        .name(TENANT_HEADER)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Tenant of the request; the default tenant if omitted"))
        .schema(Some(Object::with_type(Type::String)))
        .build();
    operation
        .parameters
        .get_or_insert_default()
        .push(RefOr::T(tenant));
}

fn problem() -> Response {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(PROBLEM)))
        .build();
    ResponseBuilder::new()
        .description("An error")
        .content("application/problem+json", content)
        .build()
}
