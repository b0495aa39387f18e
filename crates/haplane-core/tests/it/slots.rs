//! The planner in random worlds.

mod chaos;
mod day;
mod sources;
mod worlds;
