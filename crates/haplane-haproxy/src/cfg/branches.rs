//! The branches of `.if`: which of them count, when some conditions cannot be decided.

use super::conditions::Truth;
use super::line::Activity;

/// One `.if` that is open.
pub(super) struct Block {
    pub(super) line: u32,
    /// Whether the lines around the block count.
    pub(super) outside: Activity,
    /// Whether the lines of the present branch count.
    pub(super) inside: Activity,
    /// Whether a branch before this one was taken, or may have been.
    pub(super) taken: Truth,
    pub(super) in_else: bool,
}

impl Block {
    /// Enters the next branch, whose own condition comes to `truth`.
    pub(super) fn enter(&mut self, truth: Truth) {
        let effective = match self.taken {
            Truth::True => Truth::False,
            Truth::False => truth,
            Truth::Undecided if truth == Truth::False => Truth::False,
            Truth::Undecided => Truth::Undecided,
        };
        self.inside = branch_activity(self.outside, effective);
        self.taken = match (self.taken, truth) {
            (Truth::True, _) | (_, Truth::True) => Truth::True,
            (Truth::False, Truth::False) => Truth::False,
            _ => Truth::Undecided,
        };
    }
}

pub(super) fn branch_activity(outside: Activity, truth: Truth) -> Activity {
    match (outside, truth) {
        (Activity::Inactive, _) | (_, Truth::False) => Activity::Inactive,
        (Activity::Active, Truth::True) => Activity::Active,
        _ => Activity::Undecided,
    }
}
