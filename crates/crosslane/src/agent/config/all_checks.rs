//! All checks of a configuration.

use super::checks::{self, Complaint};
use super::{Config, cam, class, echo, http, keepalive, observe, preference, roadside, unit, volume};

/// # Errors
/// Place in the text, cause and remedy.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let of_keys = [checks::ranges, checks::mode, checks::demands];
    let of_sections = [
        class::check,
        observe::check,
        unit::check,
        roadside::check,
        cam::check,
        echo::check,
        http::check,
        keepalive::check,
        preference::check,
        volume::check,
    ];
    of_keys.into_iter().chain(of_sections).try_for_each(|check| check(config))
}
