//! Builds the `AssemblyScript` example with npm, in a folder of the target directory.

use std::path::Path;
use std::process::Command;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/wasm-assemblyscript");
const FILES: [&str; 4] = ["package.json", "package-lock.json", "src/orlog.ts", "src/index.ts"];

/// The module. Without npm or its registry there is none: on the machine of a person that is said and passed over, in CI
/// (where `CI` is `true`) it is a failure.
pub(crate) fn order() -> Option<Vec<u8>> {
    match build(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm-assemblyscript")) {
        Ok(module) => Some(module),
        Err(why) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => {
            panic!("the AssemblyScript example cannot be built: {why}")
        }
        Err(why) => {
            println!("passed over: the AssemblyScript example cannot be built: {why}");
            None
        }
    }
}

fn build(folder: &Path) -> Result<Vec<u8>, String> {
    let mut changed = !folder.join("node_modules").exists();
    std::fs::create_dir_all(folder.join("src")).map_err(|error| error.to_string())?;
    for file in FILES {
        let text =
            std::fs::read(Path::new(EXAMPLE).join(file)).map_err(|error| format!("{file}: {error}"))?;
        let copy = folder.join(file);
        if std::fs::read(&copy).is_ok_and(|there| there == text) {
            continue;
        }
        changed |= file.starts_with("package");
        std::fs::write(copy, text).map_err(|error| error.to_string())?;
    }
    if changed {
        npm(folder, &["ci", "--no-audit", "--no-fund", "--ignore-scripts"])?;
    }
    npm(folder, &["run", "build"])?;
    std::fs::read(folder.join("build/order.saga.wasm")).map_err(|error| error.to_string())
}

fn npm(folder: &Path, args: &[&str]) -> Result<(), String> {
    let run = Command::new("npm").args(args).current_dir(folder).output();
    let output = run.map_err(|error| format!("npm: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("npm {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
}
