//! Why a path carries what it does, in words for its user.

use alloc::format;
use alloc::string::String;

use super::paths::{NEGLIGIBLE_DELAY_US, Paths};
use super::scheduler::{Scheduler, class, is_small};
use super::send_path::{Liveness, SendPath};
use super::{Mode, Tunnel};
use crate::path::{PathId, PathState};

impl<P: Clone> Tunnel<P> {
    /// What a path carries and why, in a few words.
    pub(super) fn explain(&self, path: PathId) -> String {
        let Some(sender) = self.paths.get(path).map(|path| &path.sender) else { return String::new() };
        let (mine, best) = (class(sender), self.paths.senders().filter_map(class).min());
        let is_active = sender.wanted_state == PathState::Active;
        match sender.liveness() {
            _ if !sender.is_open() => "nothing: its wanted state is closed".into(),
            _ if mine == best => in_use(path, sender, self.mode, &self.paths, &self.scheduler),
            Liveness::Recovering => "copies only, until these show that it delivers".into(),
            Liveness::Up if self.mode == Mode::Adaptive => "what is at risk on the paths that are preferred".into(),
            Liveness::Up => "nothing: it is a backup, and an active path is up".into(),
            _ if is_active && self.mode == Mode::Redundant => "a few copies, in case it delivers them".into(),
            _ => "probes only: another path delivers".into(),
        }
    }
}

/// The same of a path that may carry packets now.
fn in_use<P>(path: PathId, sender: &SendPath<P>, mode: Mode, paths: &Paths<P>, scheduler: &Scheduler) -> String {
    let best = class(sender);
    let others = || paths.iter().filter(|(id, other)| *id != path && class(&other.sender) == best);
    if others().next().is_none() {
        return "all packets: no other path may carry any".into();
    }
    let place = |path: PathId| (paths.order.rank(path), path);
    let is_first = others().all(|(other, _)| place(path) < place(other));
    match mode {
        Mode::Standby if is_first => "all packets: it is the most preferred path that delivers".into(),
        Mode::Standby => "nothing: a more preferred path delivers".into(),
        Mode::CheapestFirst if is_first => "what it has room for: it is the most preferred path that delivers".into(),
        Mode::Adaptive if is_first => "what it has room for, while its answers are in time: it is preferred".into(),
        Mode::Adaptive => "what is at risk on a more preferred path, or has waited for 5 ms for it".into(),
        Mode::CheapestFirst => "what has waited for 5 ms for a more preferred path".into(),
        Mode::PerFlow => format!("the packets of {} flow slots of 256", scheduler.flows_on(path)),
        Mode::Redundant if sender.has_room_for_copies() => "a copy of each packet".into(),
        Mode::Redundant => format!("fewer copies: {} kB are in flight", sender.bytes_in_flight() / 1000),
        Mode::Aggregate => by_arrival(path, sender, paths, scheduler),
    }
}

/// The same in mode aggregate.
fn by_arrival<P>(path: PathId, sender: &SendPath<P>, paths: &Paths<P>, scheduler: &Scheduler) -> String {
    let reference = paths.reference_delay();
    let delay_us = |sender: &SendPath<P>| Some(sender.one_way_delay?.minus_us(reference));
    let lowest = paths.senders().filter(|sender| sender.is_used()).filter_map(delay_us).min();
    let Some(later_us) = delay_us(sender).zip(lowest).map(|(delay, lowest)| (delay - lowest).max(0)) else {
        return "packets that arrive first over it: its delay is not known yet".into();
    };
    let later_ms = later_us / 1000;
    if scheduler.primary == Some(path) {
        return format!("bulk flows first: it is the fastest path, {later_ms} ms later than the lowest-delay path");
    }
    let used = paths.senders().filter(|sender| sender.is_used());
    let rated = used.filter_map(|sender| Some((sender.estimated_bytes_s()?, delay_us(sender)?)));
    let (fastest, its_delay_us) = rated.max_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or_default();
    let repair_us = sender.rtt.min.unwrap_or_default().as_micros() as i64;
    let holds_up = sender.counts.is_lossy() && delay_us(sender).is_some_and(|us| us + repair_us > its_delay_us);
    let loss_percent = sender.counts.lasting_loss() * 100.0;
    if holds_up && is_small(sender.estimated_bytes_s(), fastest) {
        return format!(
            "bulk flows only while much waits: it is much slower than another path and loses {loss_percent:.1} %"
        );
    }
    if later_us == 0 {
        return "packets that arrive first over it: it has the lowest delay".into();
    }
    let lossy = if sender.counts.is_lossy() { format!(", and it loses {loss_percent:.1} %") } else { String::new() };
    if later_us <= NEGLIGIBLE_DELAY_US {
        return format!("packets that arrive first over it: {later_ms} ms later than the lowest-delay path{lossy}");
    }
    format!("packets only while many wait: {later_ms} ms later than the lowest-delay path{lossy}")
}
