//! Values of filters of commands that change all matching objects.

/// Parses the value of a filter; an empty one is an error.
///
/// The node reads an empty value as no filter. An empty variable of a shell script would therefore
/// make a command reach every object.
///
/// # Errors
/// If the value is empty.
pub(crate) fn filter_value(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the filter is empty; state a value, or omit the option".to_owned());
    }
    Ok(text.to_owned())
}
