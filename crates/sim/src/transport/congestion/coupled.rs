//! Coupled congestion control: increases that depend on all subflows.

use crosslane_core::time::Duration;

use super::Congestion;

/// State of one subflow.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Congestion window, in segments.
    pub window: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Segments acknowledged between losses.
    pub loss_interval: u64,
}

/// Increase of one subflow, computed from all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coupled {
    /// Increase per acknowledged segment, in segments, before the bound.
    each: f64,
    /// OLIA's α: this over the window is added to the increase.
    pub(super) alpha: f64,
    /// True if the increase may not exceed Reno's.
    bounded: bool,
}

impl Coupled {
    /// Increase of the window per acknowledged segment, in segments.
    pub(super) fn increase(&self, window: f64) -> f64 {
        let each = self.each + self.alpha / window;
        if self.bounded { each.min(1.0 / window) } else { each }
    }
}

/// The increase of member `own`.
pub fn couple(algorithm: Congestion, members: &[Member], own: usize) -> Coupled {
    match algorithm {
        Congestion::Lia => lia(members),
        Congestion::Olia => olia(members, own),
        _ => Coupled::default(),
    }
}

/// RFC 6356 §3: α / total, where α = total · max(w/rtt²) / (Σ w/rtt)².
fn lia(members: &[Member]) -> Coupled {
    let best = members.iter().map(|m| weight(m) / seconds(m)).fold(0.0, f64::max);
    let sum: f64 = members.iter().map(weight).sum();
    Coupled { each: if sum > 0.0 { best / (sum * sum) } else { 0.0 }, alpha: 0.0, bounded: true }
}

/// Khalili et al. 2012, equations 3 and 4.
fn olia(members: &[Member], own: usize) -> Coupled {
    let sum: f64 = members.iter().map(weight).sum();
    let Some(own_member) = members.get(own).filter(|_| sum > 0.0) else { return Coupled::default() };
    let each = weight(own_member) / seconds(own_member) / (sum * sum);
    let quality = |m: &Member| m.loss_interval as f64 * m.loss_interval as f64 / seconds(m);
    let best = members.iter().map(quality).fold(0.0, f64::max);
    let widest = members.iter().map(|m| m.window).max().unwrap_or(0);
    let is_best = |m: &Member| quality(m) >= best;
    let is_widest = |m: &Member| m.window >= widest;
    let collected = members.iter().filter(|m| is_best(m) && !is_widest(m)).count();
    let n = members.len() as f64;
    let alpha = if collected == 0 {
        0.0
    } else if is_best(own_member) && !is_widest(own_member) {
        1.0 / (n * collected as f64)
    } else if is_widest(own_member) {
        -1.0 / (n * members.iter().filter(|m| is_widest(m)).count() as f64)
    } else {
        0.0
    };
    Coupled { each, alpha, bounded: false }
}

fn seconds(member: &Member) -> f64 {
    member.rtt.as_secs_f64().max(1e-6)
}

fn weight(member: &Member) -> f64 {
    f64::from(member.window) / seconds(member)
}
