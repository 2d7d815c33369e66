//! The version of the program, as runs, agents and reports state it.

use std::sync::OnceLock;

/// The crate's version.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

static VERSION: OnceLock<String> = OnceLock::new();

/// Called once, by the program: only its own crate is compiled again for another commit.
pub fn set_commit(commit: Option<&str>) {
    let commit = commit.filter(|commit| !commit.is_empty());
    VERSION.get_or_init(|| commit.map_or(RELEASE.into(), |commit| format!("{RELEASE}+{commit}")));
}

/// Version and commit, as Semantic Versioning 2.0.0 (section 10) joins them: `0.1.0+1a2b3c4d`, with `.dirty` if the
/// tree differed from the commit; only the version of a program that was built without `make`.
pub fn version() -> &'static str {
    VERSION.get().map_or(RELEASE, String::as_str)
}
