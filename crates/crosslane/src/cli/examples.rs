//! Examples of each command, with which its help and its manual page end.

use clap::Command;

/// The words of a command, and its examples.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("agent", &["crosslane agent --config /etc/crosslane/agent.toml"]),
    ("status", &["crosslane status", "crosslane status --json"]),
    ("links", &["crosslane links"]),
    ("connections", &["crosslane connections --json"]),
    ("watch", &["crosslane watch"]),
    ("explain", &["crosslane explain lte", "crosslane explain 5b3a0c11"]),
    ("prefer", &["crosslane prefer wlan --for 10m", "crosslane prefer --end"]),
    ("mode", &["crosslane mode aggregate"]),
    ("reload", &["crosslane reload"]),
    ("refit", &["crosslane refit --config /etc/crosslane/agent.toml"]),
    ("controller", &["crosslane controller --config /etc/crosslane/controller.toml"]),
    ("controller status", &["crosslane controller status"]),
    (
        "send",
        &["crosslane send drive.mcap --to HOST --encryption none --deadline 10s --cost lte-a=0.1/GB,lte-b=0.5/GB"],
    ),
    ("receive", &["crosslane receive --into inbox --listen 0.0.0.0:7411 --encryption none"]),
    ("drive", &["crosslane drive scenarios/pass-by.toml --strategy kernel,threshold --seed 1..5 --out runs/pass-by"]),
    (
        "simulate",
        &["crosslane simulate scenarios/pass-by.toml --strategy kernel,threshold --seed 1..200 --out runs/sim"],
    ),
    ("view", &["crosslane view runs/pass-by"]),
    ("check", &["crosslane check /etc/crosslane/agent.toml", "crosslane check scenarios/pass-by.toml --json"]),
    ("catalog", &["crosslane catalog --json"]),
    ("import", &["crosslane import pings MINE.csv --operator NAME --out mine.csv"]),
    ("import pam2025", &["crosslane import pam2025 UL_atnt_verizon_4_run_25.csv --operator att --out att.csv"]),
    ("import feup", &["crosslane import feup final-exp-log.csv --ap ap2 --from-s 885 --to-s 955 --out ap2.csv"]),
    ("import imc23", &["crosslane import imc23 slc_to_de-0811-023805.csv --operator tmobile --out tmobile.csv"]),
    ("import pings", &["crosslane import pings MINE.csv --operator NAME --out mine.csv"]),
    (
        "keygen",
        &["crosslane keygen --out /etc/crosslane/vehicle.key", "crosslane keygen --public /etc/crosslane/vehicle.key"],
    ),
    ("tunnel", &["crosslane tunnel status"]),
    ("tunnel status", &["crosslane tunnel status --json"]),
    ("tunnel mode", &["crosslane tunnel mode redundant"]),
    ("cc", &["crosslane cc load"]),
    ("cc load", &["crosslane cc load"]),
    ("cc status", &["crosslane cc status --json"]),
    ("cc unload", &["crosslane cc unload"]),
    (
        "doctor",
        &["crosslane doctor", "crosslane doctor --config /etc/crosslane/agent.toml --server 203.0.113.7:443 --json"],
    ),
    ("bugreport", &["crosslane bugreport --out report.tar.gz"]),
    ("mptcp", &["crosslane mptcp events", "crosslane mptcp endpoint list --json"]),
    ("mptcp announce", &["crosslane mptcp announce 10.0.2.2 --token 1733624498 --id 5 --port 50003"]),
    ("mptcp withdraw", &["crosslane mptcp withdraw --token 1733624498 --id 5"]),
    (
        "mptcp create",
        &[
            "crosslane mptcp create --token 1733624498 --local 10.0.2.2 --local-id 5 --remote 10.0.1.1 --remote-port 443",
        ],
    ),
    (
        "mptcp destroy",
        &[
            "crosslane mptcp destroy --token 1733624498 --local 10.0.2.2 --local-port 43210 --remote 10.0.1.1 --remote-port 443",
        ],
    ),
    (
        "mptcp priority",
        &["crosslane mptcp priority --token 1733624498 --local 10.0.2.2 --remote 10.0.1.1 --flags backup"],
    ),
    ("mptcp listen", &["crosslane mptcp listen 10.0.2.2 --port 50003"]),
    ("mptcp events", &["crosslane mptcp events --json"]),
    ("mptcp endpoint", &["crosslane mptcp endpoint list"]),
    ("mptcp endpoint add", &["crosslane mptcp endpoint add 10.0.2.2 --device wlan0 --flags subflow,backup"]),
    ("mptcp endpoint get", &["crosslane mptcp endpoint get 1"]),
    ("mptcp endpoint set", &["crosslane mptcp endpoint set --id 1 --flags nobackup"]),
    ("mptcp endpoint delete", &["crosslane mptcp endpoint delete 1", "crosslane mptcp endpoint delete 0 10.0.1.2"]),
    ("mptcp endpoint list", &["crosslane mptcp endpoint list --token 0x6754f2f2"]),
    ("mptcp endpoint flush", &["crosslane mptcp endpoint flush"]),
    ("mptcp limits", &["crosslane mptcp limits get"]),
    ("mptcp limits get", &["crosslane mptcp limits get --json"]),
    ("mptcp limits set", &["crosslane mptcp limits set --subflows 4 --add-addr-accepted 4"]),
    (
        "run",
        &["crosslane run -- rsync -a logs/ depot::logs/", "crosslane run -- /usr/bin/telemetry --server depot:7000"],
    ),
    ("man", &["crosslane man simulate > simulate.1", "crosslane man --out man/man1"]),
    ("completion", &["crosslane completion bash > /etc/bash_completion.d/crosslane"]),
];

/// The command line with the examples.
pub fn added_to(program: Command) -> Command {
    EXAMPLES.iter().fold(program, |program, (words, examples)| {
        let heading = if examples.len() == 1 { "Example:" } else { "Examples:" };
        let lines = examples.iter().map(|example| format!("\n  {example}"));
        add(
            program,
            words.split(' ').collect::<Vec<_>>().as_slice(),
            &(heading.to_owned() + &lines.collect::<String>()),
        )
    })
}

fn add(command: Command, words: &[&'static str], text: &str) -> Command {
    match words {
        [] => command.after_help(text.to_owned()),
        [first, rest @ ..] => command.mut_subcommand(*first, |subcommand| add(subcommand, rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_has_an_example_that_the_program_accepts() {
        let program = super::super::program();
        let mut expected = BTreeSet::new();
        commands(&program, "", &mut expected);
        let named: BTreeSet<String> = EXAMPLES.iter().map(|(words, _)| (*words).to_owned()).collect();
        assert_eq!(expected, named);
        for (words, examples) in EXAMPLES {
            assert!(!examples.is_empty(), "{words}");
            for example in *examples {
                let prefix = format!("crosslane {words}");
                assert!(*example == prefix || example.starts_with(&(prefix + " ")), "{example}: not of {words}");
                let arguments = example.split_whitespace().take_while(|word| *word != ">");
                if let Err(fault) = program.clone().try_get_matches_from(arguments) {
                    panic!("{example}: {fault}");
                }
            }
        }
    }

    #[test]
    fn help_ends_with_the_examples() {
        let mut program = super::super::program();
        let help = program.find_subcommand_mut("prefer").expect("a command").render_help().to_string();
        let expected = "Examples:\n  crosslane prefer wlan --for 10m\n  crosslane prefer --end\n";
        assert!(help.ends_with(expected), "{help}");
    }

    /// The words of each command that help lists.
    fn commands(command: &Command, words: &str, found: &mut BTreeSet<String>) {
        for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
            let words = format!("{words} {}", subcommand.get_name()).trim().to_owned();
            commands(subcommand, &words, found);
            found.insert(words);
        }
    }
}
