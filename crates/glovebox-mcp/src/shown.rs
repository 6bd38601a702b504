//! What code in a session shows, as content that fits a model: of several forms of one value the one that it reads best.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use glovebox_core::{ResultRecord, RunResult};
use rmcp::model::{ContentBlock, ResourceContents};

use crate::{
    text::{self, shorten},
    tools::read_file::image_type,
};

/// The largest picture that comes with an answer.
const MOST_IMAGE: u64 = 5 << 20;
/// All pictures of one answer together.
const MOST_IMAGES: u64 = 10 << 20;
/// The largest other thing.
const MOST_OTHER: u64 = 1 << 20;
/// So many things come with one answer.
const MOST: usize = 20;

/// Forms of a value, the one that a model reads best first. A figure is seen and not read.
const FORMS: [&str; 9] = [
    "image/png",
    "image/jpeg",
    "text/markdown",
    "text/latex",
    "text/plain",
    "application/json",
    "image/svg+xml",
    "text/html",
    "application/pdf",
];

/// The forms that are handed on: the best one of each value, and data of charts beside it.
pub(crate) fn chosen(result: &RunResult) -> Vec<&ResultRecord> {
    let all = result.results.as_deref().unwrap_or_default();
    let rank = |record: &ResultRecord| FORMS.iter().position(|mime| *mime == record.mime).unwrap_or(FORMS.len());
    let is_best = |one: &ResultRecord| {
        let of_value = all.iter().filter(|other| other.value == one.value && !is_chart(other));
        of_value.min_by_key(|other| rank(other)).is_some_and(|best| std::ptr::eq(best, one))
    };
    all.iter().filter(|record| is_chart(record) || is_best(record)).take(MOST).collect()
}

/// Data from which a chart was drawn.
fn is_chart(record: &ResultRecord) -> bool {
    record.mime.ends_with("+json")
}

/// What is shown: what is text, and pictures and the like.
pub(crate) fn content(result: &RunResult) -> (Vec<String>, Vec<ContentBlock>) {
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    let mut pictures = 0;
    for record in chosen(result) {
        pictures += if record.text.is_none() { record.bytes } else { 0 };
        let block = match pictures > MOST_IMAGES {
            true => ContentBlock::text(format!("[{}: left out, there are too many]", text::cut(&record.mime, 100))),
            false => block(record),
        };
        match block {
            ContentBlock::Text(content) => texts.push(content.text),
            other => others.push(other),
        }
    }
    (texts, others)
}

fn block(record: &ResultRecord) -> ContentBlock {
    let ResultRecord { mime, text, bytes, .. } = record;
    let is_picture = ["image/png", "image/jpeg"].contains(&mime.as_str());
    let most = if is_picture { MOST_IMAGE } else { MOST_OTHER };
    if *bytes > most {
        let sizes = (text::size(*bytes), text::size(most));
        return ContentBlock::text(format!(
            "[{}: {}, and at most {} come with an answer]",
            text::cut(mime, 100),
            sizes.0,
            sizes.1
        ));
    }
    // A model's program may refuse all of a conversation for one picture that is none.
    if is_picture && image_type(&record.to_bytes()) != Some(mime.as_str()) {
        return ContentBlock::text(format!("[{}: {}, which is no picture of that type]", mime, text::size(*bytes)));
    }
    let base64 = || record.base64.clone().unwrap_or_else(|| BASE64_STANDARD.encode(record.to_bytes()));
    match text {
        Some(text) if mime == "image/svg+xml" => {
            ContentBlock::resource(ResourceContents::text(text.clone(), "result:///figure.svg").with_mime_type(mime))
        }
        Some(text) => ContentBlock::text(shorten(text.as_bytes(), text.len() as u64).text),
        None if is_picture => ContentBlock::image(base64(), mime.clone()),
        None => {
            let name = format!("result:///value.{}", record.ending());
            ContentBlock::resource(ResourceContents::blob(base64(), name).with_mime_type(text::cut(mime, 100)))
        }
    }
}
