//! The agent.
pub mod config;
