//! JSON schemas as every client takes them: without what only this language has.

use rmcp::model::JsonObject;
use serde_json::Value;

/// The schema of an input. A field that need not be there is of its type, and nothing is said of null: models are not helped by
/// it, and some clients take no type that is a list.
pub(super) fn input(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    plain(&mut schema, true);
    schema
}

/// The schema of a document. What can be null is said to be.
pub(super) fn output(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    plain(&mut schema, false);
    schema
}

fn plain(schema: &mut JsonObject, without_null: bool) {
    for key in ["$schema", "title"] {
        if schema.get(key).is_some_and(Value::is_string) {
            schema.remove(key);
        }
    }
    // Comments are broken into lines where the code is.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    let is_number = |format: &Value| {
        format.as_str().is_some_and(|name| {
            name.starts_with("uint") || name.starts_with("int") || ["double", "float"].contains(&name)
        })
    };
    if schema.get("format").is_some_and(is_number) {
        schema.remove("format");
    }
    if without_null {
        if let Some(Value::Array(types)) = schema.get_mut("type") {
            types.retain(|name| name != "null");
            if let [only] = &types[..] {
                let only = only.clone();
                schema.insert("type".to_owned(), only);
            }
        }
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
    }
    for value in schema.values_mut() {
        match value {
            Value::Object(inner) => plain(inner, without_null),
            Value::Array(items) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|item| plain(item, without_null));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_every_client_knows_is_left() {
        let schema = json!({
            "$schema": "x", "title": "T", "type": "object",
            "properties": {
                "title": { "type": ["string", "null"], "default": null, "description": "in\ntwo" },
                "n": { "type": "integer", "format": "uint64", "minimum": 0 },
            }
        });
        let Value::Object(schema) = schema else { panic!() };
        let expected = json!({
            "type": "object",
            "properties": { "title": { "type": "string", "description": "in two" }, "n": { "type": "integer", "minimum": 0 } }
        });
        assert_eq!(Value::Object(input(&schema)), expected);
        assert_eq!(Value::Object(output(&schema))["properties"]["title"]["type"], json!(["string", "null"]));
    }
}
