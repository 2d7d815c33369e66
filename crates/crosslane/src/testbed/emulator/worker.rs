//! The emulator's thread.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crosslane_core::link::{Direction, DropReason, Exit, Hop, Link, PacketId};
use crosslane_core::time::{Duration, Instant};
use etherparse::Ipv4HeaderSlice;
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockNanosleepFlags, clock_nanosleep};

use super::cpu_pause::Pause;
use super::pool::Pool;
use super::report::{Stalls, micros};
use super::{
    Change, Command, Counters, EmulatedLink, EmulatorReport, LinkReport, PacketRecord, PacketSink, PathDevices, SLOT,
};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::testbed::realtime::become_realtime;
use crate::tun::Tun;

/// Maximum number of packets read from one device before the next is polled.
const BATCH: usize = 64;

/// Longest lateness that is counted, in µs; below 32 ms each µs has its own count.
const LONGEST_US: u64 = 60_000_000;

/// Longest sleep, so that a stall is detected even without traffic.
const HEARTBEAT: Duration = Duration::from_millis(1);

/// Packets (in and out) a millisecond from which the loop wakes up in slots.
const BUSY_PACKETS: usize = 10;

/// Priority under SCHED_FIFO: above ordinary programs, below the kernel's own.
const PRIORITY: i32 = 10;

const TIMER: u64 = u64::MAX;
const WAKEUP: u64 = u64::MAX - 1;

/// State of the thread.
#[derive(Debug)]
pub(super) struct Worker {
    clock: Clock,
    epoll: Epoll,
    timer: TimerFd,
    commands: Receiver<Command>,
    wakeup: Arc<EventFd>,
    /// The links, each with the index of its first path.
    links: Vec<(Link, usize)>,
    paths: Vec<Carried>,
    pool: Pool,
    sink: Option<PacketSink>,
    /// Of released packets, in µs.
    lateness: Histogram<u32>,
    stalls: Stalls,
    pace: Pace,
    wakeup_latency: WakeupLatency,
    /// When the timer expires.
    alarm: Instant,
    /// When the loop began to sleep, if it did.
    slept: Option<Instant>,
    realtime: bool,
    cpu: Duration,
}

/// A path: a station of a link, with its devices.
#[derive(Debug)]
struct Carried {
    name: String,
    /// Source device of each direction; paths over one radio share that of the vehicle.
    devices: [Arc<Tun>; 2],
    /// Of a path over a shared device: destination of the packets that take it.
    address: Option<Ipv4Addr>,
    /// Index of the link, and of the station on it.
    link: usize,
    station: usize,
    counters: [Counters; 2],
}

/// Detects load under which the loop wakes up in slots.
#[derive(Debug, Default)]
struct Pace {
    began: Instant,
    packets: usize,
    busy: bool,
}

impl Pace {
    fn count(&mut self, now: Instant, packets: usize) {
        self.packets += packets;
        if now.since(self.began) >= HEARTBEAT {
            self.busy = self.packets >= BUSY_PACKETS;
            (self.began, self.packets) = (now, 0);
        }
    }
}

/// Time that the kernel needs to wake this thread, as a running median. The
/// timer expires earlier by this time (the rest is a busy wait), and a packet
/// that ended a sleep arrived this long ago.
#[derive(Debug)]
struct WakeupLatency(Duration);

impl WakeupLatency {
    const STEP: Duration = Duration::from_micros(1);
    /// Upper bound: a longer latency means a busy machine, which a busy wait would
    /// make worse.
    const MAX: Duration = Duration::from_micros(60);

    fn learn(&mut self, latency: Duration) {
        self.0 = match latency > self.0 {
            true => (self.0 + Self::STEP).min(Self::MAX),
            false => self.0.saturating_sub(Self::STEP),
        };
    }
}

impl Worker {
    pub(super) fn new(
        clock: Clock,
        links: Vec<EmulatedLink>,
        sink: Option<PacketSink>,
        commands: Receiver<Command>,
        wakeup: Arc<EventFd>,
    ) -> nix::Result<Worker> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        // Edge-triggered: the timer need not be read after it has expired.
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER))?;
        epoll.add(&*wakeup, EpollEvent::new(EpollFlags::EPOLLIN, WAKEUP))?;
        let (mut paths, mut models) = (Vec::new(), Vec::new());
        for EmulatedLink { devices, link } in links {
            let place = models.len();
            models.push((link, paths.len()));
            paths.extend(devices.into_iter().enumerate().map(|(station, devices)| {
                let PathDevices { name, vehicle, address, server } = devices;
                let (devices, counters) = ([vehicle, Arc::new(server)], [Counters::default(); 2]);
                Carried { name, devices, address, link: place, station, counters }
            }));
        }
        for (place, carried) in paths.iter().enumerate() {
            let is_first = |direction| {
                let device = &carried.devices[direction as usize];
                !paths[..place].iter().any(|other: &Carried| Arc::ptr_eq(&other.devices[direction as usize], device))
            };
            for direction in Direction::BOTH.into_iter().filter(|direction| is_first(*direction)) {
                let token = (place * 2 + direction as usize) as u64;
                epoll.add(&*carried.devices[direction as usize], EpollEvent::new(EpollFlags::EPOLLIN, token))?;
            }
        }
        Ok(Worker {
            clock,
            epoll,
            timer,
            commands,
            wakeup,
            links: models,
            paths,
            pool: Pool::new(),
            sink,
            lateness: Histogram::new_with_max(LONGEST_US, 4).map_err(|_| Errno::EINVAL)?,
            stalls: Stalls::default(),
            pace: Pace::default(),
            wakeup_latency: WakeupLatency(Duration::ZERO),
            alarm: Instant::ZERO,
            slept: None,
            realtime: false,
            cpu: Duration::ZERO,
        })
    }

    /// Carries packets until the stop command.
    pub(super) fn run(mut self) -> Result<Worker> {
        self.realtime = become_realtime(PRIORITY);
        self.carry().map_err(|cause| Error::failure("carrying packets between the namespaces", cause))?;
        self.finish();
        self.cpu = thread_cpu();
        Ok(self)
    }

    fn carry(&mut self) -> io::Result<()> {
        let mut events = vec![EpollEvent::empty(); self.paths.len() * 2 + 2];
        let mut woke = self.clock.now();
        loop {
            let ready = self.sleep(woke, &mut events)?;
            woke = self.clock.now();
            let packets = self.wake(woke, &events[..ready])?;
            // After the packets, whose timestamps may be earlier than now.
            if events[..ready].iter().any(|event| event.data() == WAKEUP) && self.handle_commands() {
                return Ok(());
            }
            let packets = packets + self.release();
            let now = self.clock.now();
            self.pace.count(now, packets);
            self.stalls.stalled(now, now.since(woke));
            if let Some(sink) = &mut self.sink {
                sink.tick(now);
            }
        }
    }

    /// Sleeps until a device has packets, one is due, or the heartbeat.
    fn sleep(&mut self, woke: Instant, events: &mut [EpollEvent]) -> io::Result<usize> {
        let now = self.clock.now();
        self.slept = None;
        if self.pace.busy {
            self.alarm = now.max(woke + SLOT);
            let until = TimeSpec::from_duration(self.on_system_clock(self.alarm));
            let _ = clock_nanosleep(nix::time::ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until);
            return wait(&self.epoll, events, EpollTimeout::ZERO);
        }
        let next = self.links.iter().filter_map(|(link, _)| link.next_wakeup()).min();
        let next = next.map(|due| due - self.wakeup_latency.0);
        if next.is_some_and(|next| next <= now) {
            self.alarm = now;
            return wait(&self.epoll, events, EpollTimeout::ZERO);
        }
        if self.alarm <= now || next.is_some_and(|next| next < self.alarm) {
            let beat = now + HEARTBEAT;
            self.alarm = next.map_or(beat, |next| next.min(beat));
            let at = Expiration::OneShot(TimeSpec::from_duration(self.on_system_clock(self.alarm)));
            self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        }
        self.slept = Some(now);
        wait(&self.epoll, events, EpollTimeout::NONE)
    }

    /// Reads the packets of the devices; returns their number.
    fn wake(&mut self, woke: Instant, events: &[EpollEvent]) -> io::Result<usize> {
        self.stalls.woke(woke, self.alarm);
        let only_timer = matches!(events, [event] if event.data() == TIMER);
        if only_timer && self.slept.is_some() {
            self.wakeup_latency.learn(woke.since(self.alarm));
        }
        let mut packets = 0;
        for event in events.iter().filter(|event| event.data() < WAKEUP) {
            let token = event.data();
            let direction = Direction::BOTH[token as usize % 2];
            packets += self.read(token as usize / 2, direction, event.events())?;
        }
        self.stalls.read(packets);
        Ok(packets)
    }

    fn on_system_clock(&self, at: Instant) -> Duration {
        Duration::from_nanos(self.clock.origin_ns().saturating_add(at.as_nanos()))
    }

    /// Executes the queued commands; true after the stop command.
    fn handle_commands(&mut self) -> bool {
        let _ = self.wakeup.read();
        let now = self.clock.now();
        while let Ok(command) = self.commands.try_recv() {
            let Command::Change(place, change) = command else { return true };
            let Some(&Carried { link, station, .. }) = self.paths.get(place) else { continue };
            let (link, _) = &mut self.links[link];
            match change {
                Change::Set(direction, params) => link.set(now, Hop { station, direction }, params),
                Change::SetOn(on) => link.set_on(now, on),
                Change::Occupy(air_time) => {
                    link.occupy(now, air_time);
                }
            }
        }
        false
    }

    /// Reads at most a batch of packets from a device into its link; returns their
    /// number.
    fn read(&mut self, place: usize, direction: Direction, ready: EpollFlags) -> io::Result<usize> {
        for count in 0..BATCH {
            let Some(packet) = self.pool.take() else { return Ok(count) };
            let device = &self.paths[place].devices[direction as usize];
            let buffer = self.pool.get_mut(packet);
            match device.receive(buffer.bytes_mut()) {
                Ok(len) => {
                    let mut now = self.clock.now();
                    // The first packet after a sleep has ended it.
                    if let Some(slept) = self.slept.take() {
                        now = slept.max(now - self.wakeup_latency.0);
                    }
                    buffer.fill(len, now);
                    match self.path_of(place, direction, packet) {
                        Some(place) => self.enter(now, place, direction, packet),
                        None => self.pool.free_buffer(packet),
                    }
                }
                Err(cause) => {
                    self.pool.free_buffer(packet);
                    let empty = matches!(cause.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
                    // A device that reports only errors would wake the thread continuously.
                    let broken = !empty || !ready.contains(EpollFlags::EPOLLIN);
                    return if broken { Err(cause) } else { Ok(count) };
                }
            }
        }
        Ok(BATCH)
    }

    /// The path of a packet from this path's device: over a shared device, that of the packet's
    /// destination. `None`: no station has this address.
    fn path_of(&self, place: usize, direction: Direction, packet: PacketId) -> Option<usize> {
        let carried = &self.paths[place];
        if direction == Direction::Down || carried.address.is_none() {
            return Some(place);
        }
        let to = Ipv4HeaderSlice::from_slice(self.pool.get(packet).packet()).ok()?.destination_addr();
        self.paths.iter().position(|other| other.link == carried.link && other.address == Some(to))
    }

    fn enter(&mut self, now: Instant, place: usize, direction: Direction, packet: PacketId) {
        let carried = &mut self.paths[place];
        let hop = Hop { station: carried.station, direction };
        let bytes = self.pool.get(packet).packet().len();
        let counters = &mut carried.counters[direction as usize];
        counters.entered += 1;
        counters.entered_bytes += bytes as u64;
        if let Err(reason) = self.links[carried.link].0.send(now, hop, packet, bytes as u32) {
            counters.dropped[reason as usize] += 1;
            self.record(now, place, direction, packet, |record| record.dropped = Some(reason));
            self.pool.free_buffer(packet);
        }
    }

    /// Delivers all packets that are due; returns their number.
    fn release(&mut self) -> usize {
        let mut count = 0;
        for link in 0..self.links.len() {
            let now = self.clock.now();
            let first = self.links[link].1;
            while let Some(exit) = self.links[link].0.poll(now) {
                self.leave(first + exit.hop.station, exit);
                count += 1;
            }
        }
        count
    }

    fn leave(&mut self, place: usize, exit: Exit) {
        let now = self.clock.now();
        let direction = exit.hop.direction;
        let carried = &mut self.paths[place];
        let packet = self.pool.get(exit.packet).packet();
        let mut dropped = exit.dropped;
        if dropped.is_none() {
            self.lateness.saturating_record(micros(now.since(exit.at)).into());
            dropped = deliver(&self.links[carried.link].0, &carried.devices[1 - direction as usize], packet).err();
        }
        let counters = &mut carried.counters[direction as usize];
        match dropped {
            Some(reason) => counters.dropped[reason as usize] += 1,
            None => {
                counters.delivered += 1;
                counters.delivered_bytes += packet.len() as u64;
            }
        }
        self.record(now, place, direction, exit.packet, |record| {
            (record.tries, record.dropped) = (exit.tries, dropped);
            record.delivered = dropped.is_none().then_some(now);
        });
        self.pool.free_buffer(exit.packet);
    }

    fn record(
        &mut self,
        now: Instant,
        place: usize,
        direction: Direction,
        packet: PacketId,
        complete: impl FnOnce(&mut PacketRecord),
    ) {
        if let Some(sink) = &mut self.sink {
            let buffer = self.pool.get(packet);
            let is_tunnelled = self.paths[place].address.is_some();
            let mut record = PacketRecord::of(buffer.packet(), is_tunnelled, buffer.entered, (place as u8, direction));
            complete(&mut record);
            sink.add(now, record);
        }
    }

    /// Records the packets that are still in flight.
    fn finish(&mut self) {
        let now = self.clock.now();
        for link in 0..self.links.len() {
            let first = self.links[link].1;
            self.links[link].0.set_on(now, false);
            while let Some(exit) = self.links[link].0.poll(Instant::from_nanos(u64::MAX)) {
                let (place, direction) = (first + exit.hop.station, exit.hop.direction);
                self.paths[place].counters[direction as usize].unfinished += 1;
                self.record(now, place, direction, exit.packet, |record| record.tries = exit.tries);
            }
        }
    }

    /// Returns the report; `device_drops` returns the packets that a path's devices
    /// dropped (up, down). The devices are removed afterwards.
    pub(super) fn into_report(
        self,
        pauses: &[Vec<Pause>],
        device_drops: impl Fn(&str) -> Result<[u64; 2]>,
    ) -> Result<EmulatorReport> {
        let mut links = Vec::with_capacity(self.paths.len());
        for carried in &self.paths {
            let [mut up, mut down] = carried.counters;
            let [lost_up, lost_down] = device_drops(&carried.name)?;
            up.dropped[DropReason::Device as usize] += lost_up;
            down.dropped[DropReason::Device as usize] += lost_down;
            links.push(LinkReport { name: carried.name.clone(), up, down });
        }
        let (stall_us_max, stalled_at, pause_us_max) = self.stalls.longest(pauses);
        Ok(EmulatorReport {
            lateness_us_p50: self.lateness.value_at_quantile(0.5) as u32,
            lateness_us_p99: self.lateness.value_at_quantile(0.99) as u32,
            stall_us_max,
            stalled_at,
            pause_us_max,
            late_reads: self.stalls.late_reads,
            records_lost: self.sink.map_or(0, PacketSink::finish),
            cpu: self.cpu,
            realtime: self.realtime,
            links,
        })
    }
}

/// Writes a packet to the device at the end of a link, as the middlebox lets it pass. The packet stays as it was sent, for
/// its record.
fn deliver(link: &Link, device: &Tun, packet: &[u8]) -> Result<(), DropReason> {
    let send = |packet: &[u8]| device.send(packet).map(drop).map_err(|_| DropReason::Device);
    if !link.has_middlebox() {
        return send(packet);
    }
    let mut copy = packet.to_vec();
    link.pass_middlebox(&mut copy).and_then(|()| send(&copy))
}

fn wait(epoll: &Epoll, events: &mut [EpollEvent], timeout: EpollTimeout) -> io::Result<usize> {
    match epoll.wait(events, timeout) {
        Err(Errno::EINTR) => Ok(0),
        other => Ok(other?),
    }
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return Duration::ZERO };
    Duration::from_micros((usage.user_time() + usage.system_time()).num_microseconds() as u64)
}
