//! What was recent: the last values.

use alloc::collections::VecDeque;

/// Appends to the last `limit` values.
pub(crate) fn push_recent<T>(values: &mut VecDeque<T>, limit: usize, value: T) {
    if values.len() >= limit {
        values.pop_front();
    }
    values.push_back(value);
}
