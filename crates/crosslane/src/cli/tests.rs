use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::program;

#[test]
fn the_command_line_is_consistent() {
    program().debug_assert();
}

#[test]
fn the_program_accepts_every_command_of_the_documentation() {
    let mut wrong = Vec::new();
    let mut read = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page can be read");
        for line in text.split("```").skip(1).step_by(2).flat_map(str::lines) {
            let Some(arguments) = arguments(line) else { continue };
            read += 1;
            if let Err(fault) = check(&arguments) {
                wrong.push(format!("{}: {line}\n    {fault}", page.display()));
            }
        }
    }
    assert!(read > 20, "only {read} commands found");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_subcommand_that_is_named_in_the_text_exists() {
    let program = program();
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page can be read");
        let prose: String = text.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2) {
            let word = code.strip_prefix("crosslane ").and_then(|rest| rest.split_whitespace().next());
            if word.is_some_and(|word| program.find_subcommand(word).is_none()) {
                wrong.push(format!("{}: {code}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// The words of a command line of `crosslane`, without prompt and comment; none of another program.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let prompt = line.split_once(['#', '$']).filter(|(host, _)| host.chars().all(|c| c.is_ascii_alphanumeric()));
    let line = prompt.map_or(line, |(_, command)| command.trim_start());
    let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
    (words.first() == Some(&"crosslane")).then_some(words)
}

/// What clap says of a command, and the first file of the repository in it that does not exist.
fn check(arguments: &[&str]) -> Result<(), String> {
    match program().try_get_matches_from(arguments) {
        Err(error) if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Err(error.to_string());
        }
        _ => {}
    }
    let is_ours = |word: &&&str| ["scenarios/", "data/", "docs/"].iter().any(|folder| word.starts_with(folder));
    match arguments.iter().filter(is_ours).find(|word| !root().join(word).exists()) {
        Some(missing) => Err(format!("{missing} does not exist")),
        None => Ok(()),
    }
}

/// The pages whose commands a reader runs.
fn pages() -> Vec<PathBuf> {
    let folders =
        [".", "docs", "docs/guide", "docs/reference", "docs/design", "docs/results", "lab", "data", "scenarios/tunnel"];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).expect("a folder of pages"));
    let paths = entries.flatten().map(|entry| entry.path());
    let mut pages: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|own| own == "md")).collect();
    pages.retain(|page| !page.ends_with("CHANGELOG.md"));
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
