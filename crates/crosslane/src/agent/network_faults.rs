//! Networks that do not let MPTCP pass: what the kernel counts of handshakes, and what the agent reports of it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crosslane_core::actuator;
use crosslane_core::agent::Output;
use crosslane_core::mptcp::{HandshakeCounters, NETWORK_PASSES, Notice, PlainConnection};
use crosslane_core::path::PathId;
use crosslane_core::reason::Reason;

use super::Driver;
use crate::control::report::ReasonReport;
use crate::kernel_counters;

/// Longest table of counters that is read, in bytes; that of Linux 6.18 has 5 kB.
const MAX_TABLE: usize = 16_384;

/// The kernel's counters of MPTCP in this network namespace.
#[derive(Debug)]
pub struct Handshakes {
    table: Option<File>,
    last: Option<HandshakeCounters>,
}

impl Handshakes {
    pub fn open() -> Handshakes {
        Handshakes { table: File::open("/proc/thread-self/net/netstat").ok(), last: None }
    }

    /// The counters if they have changed, or are read for the first time, and whether connections fell back to TCP.
    fn changed(&mut self) -> Option<(HandshakeCounters, bool)> {
        let mut text = vec![0; MAX_TABLE];
        let length = self.table.as_ref()?.read_at(&mut text, 0).ok()?;
        let now = counters(std::str::from_utf8(&text[..length]).ok()?)?;
        let before = self.last.replace(now);
        (before != Some(now)).then_some((now, before.is_some_and(|before| now.fallbacks > before.fallbacks)))
    }
}

/// The counters of the table `MPTcpExt` (Linux `net/mptcp/mib.c`); one that a kernel lacks is 0.
fn counters(netstat: &str) -> Option<HandshakeCounters> {
    let value = kernel_counters::table(netstat, "MPTcpExt")?;
    Some(HandshakeCounters {
        answered: value("MPCapableSYNACKRX").unwrap_or(0),
        fallbacks: value("MPCapableFallbackSYNACK").unwrap_or(0),
        blackholes: value("Blackhole").unwrap_or(0),
        disabled: value("MPCapableSYNTXDisabled").unwrap_or(0),
    })
}

impl Driver {
    /// Passes the counters of handshakes to the engine.
    pub(super) fn observe_handshakes(&mut self) {
        let Some(mptcp) = &mut self.mptcp else { return };
        let Some((counters, fell_back)) = self.handshakes.changed() else { return };
        let mut plain = Vec::new();
        if fell_back {
            // Those that are gone already are not found.
            let sockets = mptcp.diag.sockets().unwrap_or_default();
            let fallen = sockets.iter().filter(|socket| socket.mptcp.is_some_and(|mptcp| mptcp.fell_back()));
            plain.extend(fallen.filter_map(|socket| {
                Some(PlainConnection { path: self.path_of(socket.local.ip())?, peer: socket.remote.ip() })
            }));
        }
        self.handle(actuator::Event::Handshakes(counters, plain).into());
    }

    /// What the networks of the paths do to MPTCP, with a remedy.
    pub(super) fn network_faults(&self) -> Vec<(Option<PathId>, Reason)> {
        let mut faults = self.engine.network_faults(self.clock.now());
        for (_, reason) in &mut faults {
            *reason = Reason::plain(reason.rule, reason.text() + &self.tunnel_as_remedy())
                .with(reason.inputs.iter().copied());
        }
        faults
    }

    /// What the network of a path does to MPTCP: the last finding.
    pub(super) fn network_fault(&self, faults: &[(Option<PathId>, Reason)], path: PathId) -> Option<ReasonReport> {
        faults.iter().find(|(of, _)| *of == Some(path)).map(|(_, reason)| reason.into())
    }

    /// The same output, with a remedy if it names what a network does to MPTCP.
    pub(super) fn with_remedy(&self, mut output: Output) -> Output {
        if let Output::Notice(Notice::Network { rule, text, .. }) = &mut output
            && *rule != NETWORK_PASSES
        {
            *text += &self.tunnel_as_remedy();
        }
        output
    }

    fn tunnel_as_remedy(&self) -> String {
        match &self.config.tunnel {
            Some(tunnel) => {
                let interface = &tunnel.get_ref().interface;
                format!(
                    "; the tunnel uses all paths in spite of that: `ip route add ADDRESS dev {interface}` leads what goes to \
                     a server through it"
                )
            }
            None => "; a tunnel ([tunnel]) would pass it".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text =
            "TcpExt: A\nTcpExt: 7\nMPTcpExt: MPCapableSYNACKRX Blackhole MPCapableFallbackSYNACK\nMPTcpExt: 3 4 5\n";
        let expected = HandshakeCounters { answered: 3, fallbacks: 5, blackholes: 4, disabled: 0 };
        assert_eq!(counters(text), Some(expected));
        assert_eq!(counters("TcpExt: A\nTcpExt: 7\n"), None);
        assert_eq!(counters(""), None);
    }

    #[test]
    fn this_kernel_s_table_fits() {
        let table = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        assert!(table.len() < MAX_TABLE && counters(&table).is_some(), "{} bytes", table.len());
    }
}
