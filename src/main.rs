//! The command `orlog`.

fn main() {}
