#include "chapters/25_encoders/demo/names.hpp"

#include <algorithm>

#include "chapters/09_full_model/checkpoint.hpp"
#include "common/files/mapped_file.hpp"
#include "common/files/unicode.hpp"
#include "common/numbers/choices.hpp"

namespace llm {
namespace {

NameModel empty_name_model() {
    EncoderConfig config;
    config.vocab_size = num_letter_ids;
    config.hidden_size = 48;
    config.intermediate_size = 96;
    config.num_hidden_layers = 3;
    config.num_attention_heads = 4;
    config.max_position_embeddings = 24;
    config.rope_theta = Real(10'000);
    config.windowed = WindowedLayers{2, 3, Real(10'000)};
    config.layer_norm_eps = Real(1e-5);
    config.has_bias = false;
    return {empty_modern_bert(config), empty_head(config)};
}

std::string fill_file(const std::string& folder) { return folder + "/fill.safetensors"; }
std::string search_file(const std::string& folder) { return folder + "/search.safetensors"; }

}  // namespace

std::vector<Id> encode_name(const std::string& name) {
    require(name.size() <= 22, "a name has at most 22 letters, not {}", name.size());
    std::vector<Id> ids = {cls_id};
    for (const std::string& letter : characters(name)) {
        require(letter == "_" || (letter >= "a" && letter <= "z"),
                "a name has letters from a to z, and _ for a hidden one, not '{}'", letter);
        ids.push_back(letter == "_" ? mask_id : Id(4 + (letter[0] - 'a')));
    }
    ids.push_back(sep_id);
    return ids;
}

std::string letter_text(Id id) {
    static const std::vector<std::string> special = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};
    if (id < 4) return special[static_cast<std::size_t>(id)];
    return std::string(1, static_cast<char>('a' + (id - 4)));
}

BatchEncoding encode_names(const std::vector<std::string>& names) {
    std::vector<std::vector<Id>> texts;
    for (const std::string& name : names) texts.push_back(encode_name(name));
    return pad(texts, pad_id);
}

Names load_names(Generator& generator) {
    std::vector<std::string> names = lines_of(read_text(asset("data/names.txt")));
    shuffle(names, generator);
    constexpr std::size_t num_held_out = 1000;
    const auto first = names.end() - static_cast<std::ptrdiff_t>(num_held_out);
    return {{names.begin(), first}, {first, names.end()}};
}

std::vector<std::string> sample_names(const std::vector<std::string>& names, std::size_t count,
                                      Generator& generator) {
    std::vector<std::string> sample;
    while (sample.size() < count) {
        const std::string& name = names[generator.next_32_bits() % names.size()];
        if (std::find(sample.begin(), sample.end(), name) == sample.end())
            sample.push_back(name);
    }
    return sample;
}

NameModel make_name_model(std::uint32_t seed) {
    Generator generator(seed);
    NameModel model = empty_name_model();
    init_weights(model.encoder, generator);
    Matrix& weight = model.head.dense.weight;  // (C, C)
    generator.fill_normal({weight.data(), weight.size()});
    weight = weight * Real(0.02);
    return model;
}

NameModel load_name_model() {
    NameModel model = empty_name_model();
    load_parameters(fill_file(asset("name_encoder")), named_parameters(model));
    return model;
}

ModernBertModel load_search_encoder() {
    ModernBertModel encoder = empty_name_model().encoder;
    load_parameters(search_file(asset("name_encoder")), named_parameters(encoder));
    return encoder;
}

void save_name_models(const std::string& folder, NameModel fill, ModernBertModel search) {
    save_parameters(named_parameters(fill), fill_file(folder), DType::bfloat16);
    save_parameters(named_parameters(search), search_file(folder), DType::bfloat16);
}

}  // namespace llm
