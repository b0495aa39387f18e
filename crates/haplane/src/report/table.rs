//! Tables: columns aligned, as narrow as the terminal.

use std::fmt::Write as _;

use anstyle::Style;

use super::printable;

/// The least width of a column: the first as long as that is enough, the last when nothing else
/// helps.
const NARROWEST: [usize; 2] = [10, 4];
const GAP: usize = 2;

/// One cell: a text and how it looks on a terminal with colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text, without line ends.
    pub text: String,
    /// Its look.
    pub style: Style,
}

impl Cell {
    /// A cell with a look.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            text: text.into(),
            style,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// Rows of cells under a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines. `width` is the terminal's; without one nothing is cut, so that a pipe gets whole
    /// names.
    pub fn render(&self, width: Option<usize>) -> String {
        let heading: Vec<Cell> = self
            .heading
            .iter()
            .map(|name| Cell::styled(*name, Style::new().bold()))
            .collect();
        let is_said = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.into_iter().any(|cell| !cell.text.is_empty())
        };
        // A column without any content only takes space.
        let said: Vec<bool> = (0..heading.len()).map(is_said).collect();
        let shown = |line: &Vec<Cell>| -> Vec<Cell> {
            let cells = line.iter().zip(&said).filter(|(_, said)| **said);
            cells.map(|(cell, _)| cell.clone()).collect()
        };
        let lines: Vec<Vec<Cell>> = std::iter::once(&heading)
            .chain(&self.rows)
            .map(shown)
            .collect();
        let mut widths = natural_widths(&lines);
        if let Some(width) = width {
            shrink(&mut widths, width);
        }
        lines
            .iter()
            .map(|line| render_line(line, &widths))
            .collect()
    }
}

fn natural_widths(lines: &[Vec<Cell>]) -> Vec<usize> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells
            .map(|cell| cell.text.chars().count())
            .max()
            .unwrap_or(0)
    };
    (0..columns).map(width_of).collect()
}

/// Takes from the widest column, a character at a time, until all fit.
fn shrink(widths: &mut [usize], most: usize) {
    let total =
        |widths: &[usize]| widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
    for narrowest in NARROWEST {
        while total(widths) > most {
            match widths.iter_mut().max() {
                Some(widest) if *widest > narrowest => *widest -= 1,
                _ => break,
            }
        }
    }
}

fn render_line(cells: &[Cell], widths: &[usize]) -> String {
    let mut line = String::new();
    let last = cells.len().saturating_sub(1);
    for (at, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        let text = cut(&cell.text, width);
        let padding = if at == last {
            0
        } else {
            width + GAP - text.chars().count()
        };
        let style = cell.style;
        // Writing to a String cannot fail.
        let _ = write!(line, "{style}{text}{style:#}{:padding$}", "");
    }
    let mut line = line.trim_end().to_owned();
    line.push('\n');
    line
}

/// At most `width` characters; an ellipsis says that more was there.
fn cut(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["KEY", "ENDS", "REASON"]);
        table.push(vec![
            "canary".into(),
            "".into(),
            "a reason that is rather long".into(),
        ]);
        table.push(vec!["web/a".into(), "".into(), "short\x1b[2J".into()]);
        table
    }

    #[test]
    fn a_pipe_gets_whole_cells_and_a_narrow_terminal_gets_what_fits() {
        let plain = anstream::adapter::strip_str(&table().render(None)).to_string();
        assert_eq!(
            plain,
            "KEY     REASON\ncanary  a reason that is rather long\nweb/a   short\u{fffd}[2J\n"
        );
        let narrow = anstream::adapter::strip_str(&table().render(Some(24))).to_string();
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 24),
            "{narrow}"
        );
        assert!(narrow.contains("a reason that i…"), "{narrow}");
        table().render(Some(1));
    }
}
