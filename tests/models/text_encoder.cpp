// Encoders with their tokenizers, and what sentence-transformers writes beside them.
#include "chapters/models/encoders/text_encoder.hpp"

#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/encoders/encoder_gguf.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"
#include "chapters/models/tokenizers/tokenizer_json.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// BERT of the fixtures with a tokenizer of 20 tokens; P is 16.
struct TextFolder {
    Scratch scratch{};
    std::string folder = scratch.copy_of("models/bert");

    TextFolder() {
        save_tokenizer(train_wordpiece("abc abd bcd acd", {.vocab_size = 20}),
                       folder + "/tokenizer.json");
    }
    void write(const std::string& name, const std::string& text) const {
        fs::create_directories(fs::path(folder + name).parent_path());
        overwrite(folder + name, text);
    }
    std::string error() const {
        try {
            load_text_encoder(folder);
            return "accepted";
        } catch (const FileError& error) {
            const std::string message = error.what();
            return message.starts_with(folder) ? message.substr(folder.size()) : message;
        }
    }
};

}  // namespace

TEST_CASE("load_text_encoder: without other files, the mean of all tokens that there are") {
    const TextFolder files;
    const TextEncoder encoder = load_text_encoder(files.folder);
    CHECK(encoder.pooling == Pooling::mean);
    CHECK(encoder.max_tokens == 16);
    // [CLS] abc [SEP]; the tokenizer numbers its special tokens 0 to 4.
    const std::vector<Id> ids = encoder.tokenizer.encode("abc");
    CHECK(ids.front() == 2);
    CHECK(ids.back() == 3);
}

TEST_CASE("load_text_encoder reads what sentence-transformers writes beside a model") {
    const TextFolder files;
    files.write("/modules.json", R"([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])");
    files.write("/1_Pooling/config.json", R"({"word_embedding_dimension": 24,
        "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false,
        "pooling_mode_max_tokens": false})");
    files.write("/sentence_bert_config.json",
                R"({"max_seq_length": 12, "do_lower_case": false})");
    files.write("/config_sentence_transformers.json",
                R"({"prompts": {"query": "query: "}, "default_prompt_name": null})");
    const TextEncoder encoder = load_text_encoder(files.folder);
    CHECK(encoder.pooling == Pooling::cls);
    CHECK(encoder.max_tokens == 12);
    // The model itself has 16 positions.
    files.write("/sentence_bert_config.json", R"({"max_seq_length": 512})");
    CHECK(load_text_encoder(files.folder).max_tokens == 16);
}

TEST_CASE("load_text_encoder rejects what would change the vectors, by name") {
    const auto rejects = [](const std::string& file, const std::string& text,
                            const std::string& message) {
        const TextFolder files;
        files.write(file, text);
        CHECK(files.error() == file + ": " + message);
    };
    rejects(
        "/modules.json", R"([{"type": "sentence_transformers.models.Dense"}])",
        "modules.0.type Dense is not supported; supported: Transformer, Pooling and Normalize");
    rejects("/modules.json", R"([{"path": "1_Pooling"}])", "modules.0.type is missing");
    rejects("/modules.json", "{}", "modules must be a list");
    rejects("/1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})",
            "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    rejects("/1_Pooling/config.json",
            R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})",
            "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    rejects("/1_Pooling/config.json",
            R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})",
            "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    rejects("/sentence_bert_config.json", R"({"do_lower_case": true})",
            "do_lower_case true is not supported; supported: false");
    rejects("/config_sentence_transformers.json",
            R"({"prompts": {"query": "q: "}, "default_prompt_name": "query"})",
            "default_prompt_name query is not supported; supported: null");
}

TEST_CASE("load_text_encoder: a GGUF file has its pooling, and another file the tokenizer") {
    const TextFolder files;
    for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
        const std::string gguf =
            files.folder + (pooling == Pooling::mean ? "/mean.gguf" : "/cls.gguf");
        EncoderGgufOptions options;
        options.pooling = pooling;
        export_gguf(load_encoder(files.folder), gguf, options);
        const TextEncoder encoder = load_text_encoder(gguf, files.folder + "/tokenizer.json");
        CHECK(encoder.pooling == pooling);
        CHECK(encoder.tokenizer.encode("abc") ==
              load_text_encoder(files.folder).tokenizer.encode("abc"));
    }
}

TEST_CASE("embed_texts: a text has one vector, alone and among others") {
    for (const std::string name : {"bert", "modernbert"}) {
        const FastEncoder encoder =
            make_fast_encoder(load_encoder(fixture_path("models/" + name)));
        const std::vector<std::vector<Id>> texts = {{7, 8, 9, 10, 11, 12, 13}, {30}, {9, 8, 7}};
        for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
            const Matrix together = embed_texts(encoder, pooling, texts);
            for (std::size_t n = 0; n < texts.size(); ++n) {
                const Matrix alone = embed_texts(encoder, pooling, {texts[n]});
                const Matrix row = xt::view(together, xt::range(n, n + 1), xt::all());
                CHECK_CLOSE(row, alone, 2e-6);
                double length = 0;
                for (const Real value : row) length += double(value) * double(value);
                CHECK(length == doctest::Approx(1));
            }
        }
        CHECK_THROWS_WITH(embed_texts(encoder, Pooling::mean, {{7, 31}}),
                          doctest::Contains("31"));
    }
}
