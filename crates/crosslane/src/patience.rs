//! What a process that is just ending still holds is free in a moment.

use std::thread::sleep;
use std::time::Duration;

/// First pause; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Pauses, together 1.3 s: longer than the kernel takes to end a process with an interface under load.
const PAUSES: u32 = 8;

/// Tries until it succeeds, or fails by another fault than that something is taken, or that has gone on for too long.
///
/// # Errors
/// As the newest try.
pub(crate) fn patiently<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    for pause in 0..PAUSES {
        match attempt() {
            Err(cause) if is_taken(&cause) => sleep(FIRST_PAUSE * 2u32.pow(pause)),
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_tried_again_for_a_while_and_nothing_else_is() {
        let tries = |results: &[Result<u8, bool>]| {
            let mut results = results.iter();
            let mut count = 0;
            let got = patiently(
                || {
                    count += 1;
                    *results.next().unwrap_or(&Err(true))
                },
                |taken| *taken,
            );
            (got, count)
        };
        assert_eq!(tries(&[Err(true), Err(true), Ok(7)]), (Ok(7), 3));
        assert_eq!(tries(&[Err(true), Err(false), Ok(7)]), (Err(false), 2));
        assert_eq!(tries(&[]), (Err(true), PAUSES + 1));
    }
}
