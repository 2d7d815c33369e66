//! All linked code is permissively licensed: the licence of every package that cargo builds for this
//! machine is compared with the list in `deny.toml`.

use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = allowed();
    let packages = packages();
    assert!(packages.len() > 50, "cargo metadata lists the dependencies");
    let rejected: Vec<String> = packages
        .iter()
        .filter(|(_, licence)| !licence.as_deref().is_some_and(|licence| permits(licence, &allowed)))
        .map(|(package, licence)| format!("{package}: {}", licence.as_deref().unwrap_or("no licence stated")))
        .collect();
    assert!(rejected.is_empty(), "not allowed by deny.toml:\n{}", rejected.join("\n"));
}

#[test]
fn no_copyleft_licence_is_allowed() {
    const COPYLEFT: [&str; 8] = ["GPL", "MPL", "EPL", "EUPL", "CDDL", "OSL", "CC-BY-SA", "SSPL"];
    let copyleft: Vec<String> =
        allowed().into_iter().filter(|name| COPYLEFT.iter().any(|word| name.contains(word))).collect();
    assert!(copyleft.is_empty(), "{copyleft:?} would apply to the linked program");
}

#[test]
fn spdx_expressions_are_evaluated_by_their_grammar() {
    let allowed: Vec<String> = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).to_vec();
    for yes in ["MIT", "MIT/GPL-2.0", "GPL-2.0 OR MIT", "(MIT OR X) AND Apache-2.0", "X AND X OR MIT"] {
        assert!(permits(yes, &allowed), "{yes}");
    }
    assert!(permits("X OR Apache-2.0 WITH LLVM-exception", &allowed));
    for no in ["", "X", "MIT AND X", "(MIT OR X) AND X", "MIT AND X OR X", "MIT WITH X", "MIT)", "(MIT", "MIT X"] {
        assert!(!permits(no, &allowed), "{no}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is at the root");
    let deny: toml::Table = text.parse().expect("deny.toml is TOML");
    let names = deny["licenses"]["allow"].as_array().expect("licenses.allow is a list");
    names.iter().map(|name| name.as_str().expect("a licence is a string").to_owned()).collect()
}

/// Name with version, and licence, of all packages that a build on this machine can use.
fn packages() -> Vec<(String, Option<String>)> {
    // Without a platform, cargo requires packages of other systems, which no build here has fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &platform])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata, offline: {stderr}; run `cargo fetch --target {platform}` first");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages
        .iter()
        .map(|package| {
            let text = |key: &str| package[key].as_str().map(str::to_owned);
            let name = format!("{} {}", text("name").unwrap_or_default(), text("version").unwrap_or_default());
            (name, text("license"))
        })
        .collect()
}

/// True if an SPDX expression permits use under the licences in `allowed`; `/` is the old form of OR.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words, allowed).is_some_and(|permitted| permitted && words.peek().is_none())
}

/// Parses `all {OR all}`; `None` if the expression is malformed.
fn any<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[String]) -> Option<bool> {
    let mut permitted = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all(words, allowed)?;
    }
    Some(permitted)
}

/// Parses `term {AND term}`.
fn all<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[String]) -> Option<bool> {
    let mut permitted = term(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        permitted &= term(words, allowed)?;
    }
    Some(permitted)
}

/// Parses `( any )`, or a licence with or without an exception.
fn term<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[String]) -> Option<bool> {
    let name = words.next()?;
    if name == "(" {
        let permitted = any(words, allowed)?;
        return (words.next()? == ")").then_some(permitted);
    }
    let licence = match words.next_if_eq(&"WITH") {
        Some(_) => format!("{name} WITH {}", words.next()?),
        None => name.to_owned(),
    };
    Some(allowed.contains(&licence))
}
