#include "chapters/models/encoders/encoder_input.hpp"

#include <algorithm>

#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"

namespace llm::models {
namespace {

// The texts of --tokens, padded, with the token types of --token-types.
BatchEncoding batch_of_ids(const ModelRun& run, Id pad_token_id) {
    BatchEncoding batch = pad(run.tokens, pad_token_id);
    if (!run.token_types.empty())
        require(run.token_types.size() == run.tokens.size(),
                "--token-types: the number of texts is {}, that of --tokens {}",
                run.token_types.size(), run.tokens.size());
    for (std::size_t b = 0; b < run.token_types.size(); ++b) {
        const std::vector<Id>& types = run.token_types[b];
        require(types.size() == run.tokens[b].size(),
                "--token-types: text {} has {} token types, but {} tokens", b, types.size(),
                run.tokens[b].size());
        std::copy(types.begin(), types.end(), &batch.token_type_ids(b, 0));
    }
    return batch;
}

// A text, or both texts of a pair.
EncodedPair encode_text(const ModelRun& run, const EncoderInput& input, std::size_t b) {
    const std::string text = with_prompt(input.vectors, run.prompt_name, run.texts[b]);
    if (input.has_pairs) return encode_pair(*input.tokenizer, text, run.text_pairs[b]);
    const std::vector<Id> ids = input.tokenizer->encode(text);
    return {ids, std::vector<Id>(ids.size(), 0)};
}

BatchEncoding batch_of_texts(const ModelRun& run, const EncoderInput& input,
                             const EncoderFamilyConfig& config) {
    const std::size_t longest =
        std::min(config.max_position_embeddings,
                 input.vectors.max_seq_length.value_or(config.max_position_embeddings));
    std::vector<std::vector<Id>> ids, types;
    for (std::size_t b = 0; b < run.texts.size(); ++b) {
        const EncodedPair text = encode_text(run, input, b);
        require(!text.input_ids.empty(), "--text: text {} has no token", b);
        require(text.input_ids.size() <= longest,
                "--text: text {} has {} tokens; this model reads at most {}", b,
                text.input_ids.size(), longest);
        ids.push_back(text.input_ids);
        types.push_back(text.token_type_ids);
    }
    BatchEncoding batch = pad(ids, config.pad_token_id);
    for (std::size_t b = 0; b < types.size() && config.type_vocab_size > 0; ++b)
        std::copy(types[b].begin(), types[b].end(), &batch.token_type_ids(b, 0));
    return batch;
}

std::string folder_of(const std::string& file) {
    const std::size_t slash = file.rfind('/');
    return slash == file.npos ? "." : file.substr(0, slash);
}

}  // namespace

EncoderInput read_encoder_input(const ModelRun& run, const EncoderFamilyConfig& config) {
    require(run.text_pairs.empty() || run.text_pairs.size() == run.texts.size(),
            "--text-pair: the number of texts is {}, that of --text {}", run.text_pairs.size(),
            run.texts.size());
    EncoderInput input;
    if (run.texts.empty()) {
        input.batch = batch_of_ids(run, config.pad_token_id);
    } else {
        require(run.tokens.empty(), "--text and --tokens exclude each other");
        input.tokenizer = encoder_tokenizer(run, config.vocab_size);
        const std::string& path = run.tokenizer_path;
        input.mask_token_id =
            find_mask_token(path.empty() ? run.model_path : folder_of(path), *input.tokenizer);
        input.has_pairs = !run.text_pairs.empty();
        input.vectors = read_sentence_transformer(run.model_path);
        input.batch = batch_of_texts(run, input, config);
    }
    check_batch(config, input.batch);
    return input;
}

Tokenizer encoder_tokenizer(const ModelRun& run, std::size_t vocab_size) {
    if (!run.tokenizer_path.empty()) return load_tokenizer(run.tokenizer_path, vocab_size);
    try {
        return load_tokenizer(find_tokenizer_file(run.model_path, vocab_size), vocab_size);
    } catch (const FileError& error) {
        throw FileError(std::string(error.what()) +
                        "; --text and --gguf need a tokenizer, --tokenizer PATH names one");
    }
}

std::optional<Id> find_mask_token(const std::string& folder, const Tokenizer& tokenizer) {
    if (const std::string file = folder + "/tokenizer_config.json"; is_file(file))
        if (const auto id = special_token_id(JsonFile(file), "mask_token", tokenizer))
            return id;
    for (const char* token : {"[MASK]", "<mask>"})
        if (const auto found = tokenizer.vocab.find(token); found != tokenizer.vocab.end())
            return found->second;
    return std::nullopt;
}

}  // namespace llm::models
