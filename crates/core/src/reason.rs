//! Why something is believed, decided, or not as wanted.
//!
//! A reason is data, and made into words where it is shown: a decision allocates nothing for them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use arrayvec::ArrayVec;

/// Maximum number of figures of a reason.
pub const MAX_FIGURES: usize = 4;

/// The figures of a reason by name, with the unit as suffix.
pub type Figures = ArrayVec<(&'static str, f64), MAX_FIGURES>;

/// Makes a sentence of the figures of a reason, in their order; those that it does not have are NaN.
pub type Sentence = fn([f64; MAX_FIGURES]) -> String;

/// The reason for a belief or a decision.
#[derive(Clone, Debug, Default)]
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
        Reason { inputs: inputs.into_iter().take(MAX_FIGURES).collect(), ..self }
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
                figures.iter_mut().zip(&self.inputs).for_each(|(figure, (_, value))| *figure = *value);
                sentence(figures)
            }
        };
        match &self.about {
            Some((path, state)) => format!("{path} is {state}: {text}"),
            None => text,
        }
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
