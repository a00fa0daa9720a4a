//! Permissions of all routes: docs/permissions.md lists them, and a node enforces the page.

use std::collections::BTreeMap;
use std::path::PathBuf;

use orlog::auth::{Right, Role};
use serde_json::{Value, json};

use crate::operations::issuer::{Jwks, Key};
use crate::operations::node::Node;

/// Environment variable that makes the test write the page.
const WRITE: &str = "ORLOG_WRITE_DOCS";
/// Lists of a context, and the roles that they grant.
const LISTS: [(&str, Role); 3] = [
    ("admins", Role::Admin),
    ("readers", Role::Viewer),
    ("executors", Role::Worker),
];

const COMMAND: &str = "ORLOG_WRITE_DOCS=1 cargo test --test node permissions_page";

const HEAD: &str = "# Permissions

Rights of each role, and the right that each route requires. A test generates this page from the OpenAPI document of a node, and another
one sends a request for each route, role and tenant. [authentication.md](authentication.md) describes the roles.

A caller with several roles has the rights of each of them.

In a [context](authentication.md#contexts), the lists grant roles for its tenant: `admins` have the role `admin`, `readers` have `viewer`,
`executors` have `worker`. The last columns of the routes show what each list permits.

## Rights

";
const ROUTES: &str = "
## Routes

- `public`: the route requires no authentication.
- `authenticated`: the route requires authentication, but no right.
- `tenant`: the caller needs the right, and access to the tenant of the request.
- `context`: as `tenant`, for the tenant in the path.
- `actor`: the actor itself, or a caller with the right and access to all tenants (`*`).
- `node`: the caller needs the right, and access to all tenants (`*`).
- `peer`: the request is signed by a [peer](peers.md). No role permits it.

`auth.public_routes` can make `/metrics` and `/info` public. Default: none. The token of `auth.metrics_token` has the role `monitor` for
the node.

";

fn page_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/permissions.md")
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!(
        "| {} |\n",
        cells.into_iter().collect::<Vec<_>>().join(" | ")
    )
}

/// Returns a table with a column for each role, and for each list if the rows state what lists permit.
fn table(
    head: &[&'static str],
    rows: impl IntoIterator<Item = (Vec<String>, Option<Right>, Vec<bool>)>,
) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for (cells, right, lists) in rows {
        if text.is_empty() {
            let names = head.iter().copied().chain(Role::all().map(Role::as_str));
            let names: Vec<_> = names
                .chain(LISTS.map(|(list, _)| list).into_iter().take(lists.len()))
                .collect();
            columns = names.len();
            text += &row(names.into_iter().map(str::to_owned));
            text += "|";
            text += &"---|".repeat(columns);
            text += "\n";
        }
        let is_peer = cells.iter().any(|cell| cell == "peer");
        let granted =
            Role::all().map(|role| !is_peer && right.is_none_or(|right| role.allows(right)));
        let cells = cells.into_iter().chain(
            granted
                .chain(lists)
                .map(|yes| if yes { "yes" } else { "–" }.to_owned()),
        );
        text += &row(cells);
    }
    assert!(columns > 0);
    text
}

/// Returns what each list of a context permits on a route: its role, for the tenant of the context.
fn permitted_by_lists(scope: &str, right: Option<Right>) -> Vec<bool> {
    let permits = |role: Role| match scope {
        "public" | "authenticated" => true,
        "tenant" | "context" => right.is_some_and(|right| role.allows(right)),
        _ => false,
    };
    LISTS.map(|(_, role)| permits(role)).to_vec()
}

/// Returns method, path, scope and right of each route in the OpenAPI document.
fn described_routes() -> Vec<[String; 4]> {
    let description = serde_json::to_value(orlog::api::openapi()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["responses"].is_object() {
                let text = |name: &str| operation[name].as_str().unwrap_or("–").to_owned();
                let (scope, right) = (text("x-orlog-scope"), text("x-orlog-right"));
                routes.push([method.to_uppercase(), path.clone(), scope, right]);
            }
        }
    }
    routes.sort_by(|one, other| (&one[1], &one[0]).cmp(&(&other[1], &other[0])));
    routes
}

fn page() -> String {
    let rights = Right::ALL.map(|right| (vec![right.as_str().to_owned()], Some(right), vec![]));
    let routes = described_routes()
        .into_iter()
        .map(|[method, path, scope, name]| {
            let right = Right::ALL.into_iter().find(|right| right.as_str() == name);
            let lists = permitted_by_lists(&scope, right);
            (
                vec![format!("`{method} {path}`"), scope, name],
                right,
                lists,
            )
        });
    format!(
        "{HEAD}{}{ROUTES}{}",
        table(&["right"], rights),
        table(&["route", "scope", "right"], routes)
    )
}

#[test]
fn permissions_page_lists_every_route() {
    let expected = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(page_path(), &expected).unwrap();
    }
    let written = std::fs::read_to_string(page_path()).unwrap_or_default();
    assert!(
        written == expected,
        "docs/permissions.md is outdated; run: {COMMAND}"
    );
}

/// Permissions of a route on the page: its scope, and whether each role has the right and each list permits it.
struct Row {
    scope: String,
    roles: BTreeMap<String, bool>,
}

/// Reads the table of routes from the page, as the oracle of the requests.
fn page_rows() -> BTreeMap<String, Row> {
    let text = std::fs::read_to_string(page_path()).unwrap();
    let (_, routes) = text.split_once("## Routes").unwrap();
    let cells = |line: &str| {
        line.split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let mut lines = routes.lines().filter(|line| line.starts_with("| "));
    let head = cells(lines.next().unwrap());
    let row = |line: &str| {
        let cells = cells(line);
        let granted = head
            .iter()
            .zip(&cells)
            .skip(4)
            .filter(|(role, _)| !role.is_empty());
        let roles = granted
            .map(|(role, cell)| (role.clone(), cell == "yes"))
            .collect();
        (
            cells[1].trim_matches('`').to_owned(),
            Row {
                scope: cells[2].clone(),
                roles,
            },
        )
    };
    lines.map(row).collect()
}

/// Returns the code with which a request must be denied; `None`: the request passes.
fn expected_denial(row: &Row, role: &str, has_access: bool) -> Option<&'static str> {
    match row.scope.as_str() {
        "public" | "authenticated" => None,
        _ if !row.roles[role] => Some("OR0042"),
        _ if !has_access => Some("OR0043"),
        _ => None,
    }
}

/// Sends a request that passes the checks of its origin and has no effect. Returns the code of a denial.
async fn denial(
    node: &Node,
    (method, path): (&str, &str),
    token: Option<&str>,
    tenant: &str,
) -> Option<String> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    // No context has this revision, so that none is changed or deleted.
    let mut headers = vec![("x-tenant-id", tenant), ("if-match", "\"0\"")];
    headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
    let path: String = path
        .split('/')
        .map(|part| match part {
            "{tenant}" => tenant,
            part if part.starts_with('{') => "none",
            part => part,
        })
        .collect::<Vec<_>>()
        .join("/");
    let body = (method != "GET").then(|| json!(["invalid"]));
    let response = node.send(method, &path, &headers, body.as_ref()).await;
    let code = serde_json::from_str::<Value>(&response.text)
        .ok()
        .and_then(|body| body["code"].as_str().map(str::to_owned));
    let code =
        code.filter(|code| ["OR0040", "OR0041", "OR0042", "OR0043"].contains(&code.as_str()));
    assert_eq!(
        code.is_some(),
        [401, 403].contains(&response.status.as_u16()),
        "{method} {path}: {response:?}"
    );
    code
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_admit_exactly_the_callers_on_the_permissions_page() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let rows = page_rows();
    let mut routes = described_routes();
    // Afterwards the node accepts no work.
    routes.sort_by_key(|[_, path, ..]| path == "/admin/drain");
    let tokens =
        |role: &str| [json!(["acme"]), json!("*")].map(|tenants| key.token(role, role, &tenants));
    let callers: Vec<_> = Role::all()
        .map(|role| (role.as_str(), tokens(role.as_str())))
        .collect();
    for [method, path, ..] in &routes {
        let route = format!("{method} {path}");
        let row = rows
            .get(&route)
            .unwrap_or_else(|| panic!("{route} has no row; run: {COMMAND}"));
        let anonymous = denial(&node, (method, path), None, "acme").await;
        assert_eq!(
            anonymous.is_none(),
            row.scope == "public",
            "{route} without a token: {anonymous:?}"
        );
        let is_node = ["node", "actor"].contains(&row.scope.as_str());
        let cases = callers.iter().flat_map(|(role, [of_acme, of_all])| {
            [
                (of_acme, "acme", !is_node),
                (of_acme, "beta", false),
                (of_all, "beta", true),
            ]
            .map(|case| (role, case))
        });
        let requests = cases.map(async |(role, (token, tenant, has_access))| {
            let denied = denial(&node, (method, path), Some(token), tenant).await;
            let expected = expected_denial(row, role, has_access);
            assert_eq!(
                denied.as_deref(),
                expected,
                "{route} as {role} for {tenant}, access: {has_access}"
            );
        });
        futures::future::join_all(requests).await;
    }
    assert_eq!(
        rows.len(),
        routes.len(),
        "docs/permissions.md is outdated; run: {COMMAND}"
    );
}

/// Requirements: F2.
#[tokio::test(flavor = "multi_thread")]
async fn routes_admit_exactly_the_members_of_a_context_on_the_permissions_page() {
    let key = Key::ed("a");
    let jwks = Jwks::open(&[&key]).await;
    let node = Node::with_tokens(|config| config.auth.jwt.jwks_url = jwks.url.clone()).await;
    let root = key.token("root", "admin", &json!("*"));
    let member = |list: &str| json!([format!("user:{list}")]);
    let [admins, readers, executors] = LISTS.map(|(list, _)| member(list));
    let acme = json!({ "admins": admins, "readers": readers, "executors": executors });
    for (tenant, lists) in [
        ("acme", &acme),
        ("beta", &json!({ "admins": ["user:owner of beta"] })),
    ] {
        node.call(
            &root,
            "",
            "PUT",
            &format!("/v1/contexts/{tenant}"),
            Some(lists),
        )
        .await
        .ok();
    }
    let rows = page_rows();
    let names = LISTS
        .map(|(list, _)| list)
        .into_iter()
        .chain(["owner of beta", "stranger"]);
    let callers: Vec<_> = names
        .map(|name| (name, key.token(name, "", &json!([]))))
        .collect();
    for [method, path, ..] in described_routes() {
        let row = &rows[&format!("{method} {path}")];
        let is_open = ["public", "authenticated"].contains(&row.scope.as_str());
        let requests = callers.iter().map(async |(name, token)| {
            let denied = denial(&node, (&method, &path), Some(token), "acme").await;
            let is_permitted = is_open || row.roles.get(*name).copied().unwrap_or_default();
            // Without roles in its token, a caller has no right elsewhere.
            let expected = (!is_permitted).then_some("OR0042");
            assert_eq!(
                denied.as_deref(),
                expected,
                "{method} {path} as {name} for acme"
            );
            if !is_open && LISTS.iter().any(|(list, _)| list == name) {
                let denied = denial(&node, (&method, &path), Some(token), "gamma").await;
                assert_eq!(
                    denied.as_deref(),
                    Some("OR0042"),
                    "{method} {path} as {name} of acme, for gamma"
                );
            }
        });
        futures::future::join_all(requests).await;
    }
    let lists = node
        .call(&root, "", "GET", "/v1/contexts/acme", None)
        .await
        .ok();
    assert_eq!(
        lists["changes"].as_array().unwrap().len(),
        1,
        "no request changed the context: {lists}"
    );
}
