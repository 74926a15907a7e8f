//! The envelope, read tolerantly and written exactly.
//!
//! Payme's documents and its real calls differ (with and without `jsonrpc`, several content types), so
//! nothing is required that isn't needed, and the caller's `id` goes back as the very characters that came.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::PaymeError;

/// What could be read of a body, also when it is to be refused.
#[derive(Debug)]
pub struct Envelope {
    /// The caller's `id`, character for character; `null` when there is none that could be read.
    pub id: Box<RawValue>,
    /// The method's name, when it could be read.
    pub method: Option<String>,
    /// The call, or why it isn't one.
    pub call: Result<MethodCall, PaymeError>,
}

/// A call whose envelope is in order.
#[derive(Debug)]
pub struct MethodCall {
    /// The method's name.
    pub method: String,
    /// The parameters: an object.
    pub params: Box<RawValue>,
}

/// Takes a body apart.
#[must_use]
pub fn open(body: &[u8]) -> Envelope {
    let Ok(whole) = serde_json::from_slice::<&RawValue>(body) else { return unread(PaymeError::NotJson) };
    // A map keeps the last of two equal keys, and no unknown member disturbs it.
    let Ok(members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(whole.get()) else {
        return unread(PaymeError::BadRequest("the body is not an object"));
    };
    let method = members.get("method").and_then(|method| serde_json::from_str::<String>(method.get()).ok());
    let refuse = |id, method, what| Envelope { id, method, call: Err(PaymeError::BadRequest(what)) };
    let id = match members.get("id") {
        Some(id) if !id.get().starts_with(['{', '[']) => id.clone(),
        Some(_) => return refuse(null(), method, "id is not a scalar"),
        None => null(),
    };
    let Some(name) = method.clone() else { return refuse(id, None, "method is not a string") };
    match members.get("params") {
        Some(params) if params.get().starts_with('{') => {
            Envelope { id, method, call: Ok(MethodCall { method: name, params: params.clone() }) }
        }
        _ => refuse(id, method, "params is not an object"),
    }
}

/// What is known of a body that can't be taken apart: nothing but why.
#[must_use]
pub fn unread(error: PaymeError) -> Envelope {
    Envelope { id: null(), method: None, call: Err(error) }
}

/// An answer with a result.
#[must_use]
pub fn result(id: &RawValue, result: &RawValue) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.get(), result.get())
}

/// An answer with an error object.
#[must_use]
pub fn error(id: &RawValue, object: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{object}}}"#, id.get())
}

/// JSON's `null`.
#[must_use]
pub fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}
