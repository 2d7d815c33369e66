//! How packets come from the ends of the traffic to the links and back, through
//! the tunnel if there is one.

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;

use super::links::Cargo;
use super::packet::Packet;
use super::tunnel::Left;
use super::{Side, Simulation};

impl Simulation {
    /// Takes what the links deliver.
    pub(super) fn arrive(&mut self) {
        while let Some((cargo, direction)) = self.wires.poll(self.now, &mut self.recording.sums) {
            match (cargo, &mut self.tunnel) {
                (Cargo::Bare(packet), _) => self.deliver(direction, packet),
                (Cargo::Tunnelled(parcel), Some(tunnel)) => tunnel.arrive(self.now, direction, parcel),
                (Cargo::Tunnelled(_), None) => {}
            }
        }
        self.exchange();
    }

    /// Lets go what the ends of the traffic want to send.
    pub(super) fn depart(&mut self) {
        loop {
            for direction in Direction::BOTH {
                while let Some((path, packet)) = self.next_packet(direction) {
                    match &mut self.tunnel {
                        Some(tunnel) => tunnel.enter(self.now, direction, packet),
                        None => {
                            let (cargo, sums) = (Cargo::Bare(packet), &mut self.recording.sums);
                            self.wires.send(self.now, (path, direction), cargo, sums);
                        }
                    }
                }
            }
            if !self.exchange() {
                return;
            }
            self.play(false);
        }
    }

    /// Tells the tunnel what the agent wants of the paths.
    pub(super) fn steer(&mut self) {
        if let (Some(tunnel), Some(wanted)) = (&mut self.tunnel, self.path_control.wanted()) {
            tunnel.want(self.now, wanted);
        }
    }

    fn next_packet(&mut self, direction: Direction) -> Option<(PathId, Packet)> {
        let end = if direction == Direction::Up { &mut self.vehicle } else { &mut self.server };
        if let Some(segment) = end.poll_segment() {
            return Some((segment.path, Packet::Segment(segment, self.now)));
        }
        self.traffic.poll_datagram(direction).map(|datagram| (self.first, Packet::Datagram(datagram)))
    }

    /// Carries what comes out of the ends of the tunnel; true if something has
    /// reached its destination.
    fn exchange(&mut self) -> bool {
        let mut delivered = false;
        for direction in Direction::BOTH {
            while let Some(left) = self.tunnel.as_mut().and_then(|tunnel| tunnel.poll(self.now, direction)) {
                match left {
                    Left::Over(parcel) => {
                        let way = (parcel.path, direction);
                        self.wires.send(self.now, way, Cargo::Tunnelled(parcel), &mut self.recording.sums);
                    }
                    Left::Changed(path, liveness, reason) => {
                        self.recording.liveness.push((self.now, side(direction), path, liveness, reason));
                    }
                    Left::Out(packet) => {
                        // It came from the other side.
                        let from = if direction == Direction::Up { Direction::Down } else { Direction::Up };
                        self.deliver(from, packet);
                        delivered = true;
                    }
                }
            }
        }
        delivered
    }

    fn deliver(&mut self, direction: Direction, packet: Packet) {
        match (packet, direction) {
            (Packet::Segment(segment, sent), Direction::Up) => self.server.on_segment(self.now, &segment, sent),
            (Packet::Segment(segment, sent), Direction::Down) => self.vehicle.on_segment(self.now, &segment, sent),
            (Packet::Datagram(datagram), _) => self.traffic.receive(self.now, datagram),
        }
    }
}

fn side(way: Direction) -> Side {
    match way {
        Direction::Up => Side::Vehicle,
        Direction::Down => Side::Server,
    }
}
