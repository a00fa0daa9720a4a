//! Similarity of event names: whether one is probably a misspelling of the other.

/// Minimum length of a word in which a changed letter counts as a misspelling. Shorter words differ
/// by one letter on purpose: `BookedByA` and `BookedByB`, `CarBooked` and `CardBooked`.
const MIN_WORD: usize = 5;

/// Returns whether two different names have the same words, except for capitals, separators and one
/// letter of one word.
pub(super) fn is_misspelling(one: &str, other: &str) -> bool {
    if one == other {
        return false;
    }

    let a = words(one);
    let b = words(other);
    if a.concat() == b.concat() {
        return true;
    }
    if a.len() != b.len() {
        return false;
    }

    let mut different = a.iter().zip(&b).filter(|(a, b)| a != b);
    match (different.next(), different.next()) {
        (Some((a, b)), None) => is_misspelled_word(a, b),
        (_, _) => false,
    }
}

/// Returns the keys of a name. Two names of which one is a misspelling of the other share a key, so
/// that only the names with a common key must be compared.
pub(super) fn similarity_keys(name: &str) -> Vec<String> {
    let words = words(name);
    let mut keys = vec![words.concat()];
    for (misspelled, word) in words.iter().enumerate() {
        if word.len() < MIN_WORD || has_digit(word) {
            continue;
        }
        // With spaces, so that it differs from the names without them.
        let mut key = misspelled.to_string();
        for (index, word) in words.iter().enumerate() {
            key.push(' ');
            key.push_str(if index == misspelled { "" } else { word });
        }
        keys.push(key);
    }
    keys
}

fn has_digit(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
}

/// Returns whether one letter differs.
fn is_misspelled_word(a: &str, b: &str) -> bool {
    // A word that only has another start (`Locked`, `Blocked`) or another digit is another word.
    a.len().min(b.len()) >= MIN_WORD
        && !(a.ends_with(b) || b.ends_with(a) || has_digit(a) || has_digit(b))
        && strsim::damerau_levenshtein(a, b) == 1
}

/// Splits `OrderPlaced`, `order.placed` or `order-placed` into lower-case words.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_upper_before = true;
    for c in name.chars() {
        let is_upper = c.is_uppercase();
        if !c.is_alphanumeric() || (is_upper && !is_upper_before) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        is_upper_before = is_upper;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::{is_misspelling, similarity_keys};

    fn share_a_key(a: &str, b: &str) -> bool {
        let keys = similarity_keys(a);
        similarity_keys(b).iter().any(|key| keys.contains(key))
    }

    #[test]
    fn misspelled_names_are_similar() {
        for (a, b) in [
            ("PaymentRecieved", "PaymentReceived"),
            ("VisaNeded", "VisaNeeded"),
            ("orderPlaced", "OrderPlaced"),
            ("order.placed", "OrderPlaced"),
            ("Orderplaced", "OrderPlaced"),
        ] {
            assert!(is_misspelling(a, b) && is_misspelling(b, a), "{a} {b}");
            assert!(share_a_key(a, b), "{a} {b}");
        }
    }

    #[test]
    fn names_with_other_words_share_no_key() {
        for (a, b) in [
            ("OrderPlaced", "PaymentReceived"),
            ("OrderPlaced", "OrderPlacedAgain"),
            ("PlacedOrder", "OrderPlaced"),
            ("Step1Done", "Step2Done"),
        ] {
            assert!(!share_a_key(a, b), "{a} {b}");
        }
    }

    #[test]
    fn different_names_are_not_similar() {
        for (a, b) in [
            ("OrderPlaced", "OrderPlaced"),
            ("BookedByA", "BookedByB"),
            ("CarBooked", "CardBooked"),
            ("StockReserved", "StockReleased"),
            ("AccountLocked", "AccountBlocked"),
            ("AccountLocked", "AccountUnlocked"),
            ("GoodsImported", "GoodsExported"),
            ("Attempt1Failed", "Attempt2Failed"),
        ] {
            assert!(!is_misspelling(a, b), "{a} {b}");
        }
    }
}
