//! Transmission of segments.

use crosslane_core::mptcp::AddressId;
use crosslane_core::time::Instant;

use super::super::sack::Sack;
use super::super::segment::{ACK, FIN, MptcpOptions, PSH, SYN, Segment};
use super::super::subflow::{Phase, RetryTimer, Subflow};
use super::{Endpoint, Protocol};

/// `errno` of a subflow whose handshake was not answered (ETIMEDOUT).
const TIMED_OUT: u8 = 110;

impl Endpoint {
    /// Transmits everything that may be sent at `now`.
    pub(super) fn transmit(&mut self, now: Instant) {
        for place in 0..self.subflows.len() {
            if matches!(self.subflows[place].phase, Phase::Opening | Phase::Accepted) {
                continue;
            }
            while let Some(sent) = self.subflows[place].tx.poll(now) {
                let flags = if sent.pushed { ACK | PSH } else { ACK };
                let mut segment = self.acknowledge_with(place, flags);
                segment.seq = sent.seq;
                segment.payload = sent.mapping.len as u16;
                if self.settings.protocol == Protocol::Mptcp {
                    segment.dsn = Some(sent.mapping.dsn);
                    let begins = !self.established && self.client;
                    segment.options = if begins { MptcpOptions::CAPABLE } else { MptcpOptions::DSS };
                }
                self.segments.push_back(segment);
            }
            if self.subflows[place].pending_prio.is_some() || self.subflows[place].rx.wants_ack(now) {
                self.send_ack(place);
            }
        }
        self.close_drained(now);
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, place: usize) {
        let mut segment = self.acknowledge_with(place, ACK);
        if let Some(backup) = self.subflows[place].pending_prio.take() {
            segment.options.insert(MptcpOptions::PRIO);
            segment.backup = Some(backup);
        }
        self.segments.push_back(segment);
    }

    /// Sends REMOVE_ADDR.
    pub(super) fn send_removal(&mut self, place: usize, id: AddressId) {
        let mut segment = self.acknowledge_with(place, ACK);
        segment.options.insert(MptcpOptions::REMOVE_ADDR);
        segment.removed = Some(id.0);
        self.segments.push_back(segment);
    }

    /// Sends the vehicle's SYN.
    pub(super) fn send_syn(&mut self, place: usize) {
        let subflow = &self.subflows[place];
        let joins = subflow.join.then_some(subflow.local_id.0);
        let segment = Segment { seq: 0, joins, ..self.segment_of(subflow, SYN) };
        self.send_handshake(place, segment);
    }

    pub(super) fn send_syn_ack(&mut self, place: usize) {
        let subflow = &self.subflows[place];
        let window = self.receive_queue.clone().advertise().1;
        let segment = Segment { seq: 0, ack: 1, window, echo: subflow.echo, ..self.segment_of(subflow, SYN | ACK) };
        self.send_handshake(place, segment);
    }

    /// Sends the third segment of a handshake.
    pub(super) fn send_third(&mut self, place: usize) {
        let segment = Segment { data_ack: None, ..self.acknowledge_with(place, ACK) };
        self.send_handshake(place, segment);
    }

    fn send_handshake(&mut self, place: usize, mut segment: Segment) {
        let subflow = &self.subflows[place];
        segment.options = match (self.settings.protocol, subflow.join) {
            (Protocol::Tcp, _) => MptcpOptions::default(),
            (Protocol::Mptcp, true) => MptcpOptions::JOIN,
            (Protocol::Mptcp, false) => MptcpOptions::CAPABLE,
        };
        segment.backup = subflow.join.then_some(subflow.backup[0]);
        self.segments.push_back(segment);
    }

    /// A segment that acknowledges the data received.
    fn acknowledge_with(&mut self, place: usize, flags: u8) -> Segment {
        let (data_ack, window) = self.receive_queue.advertise();
        let mptcp = self.settings.protocol == Protocol::Mptcp;
        let (ack, sack) = self.subflows[place].rx.acknowledge(if mptcp { 1 } else { 3 });
        let subflow = &self.subflows[place];
        let options = if mptcp { MptcpOptions::DSS } else { MptcpOptions::default() };
        Segment {
            ack,
            sack,
            window,
            data_ack: mptcp.then_some(data_ack),
            echo: subflow.echo,
            options,
            ..self.segment_of(subflow, flags)
        }
    }

    pub(super) fn segment_of(&self, subflow: &Subflow, flags: u8) -> Segment {
        Segment {
            path: subflow.path,
            port: subflow.port,
            subflow: subflow.number,
            flags,
            seq: subflow.tx.next,
            ack: 0,
            payload: 0,
            dsn: None,
            data_ack: None,
            window: 0,
            sack: Sack::default(),
            options: MptcpOptions::default(),
            joins: None,
            removed: None,
            backup: None,
            echo: Instant::ZERO,
        }
    }

    /// Sends the FIN of locally closed subflows that have drained.
    fn close_drained(&mut self, now: Instant) {
        for place in 0..self.subflows.len() {
            let subflow = &mut self.subflows[place];
            if subflow.phase == Phase::Closing && subflow.retry.at.is_none() && subflow.tx.is_empty() {
                subflow.retry = RetryTimer::begin(now);
                self.send_fin(place);
            }
        }
    }

    fn send_fin(&mut self, place: usize) {
        let segment = self.acknowledge_with(place, FIN | ACK);
        self.segments.push_back(segment);
    }

    /// Retransmits SYNs, SYN/ACKs and FINs that were not answered in time.
    pub(super) fn retry_handshakes(&mut self, now: Instant) {
        let mut place = 0;
        while let Some(subflow) = self.subflows.get_mut(place) {
            let phase = subflow.phase;
            let due = subflow.retry.at.is_some_and(|at| at <= now);
            if due && phase != Phase::Open && !subflow.retry.next_attempt(now) {
                if phase != Phase::Closing {
                    self.report_closed(place, TIMED_OUT);
                }
                self.subflows.remove(place);
                continue;
            }
            match phase {
                _ if !due => {}
                Phase::Opening => self.send_syn(place),
                Phase::Accepted => self.send_syn_ack(place),
                Phase::Open => {
                    // Linux `schedule_3rdack_retransmission`: after two RTTs.
                    subflow.retry.at = Some(now + subflow.smoothed_rtt() * 2);
                    self.send_third(place);
                }
                Phase::Closing => self.send_fin(place),
            }
            place += 1;
        }
    }
}
