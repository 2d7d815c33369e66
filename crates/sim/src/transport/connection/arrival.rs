//! Processing of received segments.

use crosslane_core::mptcp::{AddressId, Event};
use crosslane_core::time::Instant;

use super::super::congestion::{Congestion, Coupled, Member, couple};
use super::super::receiver::Mapping;
use super::super::segment::{ACK, FIN, MptcpOptions, PSH, RST, SYN, Segment};
use super::super::subflow::{Phase, Subflow};
use super::{Endpoint, MAX_SUBFLOWS, Protocol};

/// `errno` of a subflow that the peer has reset (ECONNRESET).
const RESET: u8 = 104;

impl Endpoint {
    /// Receives a segment that was sent at `sent`.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment, sent: Instant) {
        let Some(place) = self.place_of(segment.port).or_else(|| self.accept(now, segment)) else {
            self.answer_unknown(segment);
            return;
        };
        let subflow = &mut self.subflows[place];
        subflow.last_received = now;
        if subflow.rejects(segment, sent) {
            return self.transmit(now);
        }
        subflow.note_timestamp(segment, sent);
        // Segments of a handshake do not acknowledge data.
        self.data.extend(segment.data_ack.unwrap_or(0) + segment.window);
        if segment.flags & SYN != 0 {
            self.on_syn(now, place, segment, sent);
        } else {
            self.finish_handshake(now, place, segment);
            self.on_acknowledgement(now, place, segment);
            self.on_payload(now, place, segment);
        }
        if segment.flags & RST != 0 {
            self.on_reset(now, place);
        } else if segment.flags & FIN != 0 {
            self.on_fin(now, place);
        }
        self.push(now);
        self.transmit(now);
    }

    /// Opens a subflow at the server for a SYN.
    fn accept(&mut self, now: Instant, segment: &Segment) -> Option<usize> {
        if self.client || segment.flags & (SYN | ACK) != SYN || self.subflows.len() >= MAX_SUBFLOWS {
            return None;
        }
        let join = segment.options.contains(MptcpOptions::JOIN);
        if !join && self.subflows.iter().any(|subflow| self.connected || subflow.port > segment.port) {
            return None;
        }
        // The client connects again.
        self.subflows.retain(|_| join);
        let id = AddressId(segment.joins.unwrap_or(0));
        let place = self.add(now, segment.path, segment.port, Phase::Accepted, join, id);
        self.subflows[place].backup[1] = segment.backup.unwrap_or(false);
        Some(place)
    }

    /// Answers a FIN of an unknown subflow: its sender retransmits it until it is
    /// answered.
    fn answer_unknown(&mut self, segment: &Segment) {
        if segment.flags & FIN != 0 {
            let answer = Segment { flags: FIN | ACK, seq: segment.ack, ack: segment.seq + 1, payload: 0, ..*segment };
            self.segments.push_back(answer);
        }
    }

    fn on_syn(&mut self, now: Instant, place: usize, segment: &Segment, sent: Instant) {
        if !self.client {
            self.send_syn_ack(place);
            return;
        }
        if segment.flags & ACK == 0 {
            return;
        }
        let subflow = &mut self.subflows[place];
        let first = subflow.phase == Phase::Opening;
        if first {
            subflow.phase = Phase::Open;
            let began = if subflow.retry.attempts == 0 { subflow.retry.first } else { sent };
            subflow.tx.begin(now, now.since(began));
            subflow.usable = !subflow.join;
            subflow.retry.at = subflow.join.then(|| now + subflow.smoothed_rtt() * 2);
        }
        self.send_third(place);
        if first {
            self.report_opened(place);
        }
    }

    fn report_opened(&mut self, place: usize) {
        self.connected = true;
        if self.settings.protocol == Protocol::Tcp {
            return;
        }
        let subflow = self.named(&self.subflows[place]);
        let token = self.token;
        self.events.push_back(match self.subflows[place].join {
            true => Event::SubflowEstablished { token, subflow },
            false => Event::Created { token, subflow, server_side: !self.client },
        });
    }

    fn finish_handshake(&mut self, now: Instant, place: usize, segment: &Segment) {
        let subflow = &mut self.subflows[place];
        match subflow.phase {
            Phase::Accepted if segment.flags & ACK != 0 => {
                (subflow.phase, subflow.usable, subflow.retry.at) = (Phase::Open, true, None);
                if subflow.retry.attempts == 0 {
                    subflow.tx.begin(now, now.since(subflow.retry.first));
                }
                self.report_opened(place);
                if self.subflows[place].join {
                    // RFC 8684 §3.2: the initiator may send after the fourth segment.
                    self.send_ack(place);
                }
            }
            Phase::Open if self.client => (subflow.usable, subflow.retry.at) = (true, None),
            // The fourth segment was lost.
            Phase::Open if segment.options.contains(MptcpOptions::JOIN) => self.send_ack(place),
            _ => {}
        }
    }

    fn on_acknowledgement(&mut self, now: Instant, place: usize, segment: &Segment) {
        if segment.flags & ACK == 0 {
            return;
        }
        if let Some(backup) = segment.backup.filter(|_| segment.options.contains(MptcpOptions::PRIO)) {
            self.subflows[place].backup[1] = backup;
            let subflow = self.named(&self.subflows[place]);
            self.events.push_back(Event::SubflowPriority { token: self.token, subflow });
        }
        if let Some(id) = segment.removed {
            self.on_remove_addr(now, AddressId(id));
        }
        if let Some(data_ack) = segment.data_ack {
            self.on_data_ack(now, place, data_ack);
        }
        let coupled = self.coupled(place);
        let tx = &mut self.subflows[place].tx;
        tx.on_ack(now, segment.ack, &segment.sack, segment.echo, &coupled);
        if self.is_awaited {
            tx.expand_buffer();
        }
        if self.settings.protocol == Protocol::Tcp {
            // Its sequence numbers are data sequence numbers.
            let acknowledged = self.subflows[place].tx.una - 1;
            self.data.extend(acknowledged + segment.window);
            self.on_data_ack(now, place, acknowledged);
        }
    }

    fn on_data_ack(&mut self, now: Instant, place: usize, data_ack: u64) {
        if !self.data.acknowledge(data_ack) {
            return;
        }
        self.frags.acknowledge(data_ack);
        if self.client {
            self.establish(place);
        }
        // Linux `__mptcp_clean_una`: progress restarts the timer.
        let all = self.data.acknowledged == self.frags.written;
        self.timer.restart(now, self.settings.ticks, all);
    }

    /// Notes that the peer has acknowledged data on a subflow.
    fn establish(&mut self, place: usize) {
        let before = std::mem::replace(&mut self.established, true);
        if !before && self.settings.protocol == Protocol::Mptcp {
            let subflow = self.named(&self.subflows[place]);
            self.events.push_back(Event::Established { token: self.token, subflow, server_side: !self.client });
        }
    }

    fn on_payload(&mut self, now: Instant, place: usize, segment: &Segment) {
        if segment.payload == 0 {
            return;
        }
        // Linux `check_fully_established`: data with a mapping counts as an acknowledgement.
        self.establish(place);
        let mapping = Mapping { dsn: segment.dsn.unwrap_or(segment.seq - 1), len: u64::from(segment.payload) };
        let mut ordered = Vec::new();
        let rx = &mut self.subflows[place].rx;
        rx.measure(now, segment.echo, mapping.len);
        rx.receive(now, segment.seq, mapping, segment.flags & PSH != 0, &mut ordered);
        let mut read = false;
        for mapping in ordered {
            read |= self.receive_queue.add(mapping);
        }
        if read {
            if let Some(rtt) = self.subflows.iter().filter_map(|subflow| subflow.rx.rtt).max() {
                self.receive_queue.measure(now, rtt);
            }
            // The reader empties the queues of all subflows.
            self.subflows.iter_mut().for_each(|subflow| subflow.rx.read());
        }
    }

    /// Handles the peer's FIN: closes the subflow and re-injects its data.
    fn on_fin(&mut self, now: Instant, place: usize) {
        if self.subflows[place].phase == Phase::Closing {
            self.subflows.remove(place);
            return;
        }
        self.report_closed(place, 0);
        let subflow = self.subflows.remove(place);
        self.segments.push_back(self.segment_of(&subflow, FIN | ACK));
        self.reinject(now);
    }

    /// Handles a reset: the subflow is gone, and its data is re-injected.
    fn on_reset(&mut self, now: Instant, place: usize) {
        if self.subflows[place].phase != Phase::Closing {
            self.report_closed(place, RESET);
        }
        self.subflows.remove(place);
        self.reinject(now);
    }

    /// Handles REMOVE_ADDR: closes the address's subflows and re-injects their
    /// data.
    fn on_remove_addr(&mut self, now: Instant, id: AddressId) {
        let of = |subflow: &Subflow| subflow.phase == Phase::Open && self.named(subflow).remote_id == id;
        let places: Vec<usize> = (0..self.subflows.len()).filter(|&place| of(&self.subflows[place])).collect();
        for place in places {
            self.report_closed(place, 0);
            self.close(now, place);
        }
    }

    fn coupled(&self, place: usize) -> Coupled {
        if !matches!(self.settings.algorithm, Congestion::Lia | Congestion::Olia) {
            return Coupled::default();
        }
        let member = |subflow: &Subflow| Member {
            window: subflow.tx.used_window(),
            rtt: subflow.smoothed_rtt(),
            loss_interval: subflow.tx.control.loss_interval(),
        };
        // RFC 6356 §4.1: a subflow with nothing in flight does not count.
        let counts = |&(other, subflow): &(usize, &Subflow)| {
            other == place || (subflow.is_usable() && subflow.tx.in_flight() > 0)
        };
        let members = self.subflows.iter().enumerate().filter(counts);
        let own = members.clone().filter(|&(other, _)| other < place).count();
        couple(self.settings.algorithm, &members.map(|(_, subflow)| member(subflow)).collect::<Vec<_>>(), own)
    }
}
