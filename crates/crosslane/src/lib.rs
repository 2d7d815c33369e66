//! lib
pub mod netlink;
