// Regular expressions of tokenizers. Hugging Face's library matches them with Oniguruma; this
// project uses PCRE2, in which some constructs have another meaning.
#pragma once

#include <string>

namespace llm {

// Translates a regular expression from Oniguruma's syntax to PCRE2's, to be compiled with
// PCRE2_UTF, PCRE2_UCP, PCRE2_MULTILINE and line feeds as newlines. Supported are literals,
// ".", alternatives, groups, lookarounds, (?i:...), quantifiers, the anchors ^ $ \A \z \Z,
// \s \d \h and their complements, \p{...} with a general category or a script, and character
// classes, also nested ones and intersections: [a-z&&[^b]]. Throws TextError, which names the
// construct and its position, for anything else, such as POSIX classes, \w, \b and \G.
std::string pcre2_from_oniguruma(const std::string& expression);

}  // namespace llm
