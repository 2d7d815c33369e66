//! All linked code is permissively licensed: the licence of every package that cargo builds for this
//! machine is compared with the list in `deny.toml`.

use std::path::{Path, PathBuf};
use std::process::Command;

use spdx::{Expression, Licensee, ParseMode};

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
    let copyleft: Vec<String> = allowed()
        .iter()
        .map(Licensee::to_string)
        .filter(|name| COPYLEFT.iter().any(|word| name.contains(word)))
        .collect();
    assert!(copyleft.is_empty(), "{copyleft:?} would apply to the linked program");
}

#[test]
fn a_licence_is_permitted_as_its_expression_says() {
    for yes in ["MIT", "MIT/GPL-2.0", "GPL-2.0 OR MIT", "(MIT OR GPL-2.0) AND Apache-2.0"] {
        assert!(permits(yes, &allowed()), "{yes}");
    }
    for no in ["", "unknown", "MIT AND GPL-2.0", "GPL-2.0 WITH Classpath-exception-2.0", "MIT)"] {
        assert!(!permits(no, &allowed()), "{no}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn allowed() -> Vec<Licensee> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml is at the root");
    let deny: toml::Table = text.parse().expect("deny.toml is TOML");
    let names = deny["licenses"]["allow"].as_array().expect("licenses.allow is a list");
    let licence = |name: &toml::Value| Licensee::parse(name.as_str()?).ok();
    names.iter().map(|name| licence(name).unwrap_or_else(|| panic!("{name} is no SPDX licence"))).collect()
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

/// True if an SPDX expression permits use under the licences in `allowed`; manifests also have `/` for OR.
fn permits(expression: &str, allowed: &[Licensee]) -> bool {
    let parsed = Expression::parse_mode(expression, ParseMode::LAX);
    parsed.is_ok_and(|parsed| parsed.evaluate(|licence| allowed.iter().any(|one| one.satisfies(licence))))
}
