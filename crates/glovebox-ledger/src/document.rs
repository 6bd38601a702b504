//! The result document as text: what the ledger stores of it, and how it is made whole again.
//!
//! It is never read into a type and written again, because then a field that this version does not know would be lost,
//! and one that an older version did not write would be missing.

use std::fmt;

use glovebox_core::{Error, ErrorCode, OutputRecord, Result, ResultRecord, RunResult};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

/// The document of a run without the bytes of its streams and of what it showed.
pub(crate) fn without_output(result: &mut RunResult) -> Result<String> {
    let (stdout, stderr) = (std::mem::take(&mut result.stdout), std::mem::take(&mut result.stderr));
    let bare = |stream: &OutputRecord| OutputRecord { text: None, base64: None, ..*stream };
    (result.stdout, result.stderr) = (bare(&stdout), bare(&stderr));
    let results = result.results.take();
    let bare = |shown: &ResultRecord| ResultRecord { mime: shown.mime.clone(), text: None, base64: None, ..*shown };
    result.results = results.as_ref().map(|results| results.iter().map(bare).collect());
    let document = serde_json::to_string(&*result).map_err(unwritable);
    (result.stdout, result.stderr, result.results) = (stdout, stderr, results);
    document
}

/// A JSON object whose fields keep their order and their text.
pub(crate) struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    pub(crate) fn parse(text: &str) -> Result<Object> {
        serde_json::from_str(text).map_err(unreadable)
    }

    pub(crate) fn get<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<Option<T>> {
        let field = self.0.iter().find(|(key, _)| key == name);
        field.map(|(_, value)| serde_json::from_str(value.get()).map_err(unreadable)).transpose()
    }

    /// Replaces a field that is there.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        let text = serde_json::value::to_raw_value(value).map_err(unwritable)?;
        if let Some((_, field)) = self.0.iter_mut().find(|(key, _)| key == name) {
            *field = text;
        }
        Ok(())
    }

    pub(crate) fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(unwritable)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

pub(crate) fn unreadable(error: serde_json::Error) -> Error {
    Error::new(ErrorCode::LedgerDamaged, "the ledger holds a document that cannot be read").because(error)
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::new(ErrorCode::Internal, "the document cannot be written as JSON").because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_their_text() {
        let text = r#"{"z":1.10,"a":{"later":[1e3]},"stdout":{"bytes":2},"m":"\u00e9"}"#;
        let mut object = Object::parse(text).unwrap();
        assert_eq!(object.text().unwrap(), text);
        object.set("stdout", &"x").unwrap();
        object.set("unknown", &"y").unwrap();
        assert_eq!(object.text().unwrap(), text.replace(r#"{"bytes":2}"#, r#""x""#));
        assert_eq!(object.get::<f64>("z").unwrap(), Some(1.1));
        assert!(Object::parse("[1]").is_err());
    }
}
