//! Random loss of packets.

use crate::rng::Rng;

/// Random loss of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet with this probability (0 to 1), independently.
    Independent(f64),
    /// In bursts.
    GilbertElliott(GilbertElliott),
}

/// A channel with a good and a bad state (Gilbert, *Capacity of a burst-noise channel*,
/// 1960; Elliott, *Estimates of error rates for codes on burst-noise channels*, 1963),
/// which may change before each packet. The first state is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability (0 to 1) that a packet is lost in the good state.
    pub good: f64,
    /// Probability (0 to 1) that a packet is lost in the bad state.
    pub bad: f64,
    /// Probability (0 to 1) of a change from good to bad.
    pub to_bad: f64,
    /// Probability (0 to 1) of a change from bad to good.
    pub to_good: f64,
}

impl Loss {
    /// No loss.
    pub const NONE: Loss = Loss::Independent(0.0);

    /// Long-run ratio (0 to 1) of lost packets.
    pub fn mean(self) -> f64 {
        match self {
            Loss::Independent(loss) => loss,
            // A channel that never changes stays good.
            Loss::GilbertElliott(GilbertElliott { good, to_bad: 0.0, .. }) => good,
            Loss::GilbertElliott(GilbertElliott { good, bad, to_bad, to_good }) => {
                good + (bad - good) * to_bad / (to_bad + to_good)
            }
        }
    }

    /// Whether the next packet is lost; updates the state of the channel.
    pub(super) fn loses_next(self, is_bad: &mut bool, rng: &mut Rng) -> bool {
        match self {
            Loss::Independent(loss) => rng.chance(loss),
            Loss::GilbertElliott(GilbertElliott { good, bad, to_bad, to_good }) => {
                *is_bad ^= rng.chance(if *is_bad { to_good } else { to_bad });
                rng.chance(if *is_bad { bad } else { good })
            }
        }
    }
}

impl Default for Loss {
    fn default() -> Loss {
        Loss::NONE
    }
}
