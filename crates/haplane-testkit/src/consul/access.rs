//! Policies and tokens.

use serde_json::json;

use super::Consul;
use crate::http::Request;

/// The token that may do everything, from the start, on a Consul with ACL. It is a
/// constant, because everything that knows it ends with the test.
pub const MANAGEMENT_TOKEN: &str = "7f6e0b8c-4a52-4f0e-9d5a-0c3b1a2d4e5f";

/// A token that Consul made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its public name, to change or delete it.
    pub accessor: String,
    /// What a client sends.
    pub secret: String,
}

impl Consul {
    /// Creates a policy or, if it exists, gives it these rules.
    pub async fn set_policy(&self, name: &str, rules: &str) {
        let known = self.must(Request::get("/v1/acl/policies")).await.json();
        let known = known
            .as_array()
            .unwrap()
            .iter()
            .find(|policy| policy["Name"] == name)
            .map(|p| p["ID"].clone());
        let path = match &known {
            Some(id) => format!("/v1/acl/policy/{}", id.as_str().unwrap()),
            None => "/v1/acl/policy".to_owned(),
        };
        self.must(Request::put(
            &path,
            json!({ "Name": name, "Rules": rules }).to_string(),
        ))
        .await;
    }

    /// Creates a token with these policies.
    pub async fn create_token(&self, policies: &[&str]) -> Token {
        let policies: Vec<_> = policies
            .iter()
            .map(|name| json!({ "Name": name }))
            .collect();
        let made = self
            .must(Request::put(
                "/v1/acl/token",
                json!({ "Policies": policies }).to_string(),
            ))
            .await
            .json();
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        Token {
            accessor: text("AccessorID"),
            secret: text("SecretID"),
        }
    }

    /// Takes all policies from a token, or gives it others.
    pub async fn set_token_policies(&self, token: &Token, policies: &[&str]) {
        let policies: Vec<_> = policies
            .iter()
            .map(|name| json!({ "Name": name }))
            .collect();
        let body = json!({ "AccessorID": token.accessor, "Policies": policies }).to_string();
        self.must(Request::put(
            &format!("/v1/acl/token/{}", token.accessor),
            body,
        ))
        .await;
    }

    /// Deletes a token.
    pub async fn delete_token(&self, token: &Token) {
        self.must(Request::new(
            "DELETE",
            &format!("/v1/acl/token/{}", token.accessor),
        ))
        .await;
    }
}
