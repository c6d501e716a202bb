// Texts as the input of encoders: their tokens, pairs, prompts of sentence-transformers, and
// what is made of the outputs.
#include "chapters/25_encoders/wordpiece.hpp"
#include "chapters/models/encoders/encoder_output.hpp"
#include "chapters/models/load.hpp"
#include "chapters/models/tokenizers/load_tokenizer.hpp"
#include "common/files/unicode.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// A copy of a fixture with as many tokens as BERT's tokenizer of the tests, which stands beside
// it.
struct EncoderFolder {
    Scratch scratch;
    std::string folder;

    EncoderFolder() : folder(scratch.copy_of("models/bert")) {
        fs::copy_file(fixture_path("25_encoders/bert_uncased/tokenizer.json"),
                      folder + "/tokenizer.json");
    }
    void write(const std::string& name, const std::string& text) const {
        fs::create_directories(fs::path(folder + "/" + name).parent_path());
        overwrite(folder + "/" + name, text);
    }
    // The configuration of the fixture, for another vocabulary.
    EncoderFamilyConfig config() const {
        EncoderFamilyConfig config = read_encoder_config(JsonFile(folder + "/config.json"));
        config.vocab_size = 320;
        config.pad_token_id = 0;
        return config;
    }
    EncoderInput read(ModelRun run) const { return read(std::move(run), config()); }
    EncoderInput read(ModelRun run, const EncoderFamilyConfig& config) const {
        run.model_path = folder;
        return read_encoder_input(run, config);
    }
};

std::string rejection_of(const std::function<void()>& function) {
    try {
        function();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "not rejected";
}

}  // namespace

TEST_CASE("read_encoder_input: texts are padded with the tokenizer's ids and its token types") {
    const EncoderFolder files;
    const EncoderInput texts = files.read({.texts = {"the cat", "[MASK] again!"}});
    const Tokenizer tokenizer = load_tokenizer(files.folder + "/tokenizer.json");
    const std::vector<Id> first = tokenizer.encode("the cat"),
                          second = tokenizer.encode("[MASK] again!");
    REQUIRE(first.size() != second.size());
    CHECK(texts.batch.input_ids == pad({first, second}, 0).input_ids);
    CHECK(texts.mask_token_id == 4);
    CHECK_FALSE(texts.has_pairs);
    const EncoderInput pair =
        files.read({.texts = {"the cat"}, .text_pairs = {"a man and the sea"}});
    const auto [ids, types] = encode_pair(tokenizer, "the cat", "a man and the sea");
    CHECK(pair.has_pairs);
    CHECK(pair.batch.input_ids == pad({ids}, 0).input_ids);
    for (std::size_t t = 0; t < types.size(); ++t)
        CHECK(pair.batch.token_type_ids(0, t) == types[t]);
    CHECK(types.back() == 1);
}

TEST_CASE("read_encoder_input: padding has the id of the settings, in texts and in tokens") {
    const EncoderFolder files;
    EncoderFamilyConfig config = files.config();
    for (const Id pad_token_id : {0, 11}) {
        config.pad_token_id = pad_token_id;
        const EncoderInput tokens = files.read({.tokens = {{6, 7, 8}, {9}}}, config);
        CHECK(tokens.batch.input_ids == IdMatrix{{6, 7, 8}, {9, pad_token_id, pad_token_id}});
        const EncoderInput texts = files.read({.texts = {"the cat", "a"}}, config);
        CHECK(texts.batch.input_ids(1, 2) == 3);  // [SEP]
        CHECK(texts.batch.input_ids(1, 3) == pad_token_id);
        CHECK(xt::amax(texts.batch.token_type_ids)() == 0);
    }
}

TEST_CASE("read_encoder_input: a pair has token types only if the model has them") {
    const EncoderFolder files;
    EncoderFamilyConfig config = files.config();
    const ModelRun pair{.texts = {"the cat"}, .text_pairs = {"a man"}};
    CHECK(xt::amax(files.read(pair, config).batch.token_type_ids)() == 1);
    config.type_vocab_size = 0;
    const EncoderInput without = files.read(pair, config);
    CHECK(xt::amax(without.batch.token_type_ids)() == 0);
    CHECK(without.batch.input_ids == files.read(pair).batch.input_ids);
}

TEST_CASE("read_encoder_input: the errors of texts") {
    const EncoderFolder files;
    CHECK(rejection_of([&] {
              files.read({.texts = {"a", "b"}, .text_pairs = {"c"}});
          }) == "--text-pair: the number of texts is 1, that of --text 2");
    CHECK(rejection_of([&] { files.read({.tokens = {{6}}, .texts = {"a"}}); }) ==
          "--text and --tokens exclude each other");
    CHECK(rejection_of([&] {
              files.read({.texts = {"a", "a a a a a a a a a a a a a a a"}});
          }) == "--text: text 1 has 17 tokens; this model reads at most 16");
    CHECK(files.read({.texts = {"a a a a a a a a a a a a a a"}}).batch.input_ids.shape(1) ==
          16);
    files.write("sentence_bert_config.json", R"({"max_seq_length": 5})");
    CHECK(rejection_of([&] { files.read({.texts = {"a a a a"}}); }) ==
          "--text: text 0 has 6 tokens; this model reads at most 5");
    fs::remove(files.folder + "/tokenizer.json");
    CHECK(mentions(rejection_of([&] { files.read({.texts = {"a"}}); }),
                   "; --text and --gguf need a tokenizer, --tokenizer PATH names one"));
    CHECK(rejection_of([&] {
              files.read({.tokens = {{6, 7}}, .token_types = {{0}}});
          }) == "--token-types: text 0 has 1 token types, but 2 tokens");
    CHECK(rejection_of([&] {
              files.read({.tokens = {{6}}, .token_types = {{0}, {1}}});
          }) == "--token-types: the number of texts is 2, that of --tokens 1");
    CHECK(rejection_of([&] { files.read({.tokens = {{400}}}); }) ==
          "encoder: there is no token 400 among 320");
}

TEST_CASE("find_mask_token: that of tokenizer_config.json, or a usual one, or none") {
    const EncoderFolder files;
    const Tokenizer tokenizer = load_tokenizer(files.folder + "/tokenizer.json");
    CHECK(find_mask_token(files.folder, tokenizer) == 4);
    files.write("tokenizer_config.json", R"({"mask_token": {"content": "[SEP]"}})");
    CHECK(find_mask_token(files.folder, tokenizer) == 3);
    CHECK_FALSE(find_mask_token(files.scratch.folder.string(), Tokenizer()));
    CHECK(spelling_of(tokenizer, 4) == "[MASK]");
    CHECK(spelling_of(tokenizer, 400) == "<400>");
}

TEST_CASE("sentence-transformers: modules, pooling, prompts and lower case are read") {
    const EncoderFolder files;
    const SentenceTransformer plain = read_sentence_transformer(files.folder);
    CHECK(plain.pooling == Pooling::mean);
    CHECK_FALSE(plain.normalize);
    files.write("modules.json", R"([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling",
         "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize",
         "type": "sentence_transformers.models.Normalize"}])");
    files.write("1_Pooling/config.json", R"({"word_embedding_dimension": 24,
        "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
    files.write("sentence_bert_config.json", R"({"max_seq_length": 9, "do_lower_case": true})");
    files.write("config_sentence_transformers.json",
                R"({"prompts": {"query": "Query: ", "document": ""},
                    "default_prompt_name": "query", "similarity_fn_name": "dot"})");
    const SentenceTransformer model = read_sentence_transformer(files.folder);
    CHECK(model.pooling == Pooling::cls);
    CHECK(model.normalize);
    CHECK(model.has_dot_products);
    CHECK(model.max_seq_length == 9);
    CHECK(with_prompt(model, "", "What IS it?") == "query: what is it?");
    CHECK(with_prompt(model, "document", "IT") == "it");
    CHECK(with_prompt(plain, "", "IT") == "IT");
    CHECK(rejection_of([&] { with_prompt(model, "passage", "x"); }) ==
          "--prompt-name passage: the model's prompts are document, query");
    CHECK(rejection_of([&] { with_prompt(plain, "query", "x"); }) ==
          "--prompt-name query: the model's prompts are none");
    // The tokens are those of the text with its prompt.
    const EncoderInput input = files.read({.texts = {"Cat"}, .prompt_name = "document"});
    CHECK(input.batch.input_ids.shape(1) <
          files.read({.texts = {"Cat"}}).batch.input_ids.shape(1));
}

TEST_CASE("sentence-transformers: what would change the vector of a text is rejected by name") {
    const EncoderFolder files;
    const auto rejection = [&](const std::string& file, const std::string& text) {
        files.write(file, text);
        const std::string message =
            rejection_of([&] { read_sentence_transformer(files.folder); });
        fs::remove(files.folder + "/" + file);
        return replaced(message, files.folder + "/" + file + ": ", "");
    };
    CHECK(rejection("modules.json", R"([{"type": "sentence_transformers.models.Dense"}])") ==
          "modules.0.type Dense is not supported; supported: Transformer, Pooling and "
          "Normalize");
    CHECK(rejection("1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})") ==
          "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    CHECK(rejection("1_Pooling/config.json",
                    R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})") ==
          "supported: pooling_mode_mean_tokens or pooling_mode_cls_token alone");
    CHECK(rejection("config_sentence_transformers.json",
                    R"({"similarity_fn_name": "euclidean"})") ==
          "similarity_fn_name euclidean is not supported; supported: cosine and dot");
    CHECK(rejection("config_sentence_transformers.json",
                    R"({"prompts": {"a": "x"}, "default_prompt_name": "b"})") ==
          "default_prompt_name b is none of the prompts");
    SentenceTransformer without_prompt;
    without_prompt.prompts = {{"query", "x"}, {"none", ""}};
    without_prompt.include_prompt = false;
    CHECK(rejection_of([&] { with_prompt(without_prompt, "query", "x"); }) ==
          "--prompt-name query: a mean without the prompt (include_prompt false) is not "
          "supported");
    CHECK(with_prompt(without_prompt, "none", "x") == "x");
}

TEST_CASE("sentence-transformers: include_prompt and similarity_fn_name have two values") {
    const EncoderFolder files;
    for (const bool included : {true, false}) {
        files.write("1_Pooling/config.json", included ? R"({"pooling_mode_mean_tokens": true,
                        "include_prompt": true})"
                                                      : R"({"pooling_mode_mean_tokens": true,
                        "include_prompt": false})");
        CHECK(read_sentence_transformer(files.folder).include_prompt == included);
    }
    CHECK_FALSE(read_sentence_transformer(files.folder).has_dot_products);
    for (const std::string name : {"cosine", "dot"}) {
        files.write("config_sentence_transformers.json",
                    "{\"similarity_fn_name\": \"" + name + "\"}");
        CHECK(read_sentence_transformer(files.folder).has_dot_products == (name == "dot"));
    }
}

TEST_CASE("label_scores: a softmax, the sigmoid of each, or the numbers themselves") {
    EncoderFamilyConfig config;
    const Matrix logits = {{1, 3}};
    const Matrix exclusive = {{Real(0.119203), Real(0.880797)}},
                 each = {{Real(0.731059), Real(0.952574)}};
    CHECK_CLOSE(label_scores(logits, config), exclusive, 1e-5);
    config.problem_type = ProblemType::multi_label;
    CHECK_CLOSE(label_scores(logits, config), each, 1e-5);
    config.problem_type = ProblemType::regression;
    CHECK_CLOSE(label_scores(logits, config), logits, 0);
    config.problem_type = ProblemType::single_label;
    CHECK_CLOSE(label_scores(Matrix{{3}}, config), Matrix{{Real(0.952574)}}, 1e-5);
}

TEST_CASE("percentages: the most likely ones, in order") {
    const Vector probabilities = {Real(0.25), Real(0.5), Real(0.125), Real(0.125)};
    const auto name_of = [](std::size_t n) { return std::string(1, char('a' + n)); };
    CHECK(percentages(probabilities, 3, name_of) == "b 50.0, a 25.0, c 12.5");
    CHECK(percentages(probabilities, 9, name_of) == "b 50.0, a 25.0, c 12.5, d 12.5");
}

TEST_CASE("problem_type: read, written, and rejected by name") {
    const std::string labels = R"("architectures": ["BertForSequenceClassification"])";
    CHECK(read_encoder("bert", labels).problem_type == ProblemType::single_label);
    for (const auto& [name, type] :
         {std::pair{"single_label_classification", ProblemType::single_label},
          {"multi_label_classification", ProblemType::multi_label},
          {"regression", ProblemType::regression}}) {
        const EncoderFamilyConfig config =
            read_encoder("bert", labels + R"(, "problem_type": ")" + std::string(name) + "\"");
        CHECK(config.problem_type == type);
        const Scratch scratch;
        write_json((scratch.folder / "config.json").string(),
                   config_json(config, DType::float32));
        CHECK(read_encoder_config(JsonFile(scratch.folder / "config.json")).problem_type ==
              type);
    }
    // One label, of a regression, is written, too: two are the default.
    const EncoderFamilyConfig one =
        read_encoder("bert", labels + R"(, "id2label": {"0": "stars"})");
    const Scratch scratch;
    write_json((scratch.folder / "config.json").string(), config_json(one, DType::float32));
    CHECK(read_encoder_config(JsonFile(scratch.folder / "config.json")).num_labels == 1);
    CHECK(mentions(
        rejection_of([&] { read_encoder("bert", labels + R"(, "problem_type": "ranking")"); }),
        "problem_type ranking is not supported; supported: "
        "single_label_classification, multi_label_classification and regression"));
}
