//! What the trials show: for two paths, what either order brought in adjacent windows. A row of the data from which
//! a tree is fitted again on board.

use alloc::vec::Vec;

use super::comparison::{Comparison, Outcome, Window, settled};
use super::features::Values;
use crate::path::PathId;

/// By how much an order must be better to be called so: a part of the greater value.
pub const MARGIN: f32 = 0.05;

/// Two paths, and what either order of them brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The paths `a` and `b`; of `smartps` `a` is the Wi-Fi path.
    pub paths: [PathId; 2],
    /// What was measured of each in the window before the trial.
    pub values: [Values; 2],
    /// Whether `a` was first then; in the trial the other one was.
    pub was_a_first: bool,
    /// Whether `a` is first in the user's order.
    pub is_a_preferred: bool,
    /// What the paths delivered together with `a` first, and with `b` first, in Mbit/s.
    pub goodput_mbit_s: [f32; 2],
    /// The mean RTT of that, in ms.
    pub delay_ms: [f32; 2],
}

/// Which path was to be first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Label {
    /// Whether it is `a`.
    pub a_first: bool,
    /// What is at stake: by how much the goodput is better, as a part of the better one ([`MARGIN`] to 1).
    pub stake: f32,
}

impl Trial {
    /// The order with the higher goodput or, if that differs by at most [`MARGIN`], with the shorter delay; none if that
    /// does not differ either.
    pub fn label(&self) -> Option<Label> {
        let [goodput, delay] = [self.goodput_mbit_s, self.delay_ms].map(|[a, b]| (a - b) / a.max(b));
        let stake = goodput.abs().clamp(MARGIN, 1.0);
        let sign = if goodput.abs() > MARGIN { goodput } else { -delay };
        (sign.abs() > MARGIN).then_some(Label { a_first: sign > 0.0, stake })
    }
}

/// The two paths between which there is a choice, as they are now.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The paths `a` and `b`.
    pub paths: [PathId; 2],
    /// What was measured of each in the window that ended.
    pub values: [Values; 2],
    /// Whether `a` was first in it.
    pub is_a_first: bool,
    /// Whether `a` is first in the user's order.
    pub is_a_preferred: bool,
}

impl Pair {
    /// The paths in the order that does not stand.
    pub fn swapped(self) -> Vec<PathId> {
        let [a, b] = self.paths;
        if self.is_a_first { [b, a].into() } else { [a, b].into() }
    }
}

/// Makes rows of the trials in which the orders are what they are to be: one before and after, the other in it.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The last window outside a trial.
    last: Option<Pair>,
    /// Windows for which its order has stood.
    steady: usize,
    /// The trial, with the pair before it.
    trial: Option<Pair>,
    row: Option<Trial>,
}

impl Recorder {
    /// A window has ended, one of a trial or not.
    pub fn end_window(&mut self, pair: Option<Pair>, in_trial: bool) {
        let is_same = |before: &Pair, other: bool| {
            pair.is_some_and(|pair| pair.paths == before.paths && pair.is_a_first == before.is_a_first ^ other)
        };
        self.trial = self.trial.filter(|before| is_same(before, in_trial));
        self.steady = match self.last {
            _ if in_trial || pair.is_none() => 0,
            Some(last) if is_same(&last, false) => self.steady + 1,
            _ => 1,
        };
        self.last = pair.filter(|_| !in_trial);
    }

    /// Whether what was delivered lately shows the order that stands.
    pub fn is_steady(&self, window: &Window) -> bool {
        self.steady >= settled(window)
    }

    /// The experiment has gone on by a window: a trial may have begun with the next one, or what it showed be known.
    pub fn follow(&mut self, comparison: &mut Comparison, in_trial: bool, is_steady: bool) {
        if let Some((pair, outcome)) = comparison.take_outcome().and_then(|outcome| Some((self.trial?, outcome))) {
            self.row = Some(row(&pair, outcome));
        }
        if !comparison.is_comparing() {
            self.trial = None;
        } else if comparison.is_trial() && !in_trial {
            self.trial = self.last.filter(|_| is_steady);
        }
    }

    /// The row that was made last.
    pub fn take(&mut self) -> Option<Trial> {
        self.row.take()
    }
}

fn row(pair: &Pair, Outcome { goodput_mbit_s, delay_ms }: Outcome) -> Trial {
    let of_orders = |[usual, other]: [f32; 2]| if pair.is_a_first { [usual, other] } else { [other, usual] };
    Trial {
        paths: pair.paths,
        values: pair.values,
        was_a_first: pair.is_a_first,
        is_a_preferred: pair.is_a_preferred,
        goodput_mbit_s: of_orders(goodput_mbit_s),
        delay_ms: of_orders(delay_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::super::features::COUNT;
    use super::*;

    const TRIAL: Trial = Trial {
        paths: [PathId(0), PathId(1)],
        values: [[0.0; COUNT]; 2],
        was_a_first: true,
        is_a_preferred: true,
        goodput_mbit_s: [10.0, 5.0],
        delay_ms: [30.0, 20.0],
    };

    #[test]
    fn the_label_is_by_goodput_then_by_delay_and_none_if_neither_differs() {
        let label = |goodput_mbit_s, delay_ms| Trial { goodput_mbit_s, delay_ms, ..TRIAL }.label();
        assert_eq!(TRIAL.label(), Some(Label { a_first: true, stake: 0.5 }));
        assert_eq!(label([5.0, 10.0], [20.0, 30.0]), Some(Label { a_first: false, stake: 0.5 }));
        assert_eq!(label([10.0, 9.6], [30.0, 20.0]), Some(Label { a_first: false, stake: MARGIN }));
        assert_eq!(label([10.0, 9.6], [30.0, 29.0]), None);
        assert_eq!(label([10.0, 0.0], [30.0, f32::NAN]), Some(Label { a_first: true, stake: 1.0 }));
        assert_eq!(label([0.0, 0.0], [f32::NAN; 2]), None);
    }

    /// Windows with `a` first or not, all outside trials but those with a mark; the rows that come about.
    fn rows(windows: &[bool]) -> usize {
        let window = Window { delivered_mbit_s: 10.0, rtt_windows: 0.2, delay_ms: 20.0 };
        let (mut recorder, mut comparison, mut count) = (Recorder::default(), Comparison::new(0.02), 0);
        for is_a_first in windows {
            let (paths, values, in_trial) = (TRIAL.paths, TRIAL.values, comparison.is_trial());
            let pair = Pair { paths, values, is_a_first: *is_a_first ^ in_trial, is_a_preferred: true };
            recorder.end_window(Some(pair), in_trial);
            let is_steady = recorder.is_steady(&window);
            comparison.end_window(Some(window), false, windows.len() > 8);
            recorder.follow(&mut comparison, in_trial, is_steady);
            count += usize::from(recorder.take().is_some_and(|row| row.was_a_first));
        }
        count
    }

    #[test]
    fn a_trial_makes_a_row_only_if_the_order_before_and_after_it_is_the_same() {
        assert_eq!(rows(&[true; 16]), 0, "a trial that begins before the order is steady");
        let mut comparison = [true; 340].to_vec();
        assert_eq!(rows(&comparison), 1, "the second one");
        comparison[310] = false;
        assert_eq!(rows(&comparison), 0, "the order changed while it was compared");
    }
}
