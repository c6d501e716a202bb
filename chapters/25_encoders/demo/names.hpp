// Chapter 25: names, letter by letter, as texts to train small encoders on.
#pragma once

#include <string>
#include <vector>

#include "chapters/25_encoders/masked_lm.hpp"

namespace llm {

// [PAD] 0, [CLS] 1, [SEP] 2, [MASK] 3, then the letters a to z.
inline constexpr Id pad_id = 0, cls_id = 1, sep_id = 2, mask_id = 3;
inline constexpr std::size_t num_letter_ids = 4 + 26;

// [CLS] name [SEP]. Throws ValueError, which names the character, unless each is a letter from
// a to z, or _, which becomes [MASK], or if there are more than 22.
std::vector<Id> encode_name(const std::string& name);
std::string letter_text(Id id);  // "a", "[MASK]"
BatchEncoding encode_names(const std::vector<std::string>& names);

// The names of assets/data/names.txt in random order; the last 1,000 are held out.
struct Names {
    std::vector<std::string> train, held_out;
};
Names load_names(Generator& generator);

// Different names in random order.
std::vector<std::string> sample_names(const std::vector<std::string>& names, std::size_t count,
                                      Generator& generator);

// ModernBERT's blocks: three layers of width 48, with windows of 2 in two of them.
using NameModel = MaskedLM<ModernBertBlock>;
NameModel make_name_model(std::uint32_t seed);

// The shipped models, which ./learn 25 --steps 6000 --export assets/name_encoder trained: to
// fill in letters, and to search.
NameModel load_name_model();
ModernBertModel load_search_encoder();
void save_name_models(const std::string& folder, NameModel fill, ModernBertModel search);

}  // namespace llm
