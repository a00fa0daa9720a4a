//! Builds the `AssemblyScript` example with npm, in a subdirectory of the target directory.

use std::path::Path;
use std::process::Command;

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/wasm-assemblyscript"
);
const FILES: [&str; 4] = [
    "package.json",
    "package-lock.json",
    "src/orlog.ts",
    "src/index.ts",
];

/// Returns the module. Fails if npm or its registry is unavailable.
pub(crate) fn order() -> Vec<u8> {
    build(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm-assemblyscript"))
        .unwrap_or_else(|reason| panic!("the AssemblyScript example cannot be built: {reason}"))
}

fn build(dir: &Path) -> Result<Vec<u8>, String> {
    let mut changed = !dir.join("node_modules").exists();
    std::fs::create_dir_all(dir.join("src")).map_err(|error| error.to_string())?;
    for file in FILES {
        let text = std::fs::read(Path::new(EXAMPLE).join(file))
            .map_err(|error| format!("{file}: {error}"))?;
        let copy = dir.join(file);
        if std::fs::read(&copy).is_ok_and(|there| there == text) {
            continue;
        }
        changed |= file.starts_with("package");
        std::fs::write(copy, text).map_err(|error| error.to_string())?;
    }
    if changed {
        npm(dir, &["ci", "--no-audit", "--no-fund", "--ignore-scripts"])?;
    }
    npm(dir, &["run", "build"])?;
    std::fs::read(dir.join("build/order.saga.wasm")).map_err(|error| error.to_string())
}

fn npm(dir: &Path, args: &[&str]) -> Result<(), String> {
    let run = Command::new("npm").args(args).current_dir(dir).output();
    let output = run.map_err(|error| format!("npm: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "npm {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ))
}
