//! Tests of the attributes that Orlog keeps, and of data in every format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orlog_model::{Event, EventAttributes, Timestamp};
use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_123);
const DEFAULTS: DecodeDefaults = DecodeDefaults {
    tenant: None,
    now: NOW,
};

fn structured(patch: &Value) -> Result<Event, DecodeError> {
    let mut body = json!({ "specversion": "1.0", "id": "e", "type": "T", "source": "s" });
    for (name, value) in patch.as_object().unwrap() {
        body[name] = value.clone();
    }
    from_structured(&body, &DEFAULTS)
}

fn binary(headers: &[(&str, &str)], body: &[u8]) -> Result<Event, DecodeError> {
    let required = [
        ("ce-specversion", "1.0"),
        ("ce-id", "e"),
        ("ce-type", "T"),
        ("ce-source", "s"),
    ];
    from_binary(required.iter().chain(headers).copied(), body, &DEFAULTS)
}

/// Returns the event after the codec encoded and decoded it.
fn published(event: &Event) -> Event {
    let message = encode(event, "aggregate.event.e");
    let decoded = decode(&message, NOW).unwrap();
    let again = encode(&decoded, "aggregate.event.e");
    assert_eq!(
        again, message,
        "an event that is published again is the same message"
    );
    decoded
}

/// Requirements: R5.
#[test]
fn extensions_schema_and_content_type_are_kept_in_every_mode() {
    let of_members = structured(&json!({
        "dataschema": "https://shop.example/order.json", "datacontenttype": "application/vnd.shop+json",
        "partitionkey": "k 1%", "sequence": 7, "sampled": true, "empty": "", "absent": null, "data": { "a": 1 },
    }));
    let of_headers = binary(
        &[
            ("ce-dataschema", "https://shop.example/order.json"),
            ("content-type", "application/vnd.shop+json"),
            ("CE-PartitionKey", "k%201%25"),
            ("ce-sequence", "7"),
            ("ce-sampled", "true"),
            ("ce-empty", ""),
        ],
        br#"{"a":1}"#,
    );
    let extensions = [
        ("partitionkey", "k 1%"),
        ("sequence", "7"),
        ("sampled", "true"),
        ("empty", ""),
    ];
    let attributes = EventAttributes {
        content_type: Some("application/vnd.shop+json".to_owned()),
        data_schema: Some("https://shop.example/order.json".to_owned()),
        extensions: extensions
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    };
    let event = of_members.unwrap();
    assert_eq!(event.attributes, attributes.boxed());
    assert_eq!(of_headers.unwrap(), event);
    assert_eq!(published(&event), event);
}

#[test]
fn event_without_further_attributes_has_no_place_for_them() {
    let plain =
        structured(&json!({ "data": 1, "datacontenttype": "application/json; charset=utf-8" }))
            .unwrap();
    assert_eq!(plain.attributes, None);
    // A message with the content type of an event would be an event in another mode.
    let nested =
        json!({ "data": { "id": "e-2" }, "datacontenttype": "application/cloudevents+json" });
    let nested = structured(&nested).unwrap();
    assert_eq!(
        (&nested.attributes, published(&nested)),
        (&None, nested.clone())
    );
    // Attributes of Orlog are not extensions: no publisher can forge the result of an effect.
    let reserved = binary(
        &[
            ("ce-orlogeffect", "pay.charge"),
            ("ce-OrlogResult", "Succeeded"),
        ],
        b"1",
    )
    .unwrap();
    assert_eq!((&reserved.attributes, &reserved.data), (&None, &json!(1)));
    assert_eq!(encode(&plain, "x").headers, encode(&reserved, "x").headers);
}

/// Checks that the bytes have this value in binary mode, as `data_base64`, and as `data` if they are text.
#[track_caller]
fn same_in_all_modes(content_type: &str, bytes: &[u8], expected: &Value) {
    let modes = [
        binary(&[("content-type", content_type)], bytes),
        structured(
            &json!({ "datacontenttype": content_type, "data_base64": STANDARD.encode(bytes) }),
        ),
        match std::str::from_utf8(bytes) {
            Ok(text) => structured(&json!({ "datacontenttype": content_type, "data": text })),
            Err(_) => binary(&[("content-type", content_type)], bytes),
        },
    ];
    for event in modes {
        let event = event.unwrap();
        assert_eq!(&event.data, expected, "{content_type}");
        let message = encode(&event, "x");
        assert_eq!(
            message.payload,
            Bytes::copy_from_slice(bytes),
            "{content_type}"
        );
        assert_eq!(published(&event), event, "{content_type}");
    }
}

/// Requirements: R5.
#[test]
fn xml_text_and_bytes_are_the_same_in_all_modes() {
    let xml = "<order id=\"1\">ä</order>";
    for content_type in [
        "application/xml",
        "text/xml; charset=utf-8",
        "application/soap+xml",
        "text/plain",
    ] {
        same_in_all_modes(content_type, xml.as_bytes(), &json!(xml));
    }
    for content_type in ["application/octet-stream", "image/png"] {
        same_in_all_modes(content_type, xml.as_bytes(), &json!(STANDARD.encode(xml)));
        same_in_all_modes(content_type, &[0xff, 0, 0x80], &json!("/wCA"));
    }
    let invalid = binary(&[("content-type", "application/xml")], &[0xff])
        .unwrap_err()
        .to_string();
    assert!(
        invalid.contains("the body is application/xml but not UTF-8"),
        "{invalid}"
    );
    assert_eq!(
        binary(&[("content-type", "application/xml")], b"")
            .unwrap()
            .data,
        Value::Null
    );
}

#[test]
fn data_that_does_not_fit_its_content_type_is_published_as_json() {
    let png =
        structured(&json!({ "datacontenttype": "image/png", "data_base64": "/wCA" })).unwrap();
    let replaced = Event {
        data: json!({ "a": 1 }),
        ..png
    };
    let message = encode(&replaced, "x");
    assert!(
        message
            .headers
            .contains(&("content-type".into(), "application/json".into()))
    );
    assert_eq!(decode(&message, NOW).unwrap().data, json!({ "a": 1 }));
}

#[track_caller]
fn rejected(patch: &Value, expected: &str) {
    let error = structured(patch).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn invalid_extensions_are_rejected_with_the_remedy() {
    let types =
        "an extension is a string, a whole number or a boolean; move other values into the data";
    rejected(
        &json!({ "region": { "a": 1 } }),
        &format!("attribute region is invalid: {types}, got an object"),
    );
    rejected(&json!({ "ratio": 1.5 }), types);
    rejected(
        &json!({ "my_region": "eu" }),
        "attribute my_region is invalid: the name of an extension consists",
    );
    rejected(
        &json!({ "region": "a\nb" }),
        "must not contain control characters",
    );
    rejected(
        &json!({ "region": "x".repeat(4097) }),
        "it is 4097 bytes long, the limit is 4096",
    );
    rejected(
        &json!({ "dataschema": "" }),
        "attribute dataschema is invalid: it must not be empty",
    );
    rejected(
        &json!({ "datacontenttype": 7 }),
        "attribute datacontenttype is invalid: it must be a string",
    );
    rejected(
        &json!({ "datacontenttype": "täxt" }),
        "it must be a media type such as application/xml, in ASCII",
    );
    rejected(
        &json!({ "datacontenttype": "text/plain", "data": { "a": 1 } }),
        "for JSON data, omit datacontenttype or use application/json",
    );
    let many: Value = (0..65)
        .map(|n| (format!("x{n}"), json!("y")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    rejected(&many, "it has 65 extension attributes, the limit is 64");
    let twice = binary(&[("ce-region", "eu"), ("CE-REGION", "us")], b"1")
        .unwrap_err()
        .to_string();
    assert!(
        twice.contains("attribute ce-region is invalid: duplicate attribute"),
        "{twice}"
    );
}
