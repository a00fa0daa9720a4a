#!/bin/sh
# Guess: a library for times whose years go to 9999 accepts each RFC 3339 time, and so
# `9999-12-31T23:59:59Z`, which many systems store for "no end".
#
# Seen with jiff 0.2.43 from crates.io: the last Timestamp is 9999-12-30T22:00:00.999999999Z. A later
# time of the year 9999 is an error, from text and from seconds: a Timestamp has a local time at
# every offset of jiff, up to 25:59:59. The last second of the year is rejected at every offset of
# RFC 3339, also at +23:59. Without an offset it is a valid civil::DateTime, and datetime of Python 3
# accepts it in UTC.
#
# Fails if the limit changes, or if civil::DateTime rejects the time.
set -eu

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

mkdir "$dir/src"
cat >"$dir/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"

[dependencies.jiff]
version = "=0.2.43"
default-features = false
features = ["std"]
TOML

cat >"$dir/src/main.rs" <<'RUST'
use jiff::civil::DateTime;
use jiff::Timestamp;

fn main() {
    println!("Timestamp::MAX: {}", Timestamp::MAX);
    let mut is_same = Timestamp::MAX.to_string() == "9999-12-30T22:00:00.999999999Z";

    for (text, is_valid) in [
        ("9999-12-30T22:00:00.999999999Z", true),
        ("9999-12-30T22:00:01Z", false),
        ("9999-12-31T23:59:59Z", false),
        ("9999-12-31T23:59:59+23:59", false),
    ] {
        let result = text.parse::<Timestamp>();
        println!("Timestamp {text}: {result:?}");
        is_same &= result.is_ok() == is_valid;
    }

    let end_of_year = Timestamp::from_second(253_402_300_799);
    println!("Timestamp of 253402300799 s: {end_of_year:?}");
    is_same &= end_of_year.is_err();

    let civil = "9999-12-31T23:59:59".parse::<DateTime>();
    println!("DateTime 9999-12-31T23:59:59: {civil:?}");
    is_same &= civil.is_ok();

    std::process::exit(if is_same { 0 } else { 1 });
}
RUST

CARGO_TARGET_DIR="$dir/target" cargo run --quiet --manifest-path "$dir/Cargo.toml"
python3 -c '
from datetime import datetime
print("Python:", datetime.fromisoformat("9999-12-31T23:59:59+00:00").timestamp())'
