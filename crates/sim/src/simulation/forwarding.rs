//! Forwarding of packets between the traffic's endpoints and the links, through
//! the tunnel if there is one.

use crosslane_core::link::Direction;
use crosslane_core::path::PathId;

use super::links::LinkPacket;
use super::packet::Packet;
use super::tunnel::TunnelOutput;
use super::{Side, Simulation};

impl Simulation {
    /// Receives what the links deliver.
    pub(super) fn receive_from_links(&mut self) {
        while let Some((content, direction)) = self.wires.poll(self.now) {
            match (content, &mut self.tunnel) {
                (LinkPacket::Direct(packet), _) => self.deliver(direction, packet),
                (LinkPacket::Tunnelled(datagram), Some(tunnel)) => tunnel.receive(self.now, direction, datagram),
                (LinkPacket::Tunnelled(_), None) => {}
                (LinkPacket::Probe(path, bytes), _) if direction == Direction::Up => {
                    self.wires.send(self.now, path, Direction::Down, LinkPacket::Probe(path, bytes));
                }
                (LinkPacket::Probe(path, _), _) => self.path_control.on_answer(self.now, path),
                (LinkPacket::Echo(path, number), _) if direction == Direction::Up => {
                    self.wires.send(self.now, path, Direction::Down, LinkPacket::Echo(path, number));
                }
                (LinkPacket::Echo(path, number), _) => self.path_control.on_echo(self.now, path, number),
            }
        }
        self.exchange();
    }

    /// Transmits what the endpoints have to send.
    pub(super) fn transmit(&mut self) {
        loop {
            for direction in Direction::BOTH {
                while let Some((path, packet)) = self.next_packet(direction) {
                    match &mut self.tunnel {
                        Some(tunnel) => tunnel.enter(self.now, direction, packet),
                        // Without a slot the unit has no tunnel: there is no route.
                        None if !self.path_control.stands(path) => {}
                        None => self.wires.send(self.now, path, direction, LinkPacket::Direct(packet)),
                    }
                }
            }
            if !self.exchange() {
                return;
            }
            self.advance_traffic(false);
        }
    }

    fn next_packet(&mut self, direction: Direction) -> Option<(PathId, Packet)> {
        let of_transfer = self.transfer.as_mut().and_then(|transfer| transfer.poll_segment(direction));
        if let Some(segment) = of_transfer {
            return Some((segment.path, Packet::Segment(segment, self.now)));
        }
        let endpoint = if direction == Direction::Up { &mut self.vehicle } else { &mut self.server };
        if let Some(segment) = endpoint.poll_segment() {
            return Some((segment.path, Packet::Segment(segment, self.now)));
        }
        let path = self.path_control.standing(self.now, self.first, &self.tried).unwrap_or(self.first);
        self.traffic.poll_datagram(direction).map(|datagram| (path, Packet::Datagram(datagram)))
    }

    /// Forwards the output of the tunnel's endpoints; true if a packet has
    /// reached its destination.
    fn exchange(&mut self) -> bool {
        let mut delivered = false;
        for direction in Direction::BOTH {
            while let Some(tunnel) = &mut self.tunnel
                && let Some(output) = tunnel.poll(self.now, direction)
            {
                match output {
                    TunnelOutput::Datagram(datagram) => {
                        self.wires.send(self.now, datagram.path, direction, LinkPacket::Tunnelled(datagram));
                    }
                    TunnelOutput::LivenessChanged(path, liveness, reason) => {
                        let side = if direction == Direction::Up { Side::Vehicle } else { Side::Server };
                        self.recording.liveness.push((self.now, side, path, liveness, reason));
                    }
                    TunnelOutput::Delivered(packet) => {
                        // The opposite endpoint sent it.
                        let sender_direction = if direction == Direction::Up { Direction::Down } else { Direction::Up };
                        self.deliver(sender_direction, packet);
                        delivered = true;
                    }
                }
            }
        }
        delivered
    }

    fn deliver(&mut self, direction: Direction, packet: Packet) {
        if let (Some(transfer), Packet::Segment(segment, sent)) = (&mut self.transfer, &packet) {
            return transfer.on_segment(self.now, direction, segment, *sent);
        }
        match (packet, direction) {
            (Packet::Segment(segment, sent), Direction::Up) => self.server.on_segment(self.now, &segment, sent),
            (Packet::Segment(segment, sent), Direction::Down) => self.vehicle.on_segment(self.now, &segment, sent),
            (Packet::Datagram(datagram), _) => self.traffic.receive(self.now, datagram),
        }
    }
}
