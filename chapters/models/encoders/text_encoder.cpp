#include "chapters/models/encoders/text_encoder.hpp"

#include <algorithm>

#include "chapters/models/encoders/encoder_checkpoint.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/sentence_transformers.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/gguf.hpp"

namespace llm::models {
namespace {

// Settings that ./learn model applies to the texts of one call.
void reject_unapplied(const std::string& path, const SentenceTransformer& model) {
    const std::string supported = " is not supported; supported: ";
    if (!model.default_prompt_name.empty())
        throw FileError(path + "/config_sentence_transformers.json: default_prompt_name " +
                        model.default_prompt_name + supported + "null");
    if (model.do_lower_case)
        throw FileError(path + "/sentence_bert_config.json: do_lower_case true" + supported +
                        "false");
}

}  // namespace

TextEncoder load_text_encoder(const std::string& path, const std::string& tokenizer_path) {
    const SentenceTransformer sentence = read_sentence_transformer(path);
    reject_unapplied(path, sentence);
    AnyEncoder encoder = is_gguf(path) ? load_encoder_gguf(path) : load_encoder(path);
    const EncoderFamilyConfig& config = config_of(encoder);
    const std::string file =
        tokenizer_path.empty() ? find_tokenizer_file(path, config.vocab_size) : tokenizer_path;
    Tokenizer tokenizer = load_tokenizer(file, config.vocab_size);
    const std::size_t longest = config.max_position_embeddings;
    const std::size_t max_tokens = std::min(longest, sentence.max_seq_length.value_or(longest));
    return {std::move(encoder), std::move(tokenizer), sentence.pooling, max_tokens};
}

}  // namespace llm::models
