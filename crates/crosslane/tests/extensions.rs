//! The files that each kind of extension touches, by the guide's table: they are
//! few, they exist, and no other file names what was added in this way.

use std::fs;
use std::path::{Path, PathBuf};

/// Kinds of extension: name, maximum number of new and of edited files, and types
/// that were added in this way.
const KINDS: [(&str, [usize; 2], &[&str]); 6] = [
    ("strategy", [1, 1], &[]),
    ("metric", [1, 1], &[]),
    ("traffic kind", [2, 2], &["Bulk", "Uploads", "DeadlineTraffic"]),
    ("link effect", [1, 1], &[]),
    ("source of observations", [1, 2], &["Vanetza"]),
    ("actuator", [1, 2], &[]),
];

#[test]
fn an_extension_touches_few_files_and_these_exist() {
    for (kind, most, _) in KINDS {
        for (cell, most) in row(kind).into_iter().zip(most) {
            let files = paths(&cell);
            let choices = cell.matches(" or `crates/").count();
            assert!(files.len() - choices <= most, "{kind}: more than {most} of {files:?}");
            for file in files {
                let place = root().join(file.trim_end_matches("NAME.rs"));
                assert!(place.exists(), "{kind}: no {}", place.display());
            }
        }
    }
}

#[test]
fn no_other_file_names_an_extension() {
    for (kind, _, examples) in KINDS {
        let [new, edited] = row(kind);
        for example in examples {
            let naming = sources().filter(|(_, text)| names(text, example)).map(|(file, _)| file);
            let (listed, others): (Vec<String>, Vec<String>) = naming
                .partition(|file| paths(&edited).contains(file) || paths(&new).iter().any(|new| is_in(file, new)));
            assert!(others.is_empty(), "{kind}: {others:?} name {example} too");
            assert!(listed.len() >= 2, "{kind}: {example} is not both defined and listed");
        }
    }
}

#[test]
fn a_name_in_a_comment_or_in_a_test_does_not_count() {
    assert!(names("use super::{Bulk, Stream};", "Bulk"));
    assert!(!names("use super::BulkSender; // as Bulk", "Bulk"));
    assert!(!names("fn f() {}\n#[cfg(test)]\nmod tests { use super::Bulk; }", "Bulk"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of a kind's row in the guide: new and edited files.
fn row(kind: &str) -> [String; 2] {
    let start = format!("| {kind} |");
    let guide = fs::read_to_string(root().join("docs/guide/extending.md")).unwrap();
    let row = guide.lines().find_map(|row| row.strip_prefix(&start)).unwrap_or_else(|| panic!("no row {start:?}"));
    let (new, edited) = row.trim_end_matches('|').split_once('|').unwrap();
    [new.into(), edited.into()]
}

/// The files that a cell names.
fn paths(cell: &str) -> Vec<String> {
    cell.split('`').filter(|word| word.starts_with("crates/")).map(String::from).collect()
}

/// Source files below a folder.
fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The program's source files without tests: path and text.
fn sources() -> impl Iterator<Item = (String, String)> {
    let of_crate = |name| files(&format!("crates/{name}/src"));
    let program = ["core", "sim", "crosslane"].into_iter().flat_map(of_crate);
    let program = program.filter(|file| !file.file_stem().unwrap().to_str().unwrap().ends_with("tests"));
    program.map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        (file.strip_prefix(root()).unwrap().to_str().unwrap().into(), text)
    })
}

/// True if the program text names this type.
fn names(text: &str, example: &str) -> bool {
    let program = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code = program.lines().map(|line| line.split("//").next().unwrap_or_default());
    let mut words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.any(|word| word == example)
}

/// True if a file is a new file of this pattern.
fn is_in(file: &str, new: &str) -> bool {
    let within = new.strip_suffix("NAME.rs").and_then(|folder| file.strip_prefix(folder));
    within.is_some_and(|name| !name.contains('/'))
}
