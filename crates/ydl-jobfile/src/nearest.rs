//! Suggestions for misspelled words.

use strsim::osa_distance;

/// Returns the most similar known word, if it is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    // Much longer than any key: not compared.
    if word.len() > 64 {
        return None;
    }
    let word = plain(word);
    // Longer words may contain more typos.
    let max_distance = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (osa_distance(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
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
