// What the tests of published encoders share: the batch of the fixtures, outputs to compare,
// and config.json files with changed members.
#pragma once

#include <algorithm>
#include <cstring>

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "tests/support/change_members.hpp"

namespace llm {

// The folders of tests/fixtures/models with an encoder.
inline std::vector<std::string> encoder_fixtures() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(fixture_path("models"))) {
        const std::string name = entry.path().filename().string();
        if (fs::is_directory(entry) && name.find("bert") != name.npos) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

// Three texts of 11, 7 and 4 tokens. The first is a pair, if the encoder has token types.
inline BatchEncoding encoder_batch(const models::AnyEncoder& encoder) {
    const IdMatrix input_ids = id_fixture<2>("25_encoders/input_ids");
    IdMatrix types = id_fixture<2>("25_encoders/token_type_ids");
    if (models::config_of(encoder).type_vocab_size == 0) types.fill(0);
    return {input_ids, id_fixture<2>("25_encoders/padding_mask"), types,
            position_ids(input_ids.shape(0), input_ids.shape(1))};
}

// Padding has no meaning: its vectors are set to 0.
inline Tensor3 without_padding(Tensor3 states) {
    const IdMatrix padding_mask = id_fixture<2>("25_encoders/padding_mask");
    for (auto [b, t] : every_index(states.shape(0), states.shape(1)))
        if (padding_mask(b, t) == 0) xt::view(states, b, t) = Real(0);
    return states;
}

// The first difference between two lists of outputs; empty: there is none.
inline std::string difference_of(const models::EncoderOutputs& a,
                                 const models::EncoderOutputs& b, double tolerance) {
    const auto compare = [&](const auto& one, const auto& other) -> std::string {
        if (one.has_value() != other.has_value()) return "only one has this output";
        return one ? difference(*one, *other, tolerance) : "";
    };
    std::string result = difference(without_padding(a.last_hidden_state),
                                    without_padding(b.last_hidden_state), tolerance);
    for (const std::string& next :
         {compare(a.pooler_output, b.pooler_output), compare(a.nsp_logits, b.nsp_logits),
          compare(a.logits, b.logits)})
        if (result.empty()) result = next;
    if (!result.empty() || !a.mlm_logits || !b.mlm_logits)
        return result.empty() && a.mlm_logits.has_value() != b.mlm_logits.has_value()
                   ? "only one has mlm_logits"
                   : result;
    return difference(without_padding(*a.mlm_logits), without_padding(*b.mlm_logits),
                      tolerance);
}

// The header of a safetensors file.
inline std::string header_of(const fs::path& file) {
    const std::string bytes = content(file);
    std::uint64_t size;
    std::memcpy(&size, bytes.data(), sizeof size);
    return bytes.substr(8, size);
}

// The settings of a config.json with these members.
inline models::EncoderFamilyConfig read_encoder(const std::string& type,
                                                const std::string& members) {
    const Scratch scratch;
    overwrite(
        scratch.folder / "config.json",
        R"({"model_type": ")" + type + "\"" + (members.empty() ? "" : ", ") + members + "}");
    return models::read_encoder_config(JsonFile(scratch.folder / "config.json"));
}

}  // namespace llm
