//! Pages, comments and messages name what exists: pages, headings, targets of make, tests, and keys of files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crosslane::agent::config;
use crosslane_sim::scenario::Scenario;

/// A key that is in no file and similar to none, so that the error lists all keys.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqq";

#[test]
fn every_page_that_is_named_exists() {
    let mut missing = Vec::new();
    for (name, text) in files(&["rs", "py", "md", "toml", "sh", "template", "j2", "json", "service", "Makefile"]) {
        for (at, _) in text.match_indices("docs/") {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let path: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || "/-_.".contains(*c)).collect();
            let path = path.trim_end_matches(['.', '/']);
            let is_number = path.len() == "docs/decisions/0000".len() && path.starts_with("docs/decisions/");
            let is_other = before.is_alphanumeric() || "/.-_".contains(before) || name.ends_with("tests/docs.rs");
            if !is_other && !is_number && !root().join(path).exists() {
                missing.push(format!("{name}:{}: {path}", line_at(&text, at)));
            }
        }
    }
    assert_none(&missing);
}

#[test]
fn every_source_file_that_a_page_names_exists() {
    // Written by the fuzzer.
    const EXCUSED: [&str; 2] = ["fuzz/corpus", "fuzz/artifacts"];
    let mut missing = Vec::new();
    for (name, text) in files(&["md"]).filter(|(name, _)| name != "CHANGELOG.md") {
        for line in text.split("```").step_by(2).flat_map(str::lines) {
            let mut folder = None;
            for path in quoted(line).into_iter().filter(|code| !EXCUSED.contains(code)).flat_map(alternatives) {
                let Some(path) = source(&path).or_else(|| sibling(folder.as_deref(), &path)) else { continue };
                let is_there = [path.clone(), path.with_extension("rs"), path.with_extension("toml")];
                if !is_there.iter().any(|path| path.exists()) {
                    missing.push(format!("{name}: {}", path.display()));
                }
                folder = path.parent().map(Path::to_path_buf);
            }
        }
    }
    assert_none(&missing);
}

/// The path of a file or folder that begins at the root, or with the name of a crate, which stands for its sources.
fn source(path: &str) -> Option<PathBuf> {
    let is_path = path.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/_-.".contains(c));
    let (first, rest) = path.split_once('/').filter(|_| is_path)?;
    match first {
        "crates" | "lab" | "scenarios" | "packaging" | "fuzz" | "data" | "e2e" => Some(root().join(path)),
        "core" | "sim" | "crosslane" if rest.starts_with("tests/") || rest.starts_with("src/") => {
            Some(root().join("crates").join(path))
        }
        "core" | "sim" | "crosslane" => Some(root().join("crates").join(first).join("src").join(rest)),
        _ => None,
    }
}

/// A source file named without folder, after another one in the same line.
fn sibling(folder: Option<&Path>, name: &str) -> Option<PathBuf> {
    name.ends_with(".rs").then(|| folder.map(|folder| folder.join(name))).flatten()
}

/// `a/{b,c}.rs` stands for `a/b.rs` and `a/c.rs`.
fn alternatives(path: &str) -> Vec<String> {
    match (path.split_once('{'), path.split_once('}')) {
        (Some((before, _)), Some((inside, after))) if inside.len() > before.len() => {
            inside[before.len() + 1..].split(',').map(|one| format!("{before}{one}{after}")).collect()
        }
        _ => vec![path.into()],
    }
}

#[test]
fn every_heading_that_is_linked_exists() {
    let mut missing = Vec::new();
    for (name, text) in files(&["md"]) {
        let folder = root().join(&name).parent().unwrap().to_path_buf();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        for (page, anchor) in links.filter(|link| !link.contains(':')).filter_map(|link| link.split_once('#')) {
            let target = if page.is_empty() { root().join(&name) } else { folder.join(page) };
            let target = fs::read_to_string(target).unwrap_or_default();
            if !headings(&target).any(|heading| slug(heading) == anchor) {
                missing.push(format!("{name}: {page}#{anchor}"));
            }
        }
    }
    assert_none(&missing);
}

#[test]
fn every_page_opens_with_a_title_and_is_linked() {
    let pages: Vec<(String, String)> = files(&["md"]).collect();
    let all: String = pages.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let mut wrong = Vec::new();
    for (name, text) in pages.iter().filter(|(name, _)| name.starts_with("docs/") && !name.contains("decisions/")) {
        let opens =
            text.starts_with("# ") && text.lines().nth(2).is_some_and(|line| line.starts_with(char::is_alphabetic));
        let file = name.rsplit('/').next().unwrap();
        if !opens {
            wrong.push(format!("{name}: begin with a title and a sentence on what the page is for"));
        }
        if name != "docs/README.md" && !all.contains(&format!("/{file})")) && !all.contains(&format!("({file})")) {
            wrong.push(format!("{name}: no page links it"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn make_targets_tests_and_benchmarks_that_are_named_exist() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |word: &str| makefile.lines().any(|line| line.starts_with(&format!("{word}:")));
    let is_cargo_target = |flag: &str, word: &str| {
        let folder = if flag == "--bench" { "benches" } else { "tests" };
        ["crosslane", "core", "sim"].iter().any(|one| {
            let folder = root().join("crates").join(one).join(folder);
            folder.join(format!("{word}.rs")).exists() || folder.join(word).join("main.rs").exists()
        })
    };
    let is_module = |word: &str| is_cargo_target("--test", word.trim_end_matches("::"));
    let mut missing = Vec::new();
    for (name, text) in files(&["md"]).filter(|(name, _)| name != "CHANGELOG.md") {
        for command in commands(&text) {
            let words: Vec<&str> = command.split_whitespace().collect();
            if words.first() == Some(&"make") {
                let targets = words[1..].iter().take_while(|word| !word.contains('=') && !word.starts_with('#'));
                missing.extend(targets.filter(|word| !is_target(word)).map(|word| format!("{name}: make {word}")));
            }
            if words.contains(&"cargo") {
                let of_cargo = words.windows(2).filter(|pair| ["--test", "--bench"].contains(&pair[0]));
                let unknown = of_cargo.filter(|pair| !is_cargo_target(pair[0], pair[1]) && pair[1] != "NAME");
                missing.extend(unknown.map(|pair| format!("{name}: cargo {} {}", pair[0], pair[1])));
                let modules = words.iter().filter(|word| word.ends_with("::") && !is_module(word));
                missing.extend(modules.map(|word| format!("{name}: no tests {word}")));
            }
        }
    }
    assert_none(&missing);
}

#[test]
fn the_reference_lists_the_keys_of_a_scenario() {
    let read = |text: &str| Scenario::parse(text, "s.toml").unwrap_err().to_string();
    compare_keys("docs/reference/scenario.md", read);
}

#[test]
fn the_reference_lists_the_keys_of_an_agent_s_configuration() {
    let read = |text: &str| config::from_table("reading", &toml::from_str(text).unwrap()).unwrap_err().to_string();
    compare_keys("docs/reference/agent-config.md", read);
}

/// Compares each table of keys below a heading with the keys that an error of the program names there.
fn compare_keys(page: &str, error_of: impl Fn(&str) -> String) {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut wrong = Vec::new();
    let mut tables = 0;
    for section in text.split("\n## ").skip(1).flat_map(|section| section.split("\n### ")) {
        let listed: BTreeSet<&str> = key_rows(section).flat_map(quoted).collect();
        if listed.is_empty() {
            continue;
        }
        tables += 1;
        let heading = section.lines().next().unwrap();
        let error = error_of(&table_with_unknown_key(heading));
        assert!(error.contains(UNKNOWN), "{page}, {heading}: {error}");
        let known: BTreeSet<&str> = quoted(&error).into_iter().filter(|word| !word.contains(UNKNOWN)).collect();
        if known != listed {
            let missing: Vec<_> = known.difference(&listed).collect();
            let surplus: Vec<_> = listed.difference(&known).collect();
            wrong.push(format!("{page}, {heading}: lacks {missing:?}; the program does not read {surplus:?}"));
        }
    }
    assert!(tables > 5, "{page} has {tables} tables of keys");
    assert_none(&wrong);
}

/// TOML in which the table of a heading, as `[vehicle.route]`, has only an unknown key.
fn table_with_unknown_key(heading: &str) -> String {
    let table = heading.split('`').nth(1).unwrap_or_default();
    let inner = table.trim_matches(['[', ']']);
    let outer = match inner.split_once('.') {
        Some((outer @ ("cellular" | "wifi" | "path"), _)) => format!("[[{outer}]]\n"),
        _ => String::new(),
    };
    format!("{outer}{table}\n{UNKNOWN} = 1\n")
}

/// First cells of the tables whose first column is `key`.
fn key_rows(section: &str) -> impl Iterator<Item = &str> {
    let mut in_table = false;
    section.lines().filter_map(move |line| {
        in_table = line.starts_with("| key |") || (in_table && line.starts_with('|'));
        (in_table && !line.starts_with("| key |")).then(|| line.split('|').nth(1).unwrap_or_default())
    })
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Lines of code blocks, and code in the text.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").enumerate().flat_map(
        |(place, part)| {
            if place % 2 == 1 { part.lines().collect::<Vec<_>>() } else { quoted(part) }
        },
    )
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim())
}

/// The anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// Name and text of the files with these endings, without those that `.gitignore` excludes and the fuzzer's seeds.
fn files(endings: &[&str]) -> impl Iterator<Item = (String, String)> {
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    let mut folders = vec![root()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, file_name) = (entry.path(), entry.file_name().into_string().unwrap());
            let is_ignored = ignored.lines().any(|rule| rule.trim_matches('/') == file_name);
            if is_ignored || file_name.starts_with(".git") || path.ends_with("fuzz/seeds") {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|ending| file_name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|path| (path.strip_prefix(root()).unwrap().to_str().unwrap().into(), fs::read_to_string(&path).unwrap()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
