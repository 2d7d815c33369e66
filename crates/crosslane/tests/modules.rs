//! No cyclic imports: within each folder of the three crates, files and folders import
//! each other in one direction only (`docs/design/architecture.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Module = Vec<String>;
/// For each folder, the pairs of members of which one imports the other, and an example of the import.
type FolderImports = BTreeMap<Module, BTreeMap<(String, String), String>>;

#[test]
fn modules_import_each_other_in_one_direction() {
    for name in ["core", "sim", "crosslane"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
        let cycles = cycles(&folder_imports(&read(&source)));
        assert!(cycles.is_empty(), "{name}: {}", cycles.join("\n"));
    }
}

#[test]
fn a_cycle_is_detected() {
    let module = |name: &str| name.split('/').map(String::from).collect::<Module>();
    let files = BTreeMap::from([
        (module("a"), "use crate::b::c::Thing;".into()),
        (module("b"), String::new()),
        (module("b/c"), "use super::{super::d, Other};".into()),
        (module("d"), "fn f() { crate::a::g() }".into()),
    ]);
    assert!(cycles(&folder_imports(&files)).is_empty(), "nested groups are not used in this project and not parsed");
    let files = files.into_iter().chain([(module("b/e"), "use super::super::d::Thing;".into())]).collect();
    assert_eq!(
        cycles(&folder_imports(&files)),
        [": a -> b (a -> b/c/Thing), b -> d (b/e -> d/Thing), d -> a (d -> a/g)"]
    );
}

/// The source text of a crate, without tests and comments, by module.
fn read(source: &Path) -> BTreeMap<Module, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::from(source)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let within = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Module = within.iter().map(|part| part.to_str().unwrap().into()).collect();
            if module.last().is_some_and(|name| name.ends_with("tests")) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            module.pop_if(|name| name == "mod");
            let text = fs::read_to_string(&path).unwrap();
            let program = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let lines = program.lines().map(|line| line.split("//").next().unwrap_or_default());
            files.insert(module, lines.collect::<Vec<_>>().join(" "));
        }
    }
    files
}

fn folder_imports(files: &BTreeMap<Module, String>) -> FolderImports {
    let mut folder_imports = FolderImports::new();
    for (from, text) in files {
        for to in imports(from, text) {
            let known = (0..=to.len()).rev().find(|length| files.contains_key(&to[..*length]));
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if known.is_some_and(|known| shared < known) && shared < from.len() {
                let members = (from[shared].clone(), to[shared].clone());
                let import = format!("{} -> {}", from.join("/"), to.join("/"));
                folder_imports.entry(from[..shared].to_vec()).or_default().entry(members).or_insert(import);
            }
        }
    }
    folder_imports
}

/// Imports of a file by `crate`, `super` or `self`, as paths from the root of the crate.
fn imports(module: &[String], text: &str) -> Vec<Module> {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("::") {
        let start = text[..at].rfind(|c| !inside(c)).map_or(0, |place| place + 1);
        let end = at + text[at..].find(|c| !inside(c)).unwrap_or(text.len() - at);
        if text[start..at].contains("::") {
            continue;
        }
        let mut names: Vec<&str> = text[start..end].split("::").collect();
        let mut path = match names.remove(0) {
            "crate" => Module::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().saturating_sub(1)].to_vec(),
            _ => continue,
        };
        while names.first() == Some(&"super") {
            names.remove(0);
            path.pop();
        }
        let group = text[end..].strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        path.extend(names.iter().filter(|name| !name.is_empty()).map(ToString::to_string));
        let member = |name: &str| {
            let name = name.trim().split([':', ' ']).next().unwrap_or_default();
            path.iter().cloned().chain([name.into()]).filter(|part: &String| !part.is_empty()).collect()
        };
        found.extend(group.split(',').map(member));
    }
    found
}

/// A message for each folder whose members import each other in a cycle.
fn cycles(folder_imports: &FolderImports) -> Vec<String> {
    let mut found = Vec::new();
    for (folder, imports) in folder_imports {
        let reached = |from: &str| {
            let mut reached = BTreeSet::new();
            let mut open = vec![from];
            while let Some(name) = open.pop() {
                for (_, to) in imports.keys().filter(|(from, _)| from == name) {
                    if reached.insert(to.as_str()) {
                        open.push(to);
                    }
                }
            }
            reached
        };
        let in_cycle = |(from, to): &(String, String)| reached(to).contains(from.as_str());
        let cycle = imports.iter().filter(|(members, _)| in_cycle(members));
        let edges: Vec<String> = cycle.map(|((from, to), import)| format!("{from} -> {to} ({import})")).collect();
        if !edges.is_empty() {
            found.push(format!("{}: {}", folder.join("/"), edges.join(", ")));
        }
    }
    found
}
