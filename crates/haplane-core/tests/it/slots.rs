//! The planner in random worlds.

mod chaos;
mod day;
mod worlds;
