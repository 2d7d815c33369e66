//! Project rules that neither the compiler nor clippy (`clippy.toml`) checks, for every file that `.gitignore` does not exclude.
//! Exceptions are listed at their rule, with a reason.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 800;
const FILE_LINES_SOFT: usize = 400;

/// Files between the soft and the hard limit, with the reason.
const LONG_FILES: &[(&str, &str)] = &[
    ("crates/core/src/link/tests.rs", "the properties of the link model, which share one reference model"),
    ("crates/crosslane/src/testbed/emulator/worker.rs", "one loop, read from wake-up to release"),
    ("crates/core/src/mptcp/manager/connection.rs", "the rules of one connection, in the order of their application"),
    ("crates/core/src/mptcp/manager/tests.rs", "one test for each rule of the path manager"),
    ("crates/core/tests/multipath_transfer.rs", "one model of both ends and their connections, which all tests share"),
    ("crates/core/tests/path_manager_model.rs", "one model of the kernel, and the properties that are checked with it"),
    ("crates/sim/tests/bad_input.rs", "one table of wrong scenarios and the sentences about them"),
    ("crates/crosslane/tests/path_manager.rs", "one vehicle with two paths, and all changes of these paths"),
    ("crates/crosslane/tests/silent_loss.rs", "one vehicle, and all cases of a path that fails silently"),
    ("crates/core/src/roadside/connection_manager/tests.rs", "one test for each rule of the connection manager"),
    ("crates/core/src/roadside/controller/tests.rs", "one test for each rule of the controller"),
    ("crates/crosslane/tests/agent.rs", "one vehicle with two radios, and all tests of its agent"),
    ("crates/crosslane/tests/mptcp_command.rs", "all verbs of one command, which share their two networks"),
    ("crates/crosslane/tests/netlink.rs", "all tests of the kernel's path manager, which share their namespaces"),
];

#[test]
fn files_are_short_enough_to_read() {
    let mut broken = Vec::new();
    for file in sources() {
        let lines = file.text.lines().count();
        let excused = LONG_FILES.iter().any(|(name, _)| *name == file.name);
        if lines > FILE_LINES {
            broken.push(format!("{}: {lines} lines, the limit is {FILE_LINES}", file.name));
        } else if lines > FILE_LINES_SOFT && !excused {
            broken.push(format!("{}: {lines} lines; split it, or give a reason in LONG_FILES", file.name));
        } else if lines <= FILE_LINES_SOFT && excused {
            broken.push(format!("{}: {lines} lines; remove it from LONG_FILES", file.name));
        }
    }
    for (name, _) in LONG_FILES.iter().filter(|(name, _)| !root().join(name).exists()) {
        broken.push(format!("{name}: does not exist; remove it from LONG_FILES"));
    }
    assert_none(broken);
}

/// Cargo does not look for tests by itself: what neither `main.rs` nor `Cargo.toml` names would never be run, nor would what
/// has the name of another part of `e2e/tests.sh`.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let is_named = |name: &str, file: &str| {
        let read = |path: &str| fs::read_to_string(root().join("crates").join(name).join(path)).unwrap_or_default();
        let module = format!("mod {};", file.trim_end_matches(".rs"));
        read("tests/main.rs").lines().any(|line| line == module)
            || read("Cargo.toml").contains(&format!("path = \"tests/{file}\""))
    };
    let parts = fs::read_to_string(root().join("e2e/tests.sh")).expect("the tests have a script");
    let is_other = |file: &str| parts.lines().any(|line| line.trim_start().starts_with(&file.replace(".rs", ")")));
    let missing = files().filter(|file| match file.name.split('/').collect::<Vec<_>>()[..] {
        ["crates", name, "tests", file] => !is_named(name, file) || is_other(file),
        _ => false,
    });
    assert_none(
        missing.map(|file| {
            format!("{}: not in main.rs or Cargo.toml, or e2e/tests.sh has a part of that name", file.name)
        }),
    );
}

#[test]
fn python_functions_fit_on_a_screen() {
    let too_long = |file: &File| {
        let long = python_functions(&file.text).into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES);
        long.map(|(line, name, lines)| {
            file.at(line, format!("{name} has {lines} lines, the limit is {FUNCTION_LINES}"))
        })
        .collect::<Vec<_>>()
    };
    assert_none(files().filter(|file| file.is("py")).flat_map(|file| too_long(&file)));
}

#[test]
fn no_file_or_folder_has_a_generic_name() {
    const BANNED: [&str; 6] = ["common", "util", "utils", "helper", "helpers", "misc"];
    let banned = |file: &File| {
        let mut parts = file.name.split('/').map(|part| part.split('.').next().unwrap_or(part));
        parts.any(|part| part.split(['-', '_']).any(|word| BANNED.contains(&word)))
    };
    assert_none(files().filter(banned).map(|file| format!("{}: name its content", file.name)));
}

#[test]
fn no_path_of_a_development_machine_is_left() {
    // Each in two parts; otherwise this file would violate the rule.
    let places = [concat!("/wo", "rk/"), concat!("/tmp/", "wt"), concat!("/ro", "ot/"), concat!("../sha", "red/")];
    assert_none(files().flat_map(|file| file.lines_with(&file.text, &places, "a path of one machine")));
}

#[test]
fn every_scenario_is_mentioned_in_a_document_or_the_makefile() {
    let text: String = files()
        .filter(|file| file.name == "Makefile" || file.is("md"))
        .map(|file| file.text)
        .collect::<Vec<_>>()
        .join("\n");
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '-').collect();
    let scenarios = files().filter(|file| file.name.starts_with("scenarios/") && file.is("toml"));
    let missing = scenarios.filter(|file| {
        let stem = Path::new(&file.name).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        !words.contains(&stem)
    });
    assert_none(missing.map(|file| format!("{}: neither in the Makefile nor in any document", file.name)));
}

#[test]
fn the_words_are_the_field_s() {
    const WORDS: &str = "dear dearer dearest told telling heard hearing wish wishes fares anew astray wander wanders \
                         lent lend brain nobody somebody";
    const PHRASES: [&str; 7] = ["under way", "in vain", "by lot", "by hand", "for sure", "so and so", "of its own"];
    const PLACES: [&str; 9] =
        ["crates/", "docs/", "fuzz/", "lab/", "packaging/", "scenarios/", "CONTRIBUTING", "Makefile", "README"];
    // This list, and the inputs that fuzzing has found.
    const EXCUSED: [&str; 2] = ["crates/crosslane/tests/tidy.rs", "fuzz/seeds/"];
    let read = |file: &File| {
        let named = |places: &[&str]| places.iter().any(|place| file.name.starts_with(place));
        named(&PLACES) && !named(&EXCUSED)
    };
    let banned = |file: &File| {
        let lines = file.text.lines().map(str::to_lowercase).enumerate();
        let of_line = |(number, line): (usize, String)| {
            let word = line.split(|c: char| !c.is_alphabetic()).find(|word| WORDS.split(' ').any(|one| one == *word));
            let found = word.or_else(|| PHRASES.into_iter().find(|phrase| line.contains(phrase)))?;
            Some(file.at(number + 1, format!("{found}: use the field's word (docs/glossary.md)")))
        };
        lines.filter_map(of_line).collect::<Vec<_>>()
    };
    assert_none(files().filter(read).flat_map(|file| banned(&file)));
}

#[test]
fn links_in_documents_have_targets() {
    let mut broken = Vec::new();
    for file in files().filter(|file| file.is("md")) {
        let folder = root().join(&file.name).parent().map(Path::to_path_buf).unwrap_or_default();
        for (number, line) in file.text.lines().enumerate() {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
            let local = targets.filter(|target| !target.is_empty() && !target.contains(':'));
            broken.extend(local.filter(|t| !folder.join(t).exists()).map(|t| file.at(number + 1, t)));
        }
    }
    assert_none(broken);
}

#[test]
fn a_python_function_ends_with_its_last_indented_line() {
    let functions =
        python_functions("def a():\n    x\n\n    y\n\n\nclass B:\n    def c(\n        self,\n    ):\n        z\n");
    assert_eq!(functions, [(1, "a".into(), 4), (8, "c".into(), 4)]);
}

/// A file of the project; `name` is its path from the root.
struct File {
    name: String,
    text: String,
}

impl File {
    fn is(&self, extension: &str) -> bool {
        Path::new(&self.name).extension().is_some_and(|own| own == extension)
    }

    fn at(&self, line: usize, what: impl Display) -> String {
        format!("{}:{line}: {what}", self.name)
    }

    fn lines_with(&self, text: &str, words: &[&str], remedy: &str) -> Vec<String> {
        let found = |line: &str| words.iter().find(|word| line.contains(**word)).copied();
        let hits = text.lines().enumerate().filter_map(|(number, line)| Some((number + 1, found(line)?)));
        hits.map(|(line, word)| self.at(line, format!("{word}: {remedy}"))).collect()
    }
}

fn assert_none(broken: impl IntoIterator<Item = String>) {
    let broken: Vec<String> = broken.into_iter().collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

fn sources() -> impl Iterator<Item = File> {
    files().filter(|file| ["rs", "py", "sh", "j2", "css", "js"].iter().any(|extension| file.is(extension)))
}

/// Every text file that `.gitignore` does not exclude.
fn files() -> impl Iterator<Item = File> {
    let ignored = fs::read_to_string(root().join(".gitignore")).expect("the root has a .gitignore");
    let ignored: Vec<&str> = ignored.lines().map(|line| line.trim_matches('/')).chain([".git"]).collect();
    let mut paths = Vec::new();
    walk(&root(), &ignored, &mut paths);
    paths.sort();
    paths.into_iter().filter_map(|path| {
        let name = path.strip_prefix(root()).ok()?.to_str()?.to_owned();
        Some(File { name, text: fs::read_to_string(&path).ok()? })
    })
}

fn walk(folder: &Path, ignored: &[&str], paths: &mut Vec<PathBuf>) {
    let is_ignored = |name: &str| {
        ignored.iter().any(|rule| rule.strip_prefix('*').map_or(*rule == name, |suffix| name.ends_with(suffix)))
    };
    for entry in fs::read_dir(folder).expect("folders of the project can be read").flatten() {
        let kind = entry.file_type().expect("a file has a type");
        if entry.file_name().to_str().is_none_or(is_ignored) {
            continue;
        } else if kind.is_dir() {
            walk(&entry.path(), ignored, paths);
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is in crates/").to_path_buf()
}

/// Line, name and length in lines of each Python function; a body ends at the last line that is indented more than its `def`.
fn python_functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut functions = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let head = line.trim_start().trim_start_matches("async ");
        let Some(name) = head.strip_prefix("def ").and_then(|rest| rest.split('(').next()) else { continue };
        let closes_head = |line: &str| line.trim_start().starts_with(')');
        let body = lines[start + 1..].iter().take_while(|next| {
            next.trim().is_empty() || indent(next) > indent(line) || (indent(next) == indent(line) && closes_head(next))
        });
        let last = body.enumerate().filter(|(_, next)| !next.trim().is_empty()).map(|(i, _)| i + 2).last();
        functions.push((start + 1, name.to_owned(), last.unwrap_or(1)));
    }
    functions
}
