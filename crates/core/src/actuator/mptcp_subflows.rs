//! MPTCP's path manager as an actuator: a subflow for each wanted path.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::{Actuator, Command, Event, Output, Verdict, Wanted};
use crate::assess::{Belief, StalledSubflow};
use crate::mptcp::manager::{ConnectionChange, ConnectionView, Manager, PathUse};
use crate::mptcp::{MeasuredSubflow, Token};
use crate::path::{PathId, PathState};
use crate::reason::Reason;
use crate::time::Instant;

impl Actuator for Manager {
    fn apply(&mut self, wanted: &Wanted, verdicts: &[Verdict]) {
        let is_lost = |verdict: &Verdict| matches!(verdict.belief, Belief::Lost | Belief::Stalled);
        self.set_lost(verdicts.iter().map(is_lost).collect());
        self.set_reasons(verdicts.iter().map(Verdict::reasons));
        self.set_wanted(wanted);
    }

    fn handle(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Mptcp(event) => Manager::handle(self, now, event),
            Event::Resync(snapshots) => self.resync(now, snapshots),
            Event::Refused(command, why) => self.refused(now, command, *why),
            Event::Class(token, class) => self.set_class(*token, *class),
            Event::Stalled(path, StalledSubflow { token, peer }) => self.abandon(now, Token(*token), *path, *peer),
            Event::Address { path, local, if_index } => self.set_address(now, *path, *local, *if_index),
            Event::FormerAddress { path, local } => self.add_former_address(*path, *local),
            Event::PathAdded(path, spec) => self.add_path(now, *path, spec.clone()),
            Event::Handshakes(counters, plain) => self.observe_handshakes(*counters, plain),
            Event::Endpoints(_) | Event::Missed(_) | Event::TunnelStarted => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Output> {
        let command = Manager::poll(self, now).map(|(path, command)| Output::Command(Command::Mptcp(path, command)));
        command.or_else(|| self.poll_notice().map(Output::Notice))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        Manager::next_wakeup(self)
    }

    fn found(&self, event: &Event) -> Vec<(PathId, PathState)> {
        let Event::Resync(snapshots) = event else { return Vec::new() };
        let subflows = snapshots.iter().flat_map(|connection| &connection.subflows);
        let state = |backup| if backup { PathState::Backup } else { PathState::Active };
        subflows.filter_map(|subflow| Some((self.path_of(subflow.local.ip())?, state(subflow.backup)))).collect()
    }

    fn subflows(&self, after: Option<Token>) -> Box<dyn Iterator<Item = MeasuredSubflow> + '_> {
        Box::new(Manager::subflows(self, after))
    }

    fn subflow(&self, token: Token, local: SocketAddr, remote: SocketAddr) -> Option<MeasuredSubflow> {
        Manager::subflow(self, token, local, remote)
    }

    fn connections(&self, after: Option<Token>, limit: usize) -> Vec<ConnectionView> {
        self.views(after, limit)
    }

    fn path_uses(&self, now: Instant, token: Token) -> Option<Vec<PathUse>> {
        Manager::path_uses(self, now, token)
    }

    fn history(&self, token: Token) -> Vec<ConnectionChange> {
        Manager::history(self, token)
    }

    fn network_faults(&self, now: Instant) -> Vec<(Option<PathId>, Reason)> {
        Manager::network_faults(self, now)
    }

    fn connection_count(&self) -> usize {
        Manager::connections(self)
    }

    fn left_out(&self) -> u64 {
        Manager::left_out(self)
    }
}
