//! Which records a run keeps.

/// Records that a run keeps.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Every packet; else totals only.
    pub packets: bool,
    /// The state of each subflow, over time.
    pub tcp_info: bool,
    /// The ground truth of each link, over time.
    pub links: bool,
    /// Every message.
    pub messages: bool,
    /// What a strategy may see of each path, window by window.
    pub windows: bool,
}

impl Detail {
    /// Everything that a drive records too.
    pub const ALL: Detail = Detail { packets: true, tcp_info: true, links: true, messages: true, windows: false };
    /// Totals only.
    pub const NONE: Detail = Detail { packets: false, tcp_info: false, links: false, messages: false, windows: false };
    /// The records that the metrics need.
    pub const METRICS: Detail = Detail { messages: true, ..Detail::NONE };
    /// The records that a tree learns from.
    pub const WINDOWS: Detail = Detail { windows: true, ..Detail::METRICS };
}
