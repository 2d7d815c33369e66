//! How the stations of one roadside unit share its air.

/// What a station asked of the air in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Part of the step in which it had the air (0 to 1).
    pub part: f64,
    /// True if more waits: it would take all that it gets.
    pub backlog: bool,
}

/// The part of the air (0 to 1) that each station finds free of the others in
/// the next step, in order of `uses`.
///
/// Water-filling, as DCF shares by attempts of equal length: a station gets
/// what it asks for up to a level, the same for all, at which the air is full.
/// Where it is not full, each finds what the others leave.
pub fn shares(uses: &[Use]) -> Vec<f64> {
    let Some(level) = level(uses) else {
        let all: f64 = uses.iter().map(|one| one.part).sum();
        return uses.iter().map(|one| 1.0 - all + one.part).collect();
    };
    vec![level; uses.len()]
}

/// The level at which all the air is taken; none if it is not.
fn level(uses: &[Use]) -> Option<f64> {
    let mut modest: Vec<f64> = uses.iter().filter(|one| !one.backlog).map(|one| one.part).collect();
    modest.sort_by(f64::total_cmp);
    let (mut left, mut stations) = (1.0, uses.len());
    for part in modest {
        if part * stations as f64 > left {
            break;
        }
        left -= part;
        stations -= 1;
    }
    (stations > 0).then(|| left / stations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modest(part: f64) -> Use {
        Use { part, backlog: false }
    }

    const GREEDY: Use = Use { part: 0.7, backlog: true };

    fn assert_near(uses: &[Use], expected: &[f64]) {
        for (found, expected) in shares(uses).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{uses:?}: {:?}", shares(uses));
        }
    }

    #[test]
    fn a_station_alone_has_all_the_air() {
        assert_near(&[modest(0.2)], &[1.0]);
        assert_near(&[GREEDY], &[1.0]);
    }

    #[test]
    fn greedy_stations_split_what_the_modest_ones_leave() {
        assert_near(&[GREEDY, modest(0.2), GREEDY], &[0.4, 0.4, 0.4]);
        assert_near(&[GREEDY, GREEDY, GREEDY, GREEDY], &[0.25; 4]);
    }

    #[test]
    fn modest_stations_find_what_the_others_do_not_use() {
        assert_near(&[modest(0.1), modest(0.3)], &[0.7, 0.9]);
    }

    #[test]
    fn who_asks_for_more_than_the_level_is_held_to_it() {
        assert_near(&[modest(0.9), modest(0.9), modest(0.1)], &[0.45, 0.45, 0.45]);
    }

    #[test]
    fn what_the_stations_take_never_exceeds_the_air() {
        for greedy in 0..5 {
            for part in [0.0, 0.05, 0.2, 0.9] {
                let uses: Vec<Use> =
                    (0..5).map(|n| if n < greedy { GREEDY } else { modest(part * f64::from(n + 1) / 5.0) }).collect();
                let taken: f64 = shares(&uses)
                    .iter()
                    .zip(&uses)
                    .map(|(share, one)| if one.backlog { *share } else { one.part.min(*share) })
                    .sum();
                assert!(taken < 1.0 + 1e-9, "{uses:?}: {taken}");
            }
        }
    }
}
