//! One vehicle: which units reach it, and which one serves it.

use super::*;

/// Maximum number of units that report one vehicle.
pub const MAX_SIGHTS: usize = 16;
/// A unit is left for another that receives the vehicle stronger by more than this.
const HYSTERESIS_DB: f32 = 6.0;
/// Weight of a new RSSI in the smoothed one.
const RSSI_WEIGHT: f32 = 0.25;
/// Least time between two redirections for a stronger signal.
const DWELL_STRONGER: Duration = Duration::from_secs(1);
/// Least time between two redirections for a tunnel that carries.
const DWELL_CARRIES: Duration = Duration::from_millis(200);

/// What a unit reports of a vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sight {
    /// When it last reported.
    pub at: Instant,
    /// Smoothed RSSI of the vehicle's CAMs, in dBm.
    pub rssi_dbm: Option<f32>,
    /// The vehicle's position, as its CAMs state it.
    pub position: Option<Position>,
    /// Whether the vehicle's tunnel to the unit stands.
    pub has_tunnel: bool,
    /// Whether that tunnel carries packets.
    pub carries: bool,
}

impl Sight {
    fn is_candidate(&self, now: Instant) -> bool {
        self.has_tunnel && !self.is_silent(now)
    }

    fn is_silent(&self, now: Instant) -> bool {
        now.since(self.at) >= SILENCE
    }

    /// Greater for a unit that is to be preferred.
    fn rank(&self) -> (bool, f32) {
        (self.carries, self.rssi_dbm.unwrap_or(f32::MIN))
    }
}

/// A vehicle of the directory.
#[derive(Clone, Debug)]
pub struct Vehicle {
    home: Ipv4Addr,
    serving: Option<u32>,
    since: Option<Instant>,
    /// What is requested and not answered.
    pending: Option<Pending>,
    /// Packets may be led elsewhere than to `serving`: a request must be made again, not before this time.
    uncertain: Option<Instant>,
    /// Until when the unit that served before the start is waited for.
    grace: Option<Instant>,
    /// Since when the serving unit has said that its tunnel is gone.
    lost: Option<Instant>,
    sights: BTreeMap<u32, Sight>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Pending {
    unit: Option<u32>,
    since: Instant,
}

/// The announcement to a unit whether it serves a vehicle.
pub(super) fn serving(unit: u32, station: u32, serves: bool) -> Output {
    Output::Announce { to: Peer::Unit(unit), announcement: Announcement::Serving { station, serves } }
}

impl Vehicle {
    pub(super) fn new(home: Ipv4Addr) -> Vehicle {
        Vehicle {
            home,
            serving: None,
            since: None,
            pending: None,
            uncertain: None,
            grace: None,
            lost: None,
            sights: BTreeMap::new(),
        }
    }

    /// Its home address.
    pub fn home(&self) -> Ipv4Addr {
        self.home
    }

    /// The unit to which packets to its home address are led, and since when.
    pub fn serving(&self) -> Option<(u32, Instant)> {
        self.serving.zip(self.since)
    }

    /// What units report of it, by their station id.
    pub fn sights(&self) -> impl Iterator<Item = (u32, &Sight)> {
        self.sights.iter().map(|(unit, sight)| (*unit, sight))
    }

    pub(super) fn requested(&self) -> Option<Option<u32>> {
        self.pending.map(|pending| pending.unit)
    }

    /// Whether this unit serves it, or shall.
    pub(super) fn is_served_by(&self, unit: u32) -> bool {
        self.serving == Some(unit) || self.pending.is_some_and(|pending| pending.unit == Some(unit))
    }

    pub(super) fn present(&mut self, now: Instant, unit: u32) {
        (self.serving, self.since, self.grace) = (Some(unit), Some(now), Some(now + GRACE));
    }

    /// The serving unit has another address on the backhaul.
    pub(super) fn unit_moved(&mut self, unit: u32) {
        if self.is_served_by(unit) {
            (self.pending, self.uncertain) = (None, Some(Instant::ZERO));
        }
    }

    /// What a unit said no longer holds; false if it had said nothing.
    pub(super) fn forget(&mut self, unit: u32) -> bool {
        if self.serving == Some(unit) {
            self.lost = None;
        }
        self.sights.remove(&unit).is_some()
    }

    /// It is removed from the directory.
    pub(super) fn remove(&self, station: u32) -> Vec<Output> {
        let units = [self.serving, self.pending.and_then(|pending| pending.unit)];
        let mut outputs: Vec<Output> = units.into_iter().flatten().map(|unit| serving(unit, station, false)).collect();
        if self.serving.is_some() || self.pending.is_some() || self.uncertain.is_some() {
            let reason = Reason::plain("controller.removed", "the vehicle is no longer in the configuration");
            outputs.push(Output::Event(Event::Decided { vehicle: station, from: self.serving, to: None, reason }));
            outputs.push(Output::Redirect { vehicle: station, home: self.home, unit: None });
        }
        outputs
    }

    /// Takes a unit's report; false if there is no room for a further unit.
    pub(super) fn sight(&mut self, now: Instant, unit: u32, report: &Report) -> bool {
        let has_tunnel = match *report {
            Report::Vehicle { rssi_dbm, position, has_tunnel, carries, .. } => {
                if !self.make_room(now, unit) {
                    return false;
                }
                let new = Sight { at: now, rssi_dbm, position, has_tunnel, carries: carries && has_tunnel };
                let sight = self.sights.entry(unit).or_insert(new);
                let smoothed = sight.rssi_dbm.zip(rssi_dbm).map(|(old, new)| old + RSSI_WEIGHT * (new - old));
                *sight = Sight { rssi_dbm: smoothed.or(rssi_dbm).or(sight.rssi_dbm), ..new };
                has_tunnel
            }
            _ => {
                self.sights.remove(&unit);
                false
            }
        };
        if self.serving == Some(unit) {
            self.lost = if has_tunnel { None } else { self.lost.or(Some(now)) };
        }
        true
    }

    /// Removes the oldest report that no decision needs, if there is no room for one of this unit.
    fn make_room(&mut self, now: Instant, unit: u32) -> bool {
        if self.sights.len() < MAX_SIGHTS || self.sights.contains_key(&unit) {
            return true;
        }
        let serving = self.serving;
        let unused = self.sights.iter().filter(|(of, sight)| Some(**of) != serving && !sight.is_candidate(now));
        let Some(oldest) = unused.min_by_key(|(_, sight)| sight.at).map(|(of, _)| *of) else { return false };
        self.sights.remove(&oldest).is_some()
    }

    /// The next time at which a rule of time could apply.
    pub(super) fn check_at(&self, now: Instant) -> Option<Instant> {
        if let Some(pending) = self.pending {
            return Some(pending.since + ANSWER_TIMEOUT);
        }
        let sight = self.serving.and_then(|unit| self.sights.get(&unit));
        let silent = sight.map(|sight| sight.at + SILENCE);
        let dwell = self.since.iter().flat_map(|since| [*since + DWELL_CARRIES, *since + DWELL_STRONGER]);
        let times = silent.into_iter().chain(self.grace).chain(self.uncertain).chain(dwell);
        times.chain(self.lost.map(|at| at + KEPT)).filter(|at| *at > now).min()
    }

    /// Requests what is better than what is, if anything.
    pub(super) fn decide<'a>(
        &mut self,
        now: Instant,
        station: u32,
        name: impl Fn(u32) -> &'a str,
        outputs: &mut VecDeque<Output>,
    ) {
        if let Some(pending) = self.pending {
            if now.since(pending.since) < ANSWER_TIMEOUT {
                return;
            }
            self.answered(now, station, pending.unit, Some("no answer within 1 s".into()), outputs);
        }
        self.grace.take_if(|until| *until <= now);
        let Some((unit, reason)) = self.choice(now, name) else { return };
        outputs.extend(unit.map(|unit| serving(unit, station, true)));
        outputs.push_back(Output::Event(Event::Decided { vehicle: station, from: self.serving, to: unit, reason }));
        outputs.push_back(Output::Redirect { vehicle: station, home: self.home, unit });
        (self.pending, self.uncertain) = (Some(Pending { unit, since: now }), None);
    }

    /// Takes the answer to a request.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        station: u32,
        unit: Option<u32>,
        fault: Option<String>,
        outputs: &mut VecDeque<Output>,
    ) {
        let Some(pending) = self.pending.take_if(|pending| pending.unit == unit) else { return };
        if let Some(cause) = fault {
            self.uncertain = Some(now + ANSWER_TIMEOUT);
            outputs.extend(unit.filter(|unit| self.serving != Some(*unit)).map(|unit| serving(unit, station, false)));
            return outputs.push_back(Output::Event(Event::Failed { vehicle: station, unit, cause }));
        }
        let before = core::mem::replace(&mut self.serving, unit).filter(|before| Some(*before) != unit);
        if self.since.is_none() || unit.is_none() || before.is_some() {
            let has_no_tunnel = |unit: u32| self.sights.get(&unit).is_some_and(|sight| !sight.has_tunnel);
            (self.since, self.grace) = (unit.map(|_| now), None);
            self.lost = unit.filter(|unit| has_no_tunnel(*unit)).map(|_| now);
        }
        outputs.extend(before.map(|before| serving(before, station, false)));
        let after = now.since(pending.since);
        outputs.push_back(Output::Event(Event::Confirmed { vehicle: station, unit, after }));
    }

    /// What shall serve instead of what does.
    fn choice<'a>(&self, now: Instant, name: impl Fn(u32) -> &'a str) -> Option<(Option<u32>, Reason)> {
        let due = self.uncertain.is_some_and(|at| now >= at);
        if self.uncertain.is_some() && !due {
            return None;
        }
        let others = self.sights.iter().filter(|(unit, sight)| Some(**unit) != self.serving && sight.is_candidate(now));
        let best = others.max_by(|(_, a), (_, b)| {
            let ((a_carries, a_rssi), (b_carries, b_rssi)) = (a.rank(), b.rank());
            a_carries.cmp(&b_carries).then(a_rssi.total_cmp(&b_rssi))
        });
        let better = best.and_then(|(unit, sight)| Some((Some(*unit), self.better(now, (*unit, sight), &name)?)));
        let again = |unit: Option<u32>| due.then(|| (unit, again(unit.map(&name))));
        better.or_else(|| self.withdrawal(now, best.is_some(), &name)).or_else(|| again(self.serving))
    }

    /// Why this candidate shall serve, if it shall.
    fn better<'a>(&self, now: Instant, (unit, other): (u32, &Sight), name: impl Fn(u32) -> &'a str) -> Option<Reason> {
        let new = name(unit);
        let inputs = |silence_s: f64| {
            let rssi = other.rssi_dbm.map(|rssi| ("rssi_dbm", f64::from(rssi)));
            [("unit", f64::from(unit)), ("silence_s", silence_s)].into_iter().chain(rssi)
        };
        let Some(serving) = self.serving else {
            let text = format!("the tunnel to {new} stands, and no unit serves");
            return Some(Reason::plain("controller.first", text).with(inputs(0.0)));
        };
        let old = name(serving);
        let Some(sight) = self.sights.get(&serving) else {
            let (rule, text) = match (self.grace, self.lost) {
                (Some(_), _) => return None,
                (None, Some(_)) => ("controller.no-tunnel", format!("{old} no longer receives it, and {new} does")),
                (None, None) => ("controller.disconnected", format!("{old} reports nothing, and {new} does")),
            };
            return Some(Reason::plain(rule, text).with(inputs(0.0)));
        };
        let silence_s = now.since(sight.at).as_secs_f64();
        let dwelt = |time: Duration| self.since.is_none_or(|since| now >= since + time);
        let (rule, text) = if sight.is_silent(now) {
            ("controller.silent", format!("{old} has reported nothing of it for {silence_s:.1} s, and {new} does"))
        } else if !sight.has_tunnel {
            ("controller.no-tunnel", format!("the tunnel to {old} is gone, and that to {new} stands"))
        } else if other.carries && !sight.carries && dwelt(DWELL_CARRIES) {
            ("controller.carries", format!("the tunnel to {new} carries packets, and that to {old} does not"))
        } else {
            let (old_dbm, new_dbm) = sight.rssi_dbm.zip(other.rssi_dbm)?;
            let is_stronger = other.carries == sight.carries && new_dbm > old_dbm + HYSTERESIS_DB;
            if !is_stronger || !dwelt(DWELL_STRONGER) {
                return None;
            }
            ("controller.stronger", format!("{new} receives it with {new_dbm:.1} dBm, and {old} with {old_dbm:.1} dBm"))
        };
        Some(Reason::plain(rule, text).with(inputs(silence_s)))
    }

    fn withdrawal<'a>(
        &self,
        now: Instant,
        has_other: bool,
        name: impl Fn(u32) -> &'a str,
    ) -> Option<(Option<u32>, Reason)> {
        let (unit, lost) = self.serving.zip(self.lost)?;
        if has_other || now < lost + KEPT {
            return None;
        }
        let text = format!("the tunnel to {} is gone for {} s, and no other stands", name(unit), KEPT.as_secs());
        Some((None, Reason::plain("controller.lost", text)))
    }
}

fn again(unit: Option<&str>) -> Reason {
    let text = format!("where packets are led is not certain: they are led to {} again", unit.unwrap_or("no unit"));
    Reason::plain("controller.again", text)
}
