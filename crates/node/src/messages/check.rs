//! Checks of the fields of a message, at its sender and again at its receiver.

use orlog_model::is_direction_control;
use orlog_sagas::flow;
use orlog_sagas::message::{MAX_MESSAGE_BYTES, Message, MessageType};

use crate::blocking::run_blocking;
use crate::coded_error::{CodedError, ErrorLocation};
use crate::error_code::Code;
use crate::flows::invalid_flow;

/// Maximum length of the subject and of the thread, in bytes.
const MAX_TEXT_BYTES: usize = 200;

/// Returns the error of a field of a message. Its name has dots between the levels.
pub fn invalid(field: &str, detail: impl Into<String>) -> CodedError {
    let detail = detail.into();
    let text = format!("{field}: {detail}");
    let location = ErrorLocation {
        pointer: format!("/{}", field.replace('.', "/")),
        detail,
    };
    CodedError::new(Code::InvalidMessage, text).at(vec![location])
}

/// Checks the texts and the size of a message.
///
/// # Errors
/// If a field is invalid; the error names it.
pub fn check_fields(message: &Message) -> Result<(), CodedError> {
    check_line("thread", &message.thread)?;
    if let Some(subject) = &message.subject {
        check_line("subject", subject)?;
    }
    if let Some(user) = &message.user {
        check_line("user", user)?;
    }

    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(CodedError::too_large(
            &format!("the message has {size} bytes"),
            MAX_MESSAGE_BYTES as u64,
        ));
    }
    Ok(())
}

/// Checks whether the flow of a job compiles.
///
/// # Errors
/// All diagnostics.
pub async fn check_flow(message: &Message) -> Result<(), CodedError> {
    if message.kind != MessageType::Job {
        return Ok(());
    }

    let text = message.body.clone();
    run_blocking(move || match flow::compile(&text, "flow") {
        Ok(_) => Ok(()),
        Err(diagnostics) => Err(invalid_flow(&diagnostics)),
    })
    .await
}

/// Rejects a text that is no line: mail headers and lists contain it.
fn check_line(field: &str, text: &str) -> Result<(), CodedError> {
    let limit = MAX_TEXT_BYTES;
    if text.is_empty() || text.len() > limit {
        return Err(invalid(
            field,
            format!("it has {} bytes; it must have 1 to {limit}", text.len()),
        ));
    }

    let is_line = !text
        .chars()
        .any(|character| character.is_control() || is_direction_control(character));
    if !is_line {
        return Err(invalid(field, "it contains a control character; remove it"));
    }
    Ok(())
}
