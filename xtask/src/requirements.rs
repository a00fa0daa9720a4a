//! `cargo xtask requirements` prints each requirement with the tests that name it.

use std::path::Path;

use crate::error::Error;
use crate::rules::requirements::{check, table};
use crate::tidy::parse;
use crate::tree::Tree;

/// Prints the table; `true` if each requirement has a test or a stated gap.
pub(crate) fn run(root: &Path) -> Result<bool, Error> {
    let tree = Tree::read(root)?;
    let (sources, _) = parse(&tree);
    for requirement in table(&tree, &sources).0 {
        let gap = if requirement.missing.is_empty() {
            ""
        } else {
            "  missing: "
        };
        println!("{}{gap}{}", requirement.id, requirement.missing);
        for test in requirement.tests {
            println!("    {test}");
        }
    }
    let violations = check(&tree, &sources);
    for violation in &violations {
        println!("{violation}");
    }
    Ok(violations.is_empty())
}
