//! Columns that line up.

use super::format::clean;

/// A cell: what it says, and how it looks.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    /// The same with colours; counted as wide as the text.
    painted: Option<String>,
}

impl Cell {
    /// Text and how it looks.
    pub fn painted(text: &str, paint: impl FnOnce(&str) -> String) -> Cell {
        let text = clean(text);
        Cell { painted: Some(paint(&text)), text }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: clean(text.as_ref()), painted: None }
    }
}

/// Lines of columns two spaces apart, none wider than `width` if there is one. The last column may be cut.
pub fn table(head: &[&str], rows: Vec<Vec<Cell>>, width: Option<usize>) -> Vec<String> {
    let mut lines: Vec<Vec<Cell>> = vec![head.iter().map(Cell::from).collect()];
    lines.extend(rows);
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    lines.iter().map(|line| row(line, &widths, width)).collect()
}

fn row(cells: &[Cell], widths: &[usize], width: Option<usize>) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (n, cell) in cells.iter().enumerate() {
        let gap = if n == 0 { 0 } else { 2 };
        let own = cell.text.chars().count();
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(used + gap));
        if room == 0 {
            break;
        }
        text.push_str(&" ".repeat(gap));
        if own > room {
            let cut = cell.text.chars().take(room.saturating_sub(1));
            text.extend(cut.chain(['…']));
            break;
        }
        text.push_str(cell.painted.as_deref().unwrap_or(&cell.text));
        used += gap + widths[n];
        if n + 1 < cells.len() {
            text.push_str(&" ".repeat(widths[n] - own));
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
