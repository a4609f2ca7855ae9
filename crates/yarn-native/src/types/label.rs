//! What tells nodes apart: labels and attributes; and the kinds of resources they count.

use std::fmt;
use std::str::FromStr;

use crate::proto::yarn::{
    NodeAttributeKeyProto, NodeAttributeProto, NodeLabelProto, ResourceTypeInfoProto,
};

/// The prefix of attributes that are given centrally.
const PREFIX: &str = "rm.yarn.io";

/// A label: nodes with it are a partition of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLabel {
    /// Its name.
    pub name: String,
    /// Whether asks without the label stay off its nodes.
    pub exclusive: bool,
}

impl NodeLabel {
    pub(crate) fn of(proto: &NodeLabelProto) -> Self {
        Self { name: proto.name().to_owned(), exclusive: proto.is_exclusive() }
    }
}

/// The name of an attribute, printed as `rm.yarn.io/os`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeName {
    /// Who gave it: `rm.yarn.io` centrally, `nm.yarn.io` the node itself.
    pub prefix: String,
    /// The rest.
    pub name: String,
}

/// A text that is no name of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of an attribute, such as `rm.yarn.io/os`")]
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

/// An attribute of a node, printed as `rm.yarn.io/os=linux`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name.
    pub name: AttributeName,
    /// Its value.
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

/// A kind of resource that a cluster counts, printed as `yarn.io/gpu` or `memory-mb (Mi)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceTypeInfo {
    /// Its name.
    pub name: String,
    /// Its unit, such as `Gi`; empty for things that are counted.
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
    fn names_of_attributes_are_read_as_they_are_written() {
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
