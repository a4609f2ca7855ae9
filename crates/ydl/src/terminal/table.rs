//! Tables with aligned columns.

use super::format::clean;

/// Cell of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    /// The text with colours, which do not count for its width.
    painted: Option<String>,
}

impl Cell {
    /// Creates a cell with colours.
    pub(crate) fn painted(text: &str, paint: impl FnOnce(&str) -> String) -> Cell {
        let text = clean(text);
        Cell { painted: Some(paint(&text)), text }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: clean(text.as_ref()), painted: None }
    }
}

/// Formats a table with two blanks between columns. Truncates the last column of lines longer than `width`.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<Cell>>, width: Option<usize>) -> Vec<String> {
    let mut lines: Vec<Vec<Cell>> = vec![head.iter().map(Cell::from).collect()];
    lines.extend(rows);
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width_of).collect();
    lines.iter().map(|line| row(line, &widths, width)).collect()
}

fn row(cells: &[Cell], widths: &[usize], width: Option<usize>) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (n, cell) in cells.iter().enumerate() {
        let gap = if n == 0 { 0 } else { 2 };
        let length = cell.text.chars().count();
        let space = width.map_or(usize::MAX, |width| width.saturating_sub(used + gap));
        if space == 0 {
            break;
        }
        text.push_str(&" ".repeat(gap));
        if length > space {
            let head = cell.text.chars().take(space.saturating_sub(1));
            text.extend(head.chain(['…']));
            break;
        }
        text.push_str(cell.painted.as_deref().unwrap_or(&cell.text));
        used += gap + widths[n];
        if n + 1 < cells.len() {
            text.push_str(&" ".repeat(widths[n] - length));
        }
    }
    text.trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_last_is_truncated() {
        let rows = vec![
            vec!["worker:0".into(), "running".into(), "a long reason".into()],
            vec!["w".into(), "x\x1b[2J".into(), "".into()],
        ];
        let lines = table(&["TASK", "STATE", "WHY"], rows, Some(24));
        assert_eq!(
            lines,
            ["TASK      STATE    WHY", "worker:0  running  a lo…", "w         x [2J",]
        );
    }
}
