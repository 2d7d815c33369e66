//! Why something is believed, decided, or not as wanted.
//!
//! A reason is data, and made into words where it is shown: a decision allocates nothing for them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;

/// Maximum number of figures of a reason.
pub const MAX_FIGURES: usize = 4;

/// The figures of a reason by name, with the unit as suffix; those after the first [`MAX_FIGURES`] are left out.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    all: [(&'static str, f64); MAX_FIGURES],
    number: u8,
}

impl FromIterator<(&'static str, f64)> for Figures {
    fn from_iter<I: IntoIterator<Item = (&'static str, f64)>>(figures: I) -> Figures {
        let mut collected = Figures::default();
        for (place, figure) in collected.all.iter_mut().zip(figures) {
            *place = figure;
            collected.number += 1;
        }
        collected
    }
}

impl Deref for Figures {
    type Target = [(&'static str, f64)];

    fn deref(&self) -> &[(&'static str, f64)] {
        &self.all[..usize::from(self.number)]
    }
}

impl PartialEq for Figures {
    fn eq(&self, other: &Figures) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Makes a sentence of the figures of a reason, in their order; those that it does not have are NaN.
pub type Sentence = fn([f64; MAX_FIGURES]) -> String;

/// The reason for a belief or a decision.
#[derive(Default)]
pub struct Reason {
    /// The rule that applied, e.g. `threshold.leave`.
    pub rule: &'static str,
    /// The figures.
    pub inputs: Figures,
    words: Words,
    /// Name and state of the path that it is about, if another one follows from it.
    about: Option<(Arc<str>, &'static str)>,
}

/// What a reason is made into words from.
#[derive(Clone, Debug)]
pub enum Words {
    /// These words.
    Fixed(&'static str),
    /// These, made when the reason arose.
    Text(Arc<str>),
    /// The figures.
    Figures(Sentence),
}

impl Reason {
    /// A reason in words, without figures.
    pub fn plain(rule: &'static str, words: impl Into<Words>) -> Reason {
        Reason { rule, words: words.into(), ..Reason::default() }
    }

    /// A reason that its figures, at most [`MAX_FIGURES`], make into words.
    pub fn new<const N: usize>(rule: &'static str, inputs: [(&'static str, f64); N], sentence: Sentence) -> Reason {
        Reason::plain(rule, Words::Figures(sentence)).with(inputs)
    }

    /// The same with these figures; only the first [`MAX_FIGURES`] are kept.
    pub fn with(self, inputs: impl IntoIterator<Item = (&'static str, f64)>) -> Reason {
        Reason { inputs: inputs.into_iter().collect(), ..self }
    }

    /// The same for what follows from the state of another path.
    pub fn about(&self, path: &Arc<str>, state: &'static str) -> Reason {
        Reason { about: Some((Arc::clone(path), state)), ..self.clone() }
    }

    /// Whether it is that of nothing yet.
    pub fn is_empty(&self) -> bool {
        matches!(self.words, Words::Fixed(""))
    }

    /// A sentence with the figures.
    pub fn text(&self) -> String {
        let text = match &self.words {
            Words::Fixed(text) => String::from(*text),
            Words::Text(text) => String::from(&**text),
            Words::Figures(sentence) => {
                let mut figures = [f64::NAN; MAX_FIGURES];
                figures.iter_mut().zip(self.inputs.iter()).for_each(|(figure, (_, value))| *figure = *value);
                sentence(figures)
            }
        };
        match &self.about {
            Some((path, state)) if text.is_empty() => format!("{path} is {state}"),
            Some((path, state)) => format!("{path} is {state}: {text}"),
            None => text,
        }
    }
}

impl Clone for Reason {
    /// Out of line: what changes a path clones several, and nothing of it is in the caches before the first.
    #[inline(never)]
    fn clone(&self) -> Reason {
        Reason { rule: self.rule, inputs: self.inputs, words: self.words.clone(), about: self.about.clone() }
    }
}

/// As it is shown: the address of a function would differ from build to build.
impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Reason { rule, inputs, .. } = self;
        f.debug_struct("Reason").field("rule", rule).field("text", &self.text()).field("inputs", inputs).finish()
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Reason) -> bool {
        let is_same_words = || match (&self.words, &other.words) {
            (Words::Figures(sentence), Words::Figures(other)) => core::ptr::fn_addr_eq(*sentence, *other),
            _ => false,
        };
        let is_alike = self.rule == other.rule && self.inputs == other.inputs;
        is_alike && ((self.about == other.about && is_same_words()) || self.text() == other.text())
    }
}

impl Default for Words {
    fn default() -> Words {
        Words::Fixed("")
    }
}

impl From<&'static str> for Words {
    fn from(words: &'static str) -> Words {
        Words::Fixed(words)
    }
}

impl From<String> for Words {
    fn from(words: String) -> Words {
        Words::Text(words.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_made_into_words_from_its_figures_and_says_which_path_it_is_about() {
        let reason = Reason::new("age", [("age_ms", 70.4), ("limit_ms", 65.0)], |[age, limit, missing, _]| {
            format!("{age:.0} ms, {limit:.0} allowed, {missing}")
        });
        assert_eq!(reason.text(), "70 ms, 65 allowed, NaN");
        assert_eq!(reason.about(&"lte".into(), "stalled").text(), "lte is stalled: 70 ms, 65 allowed, NaN");
        assert_eq!(
            format!("{reason:?}"),
            "Reason { rule: \"age\", text: \"70 ms, 65 allowed, NaN\", inputs: [(\"age_ms\", 70.4), (\"limit_ms\", 65.0)] }"
        );
        assert!(Reason::default().is_empty() && !reason.is_empty());
        assert_eq!(Reason::default().about(&"lte".into(), "unknown").text(), "lte is unknown");
    }

    #[test]
    fn reasons_are_equal_if_they_read_the_same_whatever_the_words_are_made_from() {
        let new = |figure| Reason::new("r", [("a_ms", figure)], |[figure, ..]| format!("{figure} ms"));
        assert_eq!(new(1.0), Reason::plain("r", String::from("1 ms")).with([("a_ms", 1.0)]));
        assert!(new(1.0) == new(1.0) && new(1.0) != new(2.0) && new(1.0) != new(1.0).about(&"a".into(), "good"));
    }
}
