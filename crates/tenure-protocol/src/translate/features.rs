//! The revision that introduced each feature which a bridge has to remove for older peers.
//!
//! Besides `revision.rs` and `era.rs` the only file that compares versions. It lists only features that make older
//! peers fail; they ignore all other members that their revision does not have.

use crate::revision::Revision;

/// A feature that older revisions do not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Feature {
    /// Content of type `audio`.
    Audio,
    /// The server capability `completions`.
    CompletionsCapability,
    /// Content of type `resource_link`.
    ResourceLinks,
    /// `elicitation/create`, with a form.
    Elicitation,
    /// The mode `url` of an elicitation, and the member `mode` itself.
    UrlElicitation,
    /// Choices in a form with their own titles (`oneOf`), and choices of several values (`array`).
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
