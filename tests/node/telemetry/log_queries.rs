//! Parses every Loki query of the documentation with the parser of Grafana.

use std::path::Path;
use std::process::Command;

use crate::harness::process::feed;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Reads a query, and prints the positions of its errors as JSON.
const SCRIPT: &str = r#"
const { parser } = require(process.argv[1]);
const query = require("node:fs").readFileSync(0, "utf8");
const errors = [];
parser.parse(query).iterate({ enter: (node) => { if (node.type.isError) errors.push(node.from); } });
console.log(JSON.stringify(errors));
"#;

fn errors(query: &str) -> Vec<usize> {
    let parser =
        Path::new(ROOT).join(".tools/lezer-logql/node_modules/@grafana/lezer-logql/index.cjs");
    let mut command = Command::new("node");
    command
        .args(["--input-type=commonjs", "--eval", SCRIPT])
        .arg(parser);
    let output = feed(command, query);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the blocks of the language `logql` of a page.
fn queries(page: &str) -> Vec<&str> {
    let blocks = page.split("```logql\n").skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().trim())
        .collect()
}

/// Requirements: R17.
#[test]
fn log_queries_of_the_documentation_are_valid() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/logs.md")).unwrap();
    let queries = queries(&page);
    assert!(!queries.is_empty());
    for query in queries {
        assert_eq!(errors(query), [0; 0], "{query}");
    }
    assert!(
        !errors("{service_name=\"orlog\"} | correlation=").is_empty(),
        "an incomplete query is an error"
    );
}
