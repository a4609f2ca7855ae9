//! Suggestions for misspelled words.

/// Returns the most similar known word, if it is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let word = plain(word);
    // Longer words may contain more typos.
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(far, _)| *far <= allowed)
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Edit distance, with transpositions of neighbours.
fn distance(a: &str, b: &str) -> usize {
    // Much longer than any key: not compared.
    if a.len() > 64 || b.len() > 64 {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_word_is_suggested() {
        let keys = ["memory", "run", "instances", "memory_growth", "node_label"];
        let check = |word, found| assert_eq!(nearest(word, keys), found, "{word}");
        check("memroy", Some("memory"));
        check("Memory", Some("memory"));
        check("node-label", Some("node_label"));
        check("instnaces", Some("instances"));
        check("rum", Some("run"));
        check("colour", None);
        check(&"x".repeat(1000), None);
    }
}
