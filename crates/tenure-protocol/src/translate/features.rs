//! Since which revision of MCP something exists, of the things that a bridge has to take away from older ones.
//!
//! Beside `protocol.rs` the only file that compares versions. Only what a peer of an older revision could stumble
//! over has a name here: members that a revision does not know are ignored by all of them.

use crate::revision::Revision;

/// Something that older revisions do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feature {
    /// Content of type `audio`.
    Audio,
    /// A capability that says whether a server completes arguments.
    CompletionsCapability,
    /// Content of type `resource_link`.
    ResourceLinks,
    /// `elicitation/create`, with a form.
    Elicitation,
    /// The mode `url` of an elicitation, and with it modes at all.
    UrlElicitation,
    /// Choices in a form that have titles of their own (`oneOf`), and choices of several (`array`).
    RichChoices,
    /// Tools in a sampling request, and lists of content in its messages.
    SamplingTools,
    /// Tasks in the protocol itself, and `execution` of tools.
    Tasks,
}

impl Feature {
    fn since(self) -> Revision {
        match self {
            Self::Audio | Self::CompletionsCapability => Revision::V2025_03_26,
            Self::ResourceLinks | Self::Elicitation => Revision::V2025_06_18,
            Self::UrlElicitation | Self::RichChoices | Self::SamplingTools | Self::Tasks => {
                Revision::V2025_11_25
            }
        }
    }

    /// Whether a revision has it.
    pub(crate) fn is_in(self, revision: Revision) -> bool {
        revision >= self.since()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_revision_has() {
        let table = [
            (Feature::Audio, [false, true, true, true]),
            (Feature::CompletionsCapability, [false, true, true, true]),
            (Feature::ResourceLinks, [false, false, true, true]),
            (Feature::Elicitation, [false, false, true, true]),
            (Feature::UrlElicitation, [false, false, false, true]),
            (Feature::RichChoices, [false, false, false, true]),
            (Feature::SamplingTools, [false, false, false, true]),
            (Feature::Tasks, [false, false, false, true]),
        ];
        for (feature, expected) in table {
            assert_eq!(Revision::ALL.map(|revision| feature.is_in(revision)), expected, "{feature:?}");
        }
    }
}
