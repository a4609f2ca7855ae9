//! Node labels, node attributes and resource types.

use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    NodeAttributeKeyProto, NodeAttributeProto, NodeLabelProto, ResourceTypeInfoProto,
};

/// Prefix of centrally assigned attributes.
const PREFIX: &str = "rm.yarn.io";

/// Node label: the nodes with it form a partition of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLabel {
    /// Name.
    pub name: String,
    /// True if asks without the label are not placed on its nodes.
    pub exclusive: bool,
}

impl NodeLabel {
    pub(crate) fn of(proto: &NodeLabelProto) -> Self {
        Self { name: proto.name().to_owned(), exclusive: proto.is_exclusive() }
    }
}

/// Attribute name, displayed as `rm.yarn.io/os`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeName {
    /// Origin: `rm.yarn.io` for central attributes, `nm.yarn.io` for those the node reports.
    pub prefix: String,
    /// Name without the prefix.
    pub name: String,
}

/// Error for a malformed attribute name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid attribute name `{0}`: expected a name such as `rm.yarn.io/os`")]
pub struct BadAttribute(String);

impl FromStr for AttributeName {
    type Err = BadAttribute;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (prefix, name) = text.split_once('/').unwrap_or((PREFIX, text));
        let plain = |part: &str| {
            let odd = |letter: char| letter.is_whitespace() || letter.is_control() || letter == '=';
            !part.is_empty() && !part.contains(odd) && !part.contains('/')
        };
        if !plain(prefix) || !plain(name) {
            return Err(BadAttribute(text.chars().take(200).collect()));
        }
        let (prefix, name) = (prefix.to_owned(), name.to_owned());
        Ok(Self { prefix, name })
    }
}

impl fmt::Display for AttributeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.prefix, self.name)
    }
}

impl AttributeName {
    pub(crate) fn of(proto: &NodeAttributeKeyProto) -> Self {
        Self { prefix: proto.attribute_prefix().to_owned(), name: proto.attribute_name.clone() }
    }

    pub(crate) fn proto(&self) -> NodeAttributeKeyProto {
        NodeAttributeKeyProto {
            attribute_prefix: Some(self.prefix.clone()),
            attribute_name: self.name.clone(),
        }
    }
}

/// Node attribute, displayed as `rm.yarn.io/os=linux`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Name.
    pub name: AttributeName,
    /// Value.
    pub value: String,
}

impl Attribute {
    pub(crate) fn of(proto: &NodeAttributeProto) -> Self {
        Self {
            name: AttributeName::of(&proto.attribute_key),
            value: proto.attribute_value().to_owned(),
        }
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// Resource type that a cluster counts, displayed as `yarn.io/gpu` or `memory-mb (Mi)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceTypeInfo {
    /// Name.
    pub name: String,
    /// Unit, such as `Gi`; empty for plain counts.
    pub units: String,
}

impl ResourceTypeInfo {
    pub(crate) fn of(proto: &ResourceTypeInfoProto) -> Self {
        Self { name: proto.name.clone(), units: proto.units().to_owned() }
    }
}

impl fmt::Display for ResourceTypeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.units.as_str() {
            "" => f.write_str(&self.name),
            units => write!(f, "{} ({units})", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_names_round_trip() {
        for text in ["rm.yarn.io/os", "nm.yarn.io/cuda"] {
            assert_eq!(text.parse::<AttributeName>().unwrap().to_string(), text);
        }
        let short: AttributeName = "os".parse().unwrap();
        assert_eq!(short.to_string(), "rm.yarn.io/os");
        for bad in ["", "/", "a/", "/b", "a/b/c", "a b", "os=linux"] {
            assert!(bad.parse::<AttributeName>().is_err(), "{bad}");
        }
    }
}
