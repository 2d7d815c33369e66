//! What a segment that arrives does.

use crosslane_core::mptcp::{AddressId, Event};
use crosslane_core::time::Instant;

use super::super::congestion::{Coupled, Member, couple};
use super::super::receiver::Mapping;
use super::super::segment::{ACK, FIN, MptcpOptions, PSH, SYN, Segment};
use super::super::subflow::{Phase, Subflow};
use super::{Endpoint, MAX_SUBFLOWS, Protocol};

impl Endpoint {
    /// A segment arrives that was sent at `sent`.
    pub fn on_segment(&mut self, now: Instant, segment: &Segment, sent: Instant) {
        let Some(place) = self.place_of(segment.port).or_else(|| self.accept(now, segment)) else {
            self.answer_stranger(segment);
            return;
        };
        let subflow = &mut self.subflows[place];
        (subflow.heard, subflow.echo) = (now, sent);
        // Segments of a handshake acknowledge no data yet.
        self.edge = self.edge.max(segment.data_ack.unwrap_or(0) + segment.window);
        if segment.flags & SYN != 0 {
            self.shake_hands(now, place, segment, sent);
        } else {
            self.finish_handshake(now, place, segment);
            self.take_acknowledgement(now, place, segment);
            self.take_payload(now, place, segment);
        }
        if segment.flags & FIN != 0 {
            self.hear_end(now, place);
        }
        self.push(now);
        self.transmit(now);
    }

    /// A SYN opens a subflow at the server.
    fn accept(&mut self, now: Instant, segment: &Segment) -> Option<usize> {
        let opens = !self.client && segment.flags & (SYN | ACK) == SYN && self.subflows.len() < MAX_SUBFLOWS;
        if !opens {
            return None;
        }
        let join = segment.options.contains(MptcpOptions::JOIN);
        let id = AddressId(if join { segment.path.0 + 1 } else { 0 });
        let place = self.add(now, segment.path, segment.port, Phase::Accepted, join, id);
        self.subflows[place].backup[1] = segment.backup.unwrap_or(false);
        Some(place)
    }

    /// Whoever closes a subflow repeats its FIN until it is answered.
    fn answer_stranger(&mut self, segment: &Segment) {
        if segment.flags & FIN != 0 {
            let answer = Segment { flags: FIN | ACK, seq: segment.ack, ack: segment.seq + 1, payload: 0, ..*segment };
            self.segments.push_back(answer);
        }
    }

    fn shake_hands(&mut self, now: Instant, place: usize, segment: &Segment, sent: Instant) {
        if !self.client {
            self.answer_syn(place);
            return;
        }
        if segment.flags & ACK == 0 {
            return;
        }
        let subflow = &mut self.subflows[place];
        let first = subflow.phase == Phase::Opening;
        if first {
            subflow.phase = Phase::Open;
            let once = subflow.repeat.times == 0;
            let began = if once { subflow.repeat.first } else { sent };
            subflow.tx.begin(now, now.since(began));
            subflow.repeat.end();
            subflow.usable = !subflow.join;
            if subflow.join {
                subflow.repeat.at = Some(now + subflow.tx.rtt().smoothed().unwrap_or_default() * 2);
            }
        }
        self.send_third(place);
        if first {
            self.tell_opened(place);
        }
    }

    fn tell_opened(&mut self, place: usize) {
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
                subflow.phase = Phase::Open;
                subflow.usable = true;
                let once = subflow.repeat.times == 0;
                let began = subflow.repeat.first;
                if once {
                    subflow.tx.begin(now, now.since(began));
                }
                subflow.repeat.end();
                let join = subflow.join;
                self.tell_opened(place);
                if join {
                    // RFC 8684 §3.2: the fourth segment lets the opener send.
                    self.send_ack(place);
                }
            }
            Phase::Open if self.client => {
                subflow.usable = true;
                subflow.repeat.end();
            }
            // The fourth segment was lost.
            Phase::Open if segment.options.contains(MptcpOptions::JOIN) => self.send_ack(place),
            _ => {}
        }
    }

    fn take_acknowledgement(&mut self, now: Instant, place: usize, segment: &Segment) {
        if segment.flags & ACK == 0 {
            return;
        }
        if let Some(backup) = segment.backup.filter(|_| segment.options.contains(MptcpOptions::PRIO)) {
            self.subflows[place].backup[1] = backup;
            let subflow = self.named(&self.subflows[place]);
            self.events.push_back(Event::SubflowPriority { token: self.token, subflow });
        }
        if let Some(id) = segment.removed {
            self.hear_removal(now, AddressId(id));
        }
        if let Some(data_ack) = segment.data_ack {
            self.take_data_ack(now, place, data_ack);
        }
        let coupled = self.coupled(place);
        self.subflows[place].tx.on_ack(now, segment.ack, segment.sack, segment.echo, &coupled);
        if self.settings.protocol == Protocol::Tcp {
            let una = self.subflows[place].tx.acked_data();
            self.edge = self.edge.max(una + segment.window);
            self.take_data_ack(now, place, una);
        }
    }

    fn take_data_ack(&mut self, now: Instant, place: usize, data_ack: u64) {
        if data_ack <= self.una || data_ack > self.sent {
            return;
        }
        self.una = data_ack;
        self.frags.acknowledge(data_ack);
        if !self.established && self.client {
            self.established = true;
            let subflow = self.named(&self.subflows[place]);
            if self.settings.protocol == Protocol::Mptcp {
                self.events.push_back(Event::Established { token: self.token, subflow, server_side: false });
            }
        }
        // Linux `__mptcp_clean_una`: progress begins the timer anew.
        let all = self.una == self.frags.written();
        self.retransmit_at = (!all).then(|| self.settings.ticks.after(now, self.interval));
    }

    fn take_payload(&mut self, now: Instant, place: usize, segment: &Segment) {
        if segment.payload == 0 {
            return;
        }
        // Linux `check_fully_established`: data with a mapping is as good as its acknowledgement.
        if !self.established {
            self.established = true;
            let subflow = self.named(&self.subflows[place]);
            if self.settings.protocol == Protocol::Mptcp {
                self.events.push_back(Event::Established { token: self.token, subflow, server_side: !self.client });
            }
        }
        let piece = Mapping { dsn: segment.dsn.unwrap_or(segment.seq - 1), len: u64::from(segment.payload) };
        let mut ordered = Vec::new();
        self.subflows[place].rx.measure(now, segment.echo, piece.len);
        self.subflows[place].rx.take(now, segment.seq, piece, segment.flags & PSH != 0, &mut ordered);
        let mut read = false;
        for piece in ordered {
            read |= self.inbox.take(piece);
        }
        if read {
            let longest = self.subflows.iter().filter_map(|subflow| subflow.rx.rtt()).max();
            if let Some(rtt) = longest {
                self.inbox.measure(now, rtt);
            }
            // The reader empties the queue, whatever subflow filled it.
            self.subflows.iter_mut().for_each(|subflow| subflow.rx.read());
        }
    }

    /// The peer has closed a subflow: so do we, and send its data elsewhere.
    fn hear_end(&mut self, now: Instant, place: usize) {
        let subflow = self.subflows.remove(place);
        if subflow.phase == Phase::Closing {
            return;
        }
        self.segments.push_back(self.bare(&subflow, FIN | ACK));
        let named = self.named(&subflow);
        self.events.push_back(Event::SubflowClosed { token: self.token, subflow: named, error: 0 });
        self.reinject(now);
    }

    /// The peer has withdrawn an address: its subflows are closed, and what they
    /// carried is sent elsewhere.
    fn hear_removal(&mut self, now: Instant, id: AddressId) {
        let of = |subflow: &Subflow| subflow.phase == Phase::Open && self.named(subflow).remote_id == id;
        let places: Vec<usize> = (0..self.subflows.len()).filter(|&place| of(&self.subflows[place])).collect();
        for place in places {
            let subflow = self.named(&self.subflows[place]);
            self.events.push_back(Event::SubflowClosed { token: self.token, subflow, error: 0 });
            self.close(now, place);
        }
    }

    fn coupled(&self, place: usize) -> Coupled {
        if !self.settings.algorithm.is_coupled() {
            return Coupled::default();
        }
        let member = |subflow: &Subflow| Member {
            window: subflow.tx.control().window,
            rtt: subflow.tx.rtt().smoothed().unwrap_or_default(),
            loss_interval: subflow.tx.control().loss_interval(),
        };
        let open = |subflow: &&Subflow| subflow.is_usable();
        let own = self.subflows[..place].iter().filter(open).count();
        let members: Vec<Member> = self.subflows.iter().filter(open).map(member).collect();
        couple(self.settings.algorithm, &members, own)
    }
}
