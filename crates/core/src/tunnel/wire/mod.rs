//! The wire format: GRE in UDP, its header in an encrypted message, the fields of its key, control messages, and the
//! overhead.

pub mod compressed_gre;
pub mod control_message;
pub mod gre;
pub mod gre_key;
pub mod overhead;
pub mod path_feedback;
