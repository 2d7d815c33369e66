//! Output for the user: progress, notes, and a line for each file.

use std::collections::BTreeMap;
use std::time::Duration;

use crosslane_core::time::Instant;
use crosslane_core::transfer::Abandoned;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use socket2::Socket;

use super::Options;
use crate::clock::Clock;
use crate::control::protocol::{AdmissionReport, Reply};
use crate::error::Result;
use crate::output;
use crate::transfer::connection::is_multipath;
use crate::transfer::files::{Ending, Sent};
use crate::transfer::sending::News;

/// Time before the progress bar is shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);

pub(super) fn is_success(sent: &Sent) -> bool {
    sent.ending == Some(Ending::Stored) && sent.in_time() != Some(false)
}

pub(super) struct Report<'a> {
    options: &'a Options,
    socket: &'a Socket,
    clock: Clock,
    multipath: bool,
    bar: ProgressBar,
    shown: bool,
    /// Acknowledged bytes of unfinished files, and bytes of finished files.
    open: BTreeMap<u32, u64>,
    ended_bytes: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(options: &'a Options, socket: &'a Socket, clock: Clock) -> Report<'a> {
        let sizes = options.files.iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.len()));
        let style =
            ProgressStyle::with_template("{bar:30} {percent}% {bytes}/{total_bytes} {bytes_per_sec}  {eta} left");
        let bar = ProgressBar::with_draw_target(Some(sizes.sum()), ProgressDrawTarget::hidden())
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (open, ended_bytes) = (BTreeMap::new(), 0);
        let mut report = Report { options, socket, clock, multipath: true, bar, shown: false, open, ended_bytes };
        report.check_connection();
        report
    }

    pub(super) fn update(&mut self, news: &News, sent: Option<&Sent>) {
        match (news, sent) {
            (News::Acknowledged(number, bytes), _) => drop(self.open.insert(*number, *bytes)),
            (News::Abandoned(number, _), Some(sent)) => self.ended(*number, sent),
            (News::Receipt(receipt), Some(sent)) => {
                self.check_connection();
                // An abandoned file has been reported already.
                if !matches!(sent.ending, Some(Ending::Abandoned(_))) {
                    self.ended(receipt.number, sent);
                }
            }
            (News::Agent(Reply::Admission(report)), Some(sent)) => self.note(&admission(*report, sent, self.clock)),
            (News::Agent(Reply::Error(why)), _) => self.note(&format!("the agent reports: {why}")),
            (News::Agent(Reply::Gone), _) => {
                self.note("the connection to the agent is lost; the transfer continues over the current paths");
            }
            _ => {}
        }
        self.show();
    }

    /// Prints the remaining results.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn finish(&self, all: &[Sent]) -> Result<()> {
        self.bar.finish_and_clear();
        let attempt = "printing the result";
        if self.options.json {
            let document = json!({
                "schema": 1,
                "to": self.options.to,
                "multipath": self.multipath,
                "files": all.iter().map(|sent| in_json(sent, self.clock)).collect::<Vec<Value>>(),
            });
            return output::print(attempt, format!("{document:#}\n"));
        }
        let unfinished = all.iter().filter(|sent| sent.ending.is_none());
        output::print(attempt, unfinished.map(|sent| line(sent) + "\n").collect::<String>())
    }

    fn ended(&mut self, number: u32, sent: &Sent) {
        self.open.remove(&number);
        self.ended_bytes += sent.size_bytes;
        if !self.options.json {
            // A closed standard output must not fail the transfer.
            self.bar.suspend(|| drop(output::print("printing the result", line(sent) + "\n")));
        }
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("crosslane: {text}"));
    }

    fn check_connection(&mut self) {
        if self.multipath && !is_multipath(self.socket) {
            self.multipath = false;
            self.note(
                "plain TCP is used, since MPTCP is missing here, at the receiver or on the path; \
                 the transfer continues over one path",
            );
        }
    }

    fn show(&mut self) {
        self.bar.set_position(self.ended_bytes + self.open.values().sum::<u64>());
        if !self.shown && self.clock.now() >= Instant::ZERO + SHOW_AFTER {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

/// The agent's prediction for a deadline.
fn admission(report: AdmissionReport, sent: &Sent, clock: Clock) -> String {
    let name = shown(sent);
    match (report.can_be_met, predicted_s(report, sent, clock)) {
        (Some(true), Some(predicted_s)) => format!("{name} will be complete in {predicted_s:.1} s at the latest"),
        (Some(false), Some(predicted_s)) => {
            format!("the deadline of {name} cannot be met; predicted completion: in {predicted_s:.1} s")
        }
        _ => format!("no prediction for {name} is available yet"),
    }
}

/// Predicted completion, in seconds after the file was generated.
fn predicted_s(report: AdmissionReport, sent: &Sent, clock: Clock) -> Option<f64> {
    let predicted = Instant::from_nanos(report.predicted_ns?.saturating_sub(clock.origin_ns()));
    Some(predicted.since(sent.upload.start).as_secs_f64())
}

fn line(sent: &Sent) -> String {
    let (name, bytes) = (shown(sent), sent.size_bytes);
    let result = match sent.ending {
        Some(Ending::Stored) => stored(sent),
        Some(Ending::Differs) => "not stored: the received bytes differ from those sent; send it again".into(),
        Some(Ending::Refused) => format!("not stored: {}", sent.text),
        Some(Ending::Abandoned(why)) => format!("abandoned after {} bytes: {}", sent.acked_bytes, why.words()),
        None => format!("not finished: {} bytes of it are acknowledged", sent.acked_bytes),
    };
    format!("{name}  {bytes} bytes  {result}")
}

fn stored(sent: &Sent) -> String {
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

fn in_json(sent: &Sent, clock: Clock) -> Value {
    let deadline = sent.upload.deadline.map(|deadline| deadline.since(sent.upload.start).as_secs_f64());
    let admission = sent
        .admission
        .map(|report| json!({ "can_be_met": report.can_be_met, "predicted_s": predicted_s(report, sent, clock) }));
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
        "completion_s": sent.completion().map(|time| time.as_secs_f64()),
        "deadline_s": deadline,
        "in_time": sent.in_time(),
        "admission": admission,
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
