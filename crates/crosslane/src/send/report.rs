//! Output for the user: progress, notes, and a line for each file.

use std::collections::BTreeMap;
use std::time::Duration;

use crosslane_core::demand::Admission;
use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use crosslane_core::transfer::multipath::sender::Carried;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::Options;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::output;
use crate::transfer::files::{Ending, Sent, Upload};
use crate::transfer::multipath::sending::Path;
use crate::transfer::source::News;

const PRINTING: &str = "printing the result";
/// Longest wait for the reader of the results during the transfer.
const READER_WAIT_MS: u16 = 10;
/// Time before the progress bar is shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);

pub(super) fn is_success(sent: &Sent) -> bool {
    sent.ending == Some(Ending::Stored) && sent.in_time() != Some(false)
}

pub(super) struct Report<'a> {
    options: &'a Options,
    paths: &'a [Path],
    /// What each path has carried, known at the end.
    carried: BTreeMap<usize, Carried>,
    clock: Clock,
    bar: ProgressBar,
    shown: bool,
    /// Arrived bytes of unfinished files, and bytes of finished files.
    open: BTreeMap<u32, u64>,
    ended_bytes: u64,
    /// A result that could not be printed: no reason to end the transfer, but one to report at its end.
    unprinted: Option<Error>,
    /// Results for which standard output had no room: its reader must not hold up the transfer.
    unread: String,
}

impl<'a> Report<'a> {
    pub(super) fn new(options: &'a Options, uploads: &[Upload], paths: &'a [Path], clock: Clock) -> Report<'a> {
        let sizes = uploads.iter().filter_map(|upload| Some(std::fs::metadata(&upload.path).ok()?.len()));
        let style =
            ProgressStyle::with_template("{bar:30} {percent}% {bytes}/{total_bytes} {bytes_per_sec}  {eta} left");
        let bar = ProgressBar::with_draw_target(Some(sizes.sum()), ProgressDrawTarget::hidden())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (open, carried) = (BTreeMap::new(), BTreeMap::new());
        Report {
            options,
            paths,
            carried,
            clock,
            bar,
            shown: false,
            open,
            ended_bytes: 0,
            unprinted: None,
            unread: String::new(),
        }
    }

    pub(super) fn update(&mut self, news: &News, sent: Option<&Sent>) {
        match (news, sent) {
            (News::Acknowledged(number, bytes), _) => drop(self.open.insert(*number, *bytes)),
            (News::Abandoned(number, _), Some(sent)) => self.ended(*number, sent),
            // Of a file that grows, only the end is reported.
            (News::Receipt(receipt), Some(sent)) if sent.ending.is_none() => drop(self.open.remove(&receipt.number)),
            // An abandoned file has been reported already.
            (News::Receipt(receipt), Some(sent)) if !matches!(sent.ending, Some(Ending::Abandoned(_))) => {
                self.ended(receipt.number, sent);
            }
            (News::Admission(report), Some(sent)) => self.note(&admission(*report, sent)),
            (News::Resumed(_, bytes), Some(sent)) => {
                let text = format!("{} goes on: {bytes} of {} bytes are there", shown(sent), sent.size_bytes);
                self.note(&text);
            }
            (News::Down(path, why), _) => self.note(&format!("{}: {why}", self.name(*path))),
            (News::Belief(path, belief), _) => {
                self.note(&format!("{}: the agent believes it {}", self.name(*path), belief.name()));
            }
            (News::Up(path), _) => self.note(&format!("{}: connected again", self.name(*path))),
            (News::Carried(path, carried), _) => drop(self.carried.insert(*path, *carried)),
            _ => {}
        }
        self.show();
    }

    /// Prints the remaining results.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn finish(self, all: &[Sent]) -> Result<()> {
        self.bar.finish_and_clear();
        if self.options.json {
            let document = json!({
                "schema": 1,
                "to": self.options.to,
                "paths": self.carried.iter().map(|(path, carried)| self.path_in_json(*path, *carried)).collect::<Vec<Value>>(),
                "files": all.iter().map(in_json).collect::<Vec<Value>>(),
            });
            return output::print(PRINTING, format!("{document:#}\n"));
        }
        if self.paths.len() > 1 {
            let carried = self.carried.iter().map(|(path, carried)| format!("{} {}", self.name(*path), carried.bytes));
            output::message(format_args!("bytes over each path: {}", carried.collect::<Vec<_>>().join(", ")));
        }
        let unfinished = all.iter().filter(|sent| sent.ending.is_none());
        output::print(PRINTING, self.unread + &unfinished.map(|sent| line(sent) + "\n").collect::<String>())?;
        self.unprinted.map_or(Ok(()), Err)
    }

    fn ended(&mut self, number: u32, sent: &Sent) {
        self.open.remove(&number);
        self.ended_bytes += sent.size_bytes;
        if !self.options.json {
            let line = line(sent) + "\n";
            let is_unread = !self.unread.is_empty();
            let print = || if is_unread { Ok(false) } else { output::print_within(READER_WAIT_MS, PRINTING, &line) };
            match self.bar.suspend(print) {
                Ok(true) => {}
                Ok(false) => self.unread += &line,
                Err(fault) => self.unprinted = self.unprinted.take().or(Some(fault)),
            }
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| output::message(text));
    }

    fn name(&self, path: usize) -> &str {
        self.paths.get(path).and_then(|path| path.interface.as_deref()).unwrap_or("the connection")
    }

    fn path_in_json(&self, path: usize, carried: Carried) -> Value {
        let name = self.paths.get(path).and_then(|path| path.interface.as_deref());
        let price = self.options.cost.iter().find(|price| Some(price.path.as_str()) == name);
        json!({
            "name": name,
            "bytes": carried.bytes,
            "duplicate_bytes": carried.duplicate_bytes,
            "cost": price.map(|price| price.per_gb * carried.bytes as f64 / 1e9),
        })
    }

    fn show(&mut self) {
        self.bar.set_position(self.ended_bytes + self.open.values().sum::<u64>());
        if !self.shown && self.clock.now() >= Instant::ZERO + SHOW_AFTER {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

/// The prediction for a deadline.
fn admission(report: Admission, sent: &Sent) -> String {
    let name = shown(sent);
    match (report.can_be_met(), after_s(report.expected, sent), after_s(report.best, sent)) {
        (Some(true), Some(expected_s), _) => format!("{name} is expected to be complete in {expected_s:.1} s, in time"),
        (Some(false), _, Some(best_s)) => {
            format!("the deadline of {name} cannot be met; predicted completion: in {best_s:.1} s")
        }
        _ => format!("no prediction for {name} is available yet"),
    }
}

/// In seconds after the file was generated.
fn after_s(at: Option<Instant>, sent: &Sent) -> Option<f64> {
    Some(at?.since(sent.upload.start).as_secs_f64())
}

fn line(sent: &Sent) -> String {
    let (name, bytes) = (shown(sent), sent.size_bytes);
    let result = match sent.ending {
        Some(Ending::Stored) => stored(sent),
        Some(Ending::Differs) => {
            "not stored: the received bytes differ from those sent; send it again, from nothing".into()
        }
        Some(Ending::Refused) => format!("not stored: {}", sent.text),
        Some(Ending::Abandoned(why)) => format!("abandoned after {} bytes: {}", sent.acked_bytes, why.words()),
        None => format!("not finished: {} bytes of it have arrived", sent.acked_bytes),
    };
    format!("{name}  {bytes} bytes  {result}")
}

fn stored(sent: &Sent) -> String {
    if let Some(parts) = sent.parts {
        let late = sent.upload.deadline.map(|_| format!(", {} of them late", sent.late_parts));
        return format!("stored in {parts} parts{}", late.unwrap_or_default());
    }
    let seconds = sent.completion().unwrap_or_default().as_secs_f64();
    let (Some(deadline), Some(ended)) = (sent.upload.deadline, sent.ended) else {
        return format!("stored in {seconds:.3} s");
    };
    let (early, late) = (deadline.since(ended).as_secs_f64(), ended.since(deadline).as_secs_f64());
    match sent.in_time() {
        Some(true) => format!("stored in {seconds:.3} s, {early:.3} s before its deadline"),
        _ => format!("stored in {seconds:.3} s, {late:.3} s after its deadline"),
    }
}

fn in_json(sent: &Sent) -> Value {
    let deadline = sent.upload.deadline.map(|deadline| deadline.since(sent.upload.start).as_secs_f64());
    let admission = sent.admission.map(|report| {
        let (expected_s, predicted_s) = (after_s(report.expected, sent), after_s(report.best, sent));
        json!({ "can_be_met": report.can_be_met(), "expected_s": expected_s, "predicted_s": predicted_s })
    });
    let reason = match sent.ending {
        Some(Ending::Abandoned(why)) => Some(why.words()),
        _ => Some(sent.text.as_str()).filter(|text| !text.is_empty()),
    };
    json!({
        "name": sent.upload.name,
        "bytes": sent.size_bytes,
        "outcome": outcome(sent.ending),
        "reason": reason,
        "acknowledged_bytes": sent.acked_bytes,
        "resumed_bytes": sent.resumed_bytes,
        "completion_s": sent.completion().map(|time| time.as_secs_f64()),
        "deadline_s": deadline,
        "in_time": sent.in_time(),
        "admission": admission,
        "parts": sent.parts,
        "late_parts": sent.parts.map(|_| sent.late_parts),
    })
}

fn outcome(ending: Option<Ending>) -> &'static str {
    match ending {
        Some(Ending::Stored) => "stored",
        Some(Ending::Differs) => "differs",
        Some(Ending::Refused | Ending::Abandoned(Abandoned::Refused)) => "refused",
        Some(Ending::Abandoned(Abandoned::Late)) => "late",
        Some(Ending::Abandoned(Abandoned::Changed)) => "changed",
        Some(Ending::Abandoned(Abandoned::Unreadable)) => "unreadable",
        None => "unfinished",
    }
}

/// Its name without control characters.
fn shown(sent: &Sent) -> String {
    sent.upload.name.replace(char::is_control, "?")
}
