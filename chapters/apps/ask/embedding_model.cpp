#include "chapters/apps/ask/embedding_model.hpp"

#include <algorithm>

#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/parallel.hpp"

namespace llm::ask {
namespace {

constexpr std::size_t vocab_size = 12'288;

models::EncoderFamilyConfig small_modernbert(std::size_t num_layers) {
    models::EncoderFamilyConfig config;
    config.family = &models::modernbert_family();
    config.architecture = config.family->base_class;
    config.vocab_size = vocab_size;
    config.hidden_size = 128;
    config.intermediate_size = 192;
    config.num_hidden_layers = num_layers;
    config.num_attention_heads = 4;
    config.max_position_embeddings = 1024;
    config.rope_theta = Real(10'000);
    config.windowed = WindowedLayers{.full_every = 1};
    config.windows.assign(num_layers, false);
    config.layer_norm_eps = Real(1e-5);
    config.has_bias = config.norm_bias = config.attention_bias = config.mlp_bias = false;
    config.classifier_pooling = Pooling::mean;
    return config;
}

Tokenizer tokenizer_for(const std::vector<TextPairs>& kinds) {
    std::string text;
    for (const TextPairs& pairs : kinds)
        for (const TextPair& pair : pairs) text += pair.query + "\n" + pair.passage + "\n";
    return train_wordpiece(text, {.vocab_size = vocab_size, .min_frequency = 2});
}

}  // namespace

std::vector<Id> EmbeddingModel::encode(const std::string& text) const {
    std::vector<Id> ids = tokenizer.encode(text);
    const std::size_t longest = models::config_of(encoder).max_position_embeddings;
    ids.resize(std::min(ids.size(), longest));
    return ids;
}

Matrix EmbeddingModel::embed(const std::vector<std::string>& texts) const {
    return embed(texts, models::make_fast_encoder(encoder));
}

Matrix EmbeddingModel::embed(const std::vector<std::string>& texts,
                             const models::FastEncoder& fast_encoder) const {
    std::vector<std::vector<Id>> ids(texts.size());
    parallel_for(texts.size(), [&](std::size_t n) { ids[n] = encode(texts[n]); });
    return models::embed_texts(fast_encoder, Pooling::mean, ids);
}

EmbeddingModel load_embedding_model(const std::string& folder) {
    models::AnyEncoder encoder = models::load_encoder(folder);
    Tokenizer tokenizer = models::load_tokenizer(folder + "/tokenizer.json",
                                                 models::config_of(encoder).vocab_size);
    return {std::move(encoder), std::move(tokenizer)};
}

void save_embedding_model(const EmbeddingModel& model, const std::string& folder) {
    models::export_model(model.encoder, folder, DType::bfloat16);
    models::save_tokenizer(model.tokenizer, folder + "/tokenizer.json");
    make_folder(folder + "/1_Pooling");
    write_json(folder + "/1_Pooling/config.json",
               {{"word_embedding_dimension", models::config_of(model.encoder).hidden_size},
                {"pooling_mode_mean_tokens", true}});
}

EmbeddingModel make_embedding_model(const std::vector<TextPairs>& kinds, std::size_t num_layers,
                                    std::uint32_t seed) {
    models::EncoderFamilyConfig config = small_modernbert(num_layers);
    Tokenizer tokenizer = tokenizer_for(kinds);
    config.vocab_size = tokenizer.vocab_size();
    Generator generator(seed);
    ModernBertModel encoder = empty_modern_bert(config);
    init_weights(encoder, generator);
    return {
        models::EncoderFamilyModel<ModernBertBlock>{config, std::move(encoder), std::nullopt,
                                                    std::nullopt, std::nullopt, std::nullopt},
        std::move(tokenizer)};
}

}  // namespace llm::ask
