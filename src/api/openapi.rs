//! What the description of the API says beside what the handlers say: the head, the tenant, the errors.

use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

use super::extract::TENANT_HEADER;
use super::problem::{Place, Problem};

const DESCRIPTION: &str = "Durable sagas: publish events, look at instances, tell them what to do. Every error is a \
    problem (RFC 9457) with a code; its `type` leads to a page about it.";

/// The response that every operation may answer with.
const PROBLEM: &str = "Problem";

/// Title, version, licence.
pub(super) fn head() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Orlog")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").build()))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// Adds to every operation what holds for all of them.
pub(super) fn finish(description: &mut OpenApi) {
    for (path, item) in &mut description.paths.paths {
        for operation in operations(item) {
            let problem = RefOr::Ref(Ref::from_response_name(PROBLEM));
            operation.responses.responses.insert("default".to_owned(), problem);
            if path.starts_with("/v1/") {
                add_tenant(operation);
            }
        }
    }
    let components = description.components.get_or_insert_with(|| ComponentsBuilder::new().build());
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    components.schemas.insert(Place::name().into_owned(), Place::schema());
    components.responses.insert(PROBLEM.to_owned(), RefOr::T(problem()));
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("bearer", bearer);
    // Nothing, or a token: which of them is a matter of the configuration.
    let any = [SecurityRequirement::default(), SecurityRequirement::new("bearer", Vec::<String>::new())];
    description.security = Some(any.into());
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().filter_map(Option::as_mut)
}

fn add_tenant(operation: &mut Operation) {
    let tenant = ParameterBuilder::new()
        .name(TENANT_HEADER)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Whose request it is; the default tenant where it is absent"))
        .schema(Some(Object::with_type(Type::String)))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(tenant));
}

fn problem() -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(PROBLEM))).build();
    ResponseBuilder::new().description("An error").content("application/problem+json", content).build()
}
