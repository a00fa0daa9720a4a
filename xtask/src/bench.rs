//! `cargo xtask bench` runs all benchmarks (divan) and prints their medians in one table.
//!
//! divan prints a tree per binary. The table has one row per benchmark and argument: path, median, and
//! the median of the throughput, if the benchmark counts items or bytes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::Error;

/// Column of the median in the output of divan.
const MEDIAN: usize = 2;

/// Result of one benchmark.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    median: String,
    throughput: String,
}

/// Runs the benchmarks of the workspace in `root` and prints the table; `true` if all of them ran.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Without the test harness of the libraries, which knows no benchmarks.
    command
        .args(["bench", "--workspace", "--locked", "--benches"])
        .current_dir(root)
        .stdout(Stdio::piped());
    let failed = |source| Error {
        path: "the output of cargo bench".to_owned(),
        source,
    };
    let mut child = command.spawn().map_err(failed)?;
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.map_err(failed)?;
        println!("{line}");
        lines.push(line);
    }
    let succeeded = child.wait().map_err(failed)?.success();
    print_table(&rows(&lines));
    Ok(succeeded)
}

fn print_table(rows: &[Row]) {
    let width = rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0);
    println!(
        "\n{:width$}  {:>10}  {:>16}",
        "benchmark", "median", "throughput"
    );
    for Row {
        name,
        median,
        throughput,
    } in rows
    {
        println!("{name:width$}  {median:>10}  {throughput:>16}");
    }
}

/// Reads the trees that divan prints.
fn rows(lines: &[String]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut path: Vec<String> = Vec::new();
    for line in lines {
        if line.contains("fastest") && line.contains("median") {
            path = vec![
                line.split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ];
            continue;
        }
        if let Some((prefix, rest)) = line.split_once("─ ") {
            // Each level is three characters wide; the branch itself is the first of the last level.
            let depth = prefix.chars().count() / 3 + 1;
            let (name, columns) = rest.split_once("  ").unwrap_or((rest, ""));
            path.truncate(depth);
            path.push(name.trim().to_owned());
            let median = column(columns, MEDIAN);
            if !median.is_empty() {
                rows.push(Row {
                    name: path.join(" "),
                    median,
                    throughput: String::new(),
                });
            }
        } else if let Some(row) = rows.last_mut()
            && row.throughput.is_empty()
            && line.contains('│')
        {
            // The line below a benchmark has no name. It begins with the lines of the tree.
            let columns = line.trim_start_matches(['│', ' ']);
            row.throughput = column(columns, MEDIAN);
        }
    }
    rows
}

fn column(columns: &str, number: usize) -> String {
    columns
        .split('│')
        .nth(number)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Timer precision: 20 ns
embedded                  fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ journal_alone          151.2 µs      │ 1.204 ms      │ 160.1 µs      │ 170 µs        │ 500     │ 500
├─ publish                              │               │               │               │         │
│  ├─ Interval(50ms)      7.1 µs        │ 99 µs         │ 8.2 µs        │ 8.4 µs        │ 500     │ 500
│  │                      140 Kitem/s   │ 10 Kitem/s    │ 122 Kitem/s   │ 119 Kitem/s   │         │
│  ╰─ Sync                151 µs        │ 2 ms          │ 163 µs        │ 170 µs        │ 500     │ 500
╰─ restart                1.1 ms        │ 2.2 ms        │ 1.5 ms        │ 1.6 ms        │ 20      │ 20
                          900 item/s    │ 500 item/s    │ 700 item/s    │ 690 item/s    │         │
";

    #[test]
    fn trees_become_rows() {
        let lines: Vec<String> = OUTPUT.lines().map(str::to_owned).collect();
        let row = |name: &str, median: &str, throughput: &str| Row {
            name: name.to_owned(),
            median: median.to_owned(),
            throughput: throughput.to_owned(),
        };
        let expected = [
            row("embedded journal_alone", "160.1 µs", ""),
            row("embedded publish Interval(50ms)", "8.2 µs", "122 Kitem/s"),
            row("embedded publish Sync", "163 µs", ""),
            row("embedded restart", "1.5 ms", "700 item/s"),
        ];
        assert_eq!(rows(&lines), expected);
    }
}
