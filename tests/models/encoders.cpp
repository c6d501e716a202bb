// Published encoders, BERT and ModernBERT, against a plain PyTorch reference
// (tests/make/make_encoder_fixtures.py).
#include <random>

#include "chapters/models/llama/unread_settings.hpp"
#include "common/files/safetensors.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// The expected output; the first two fixtures are those of chapter 25.
template <std::size_t N>
std::optional<xt::xtensor<Real, N>> expected(const std::string& name,
                                             const std::string& output) {
    const bool of_chapter = name == "bert" || name == "modernbert";
    const std::string file = (of_chapter ? "25_encoders/" : "models/") + name + "_" + output;
    if (!fs::exists(fixture_file(file))) return std::nullopt;
    return fixture<N>(file);
}

// Padding has no meaning, so its vectors are not compared.
void check_tokens(const std::optional<Tensor3>& actual, const std::string& name,
                  const std::string& output) {
    const auto wanted = expected<3>(name, output);
    CAPTURE(output);
    REQUIRE(actual.has_value() == wanted.has_value());
    if (actual) CHECK_CLOSE(without_padding(*actual), without_padding(*wanted), 2e-5);
}
void check_texts(const std::optional<Matrix>& actual, const std::string& name,
                 const std::string& output) {
    const auto wanted = expected<2>(name, output);
    CAPTURE(output);
    REQUIRE(actual.has_value() == wanted.has_value());
    if (actual) CHECK_CLOSE(*actual, *wanted, 2e-5);
}

std::vector<std::string> changed_fixtures() {
    std::vector<std::string> names;
    for (const std::string& name : encoder_fixtures())
        if (fs::exists(fixture_path("models/" + name) + "/changes.json")) names.push_back(name);
    return names;
}

}  // namespace

TEST_CASE("load_encoder: every fixture equals PyTorch, with padded texts and a pair") {
    REQUIRE(encoder_fixtures().size() == 10);
    for (const std::string& name : encoder_fixtures()) {
        CAPTURE(name);
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        const EncoderOutputs outputs = encode(encoder, encoder_batch(encoder));
        check_tokens(outputs.last_hidden_state, name, "last_hidden_state");
        check_texts(outputs.pooler_output, name, "pooler_output");
        check_tokens(outputs.mlm_logits, name, "mlm_logits");
        check_texts(outputs.nsp_logits, name, "nsp_logits");
        check_texts(outputs.logits, name, "logits");
    }
}

TEST_CASE("export_model of an encoder: the copy has the same outputs, in every bit") {
    for (const std::string& name : encoder_fixtures()) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string first = (scratch.folder / "first").string(),
                          second = (scratch.folder / "second").string();
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        models::export_model(encoder, first);
        const AnyEncoder copy = load_encoder(first);
        CHECK(difference_of(encode(copy, encoder_batch(copy)),
                            encode(encoder, encoder_batch(encoder)), 0) == "");
        CHECK(config_of(copy).heads == config_of(encoder).heads);
        CHECK(config_of(copy).num_labels == config_of(encoder).num_labels);
        CHECK(config_of(copy).id2label == config_of(encoder).id2label);
        CHECK(config_of(copy).pad_token_id == config_of(encoder).pad_token_id);

        // What was written is written again, in every byte.
        models::export_model(copy, second);
        for (const std::string file : {"/config.json", "/model.safetensors"})
            CHECK(content(first + file) == content(second + file));
        models::export_model(encoder, second, DType::bfloat16);
        CHECK(mentions(content(second + "/config.json"), "\"bfloat16\""));
        load_encoder(second);
    }
}

TEST_CASE("an exported encoder has the tensors of the file, under the same names") {
    // Files of a model without a head, or with old names, get the new ones.
    for (const std::string name : {"bert", "bert_classifier", "bert_next_sentence",
                                   "modernbert", "modernbert_biased", "modernbert_mean"}) {
        CAPTURE(name);
        const Scratch scratch;
        models::export_model(load_encoder(fixture_path("models/" + name)),
                             scratch.folder.string());
        const SafeTensors written(scratch.folder), read(fixture_path("models/" + name));
        CHECK(written.names() == read.names());
        CHECK(written.checksum() == read.checksum());
    }
}

TEST_CASE("every change of an encoder's changes.json changes an output") {
    REQUIRE(changed_fixtures().size() == 4);
    for (const std::string& name : changed_fixtures()) {
        const std::string fixture = "models/" + name;
        const AnyEncoder encoder = load_encoder(fixture_path(fixture));
        const EncoderOutputs unchanged = encode(encoder, encoder_batch(encoder));
        const std::string file = fixture_path(fixture) + "/changes.json";
        for (const nlohmann::json& changes : nlohmann::json::parse(content(file))) {
            const Scratch scratch;
            const std::string folder = scratch.copy_of(fixture);
            change_members(folder + "/config.json", changes);
            INFO(name << ": " << changes.dump());
            const AnyEncoder changed = load_encoder(folder);
            CHECK(difference_of(encode(changed, encoder_batch(changed)), unchanged, 1e-4) !=
                  "");
            // The changed settings are written, too.
            models::export_model(changed, folder);
            const AnyEncoder copy = load_encoder(folder);
            CHECK(difference_of(encode(copy, encoder_batch(copy)),
                                encode(changed, encoder_batch(changed)), 0) == "");
        }
    }
}

TEST_CASE("the parameters of an encoder by part are the elements of its file") {
    for (const std::string& name : encoder_fixtures()) {
        CAPTURE(name);
        const Scratch scratch;
        const AnyEncoder encoder = load_encoder(fixture_path("models/" + name));
        models::export_model(encoder, scratch.folder.string());
        const EncoderParameters count = count_parameters(encoder);
        std::uint64_t elements = 0;
        const nlohmann::json header =
            nlohmann::json::parse(header_of(scratch.folder / "model.safetensors"));
        for (const nlohmann::json& tensor : header)
            if (tensor.contains("data_offsets"))
                elements += (std::uint64_t(tensor["data_offsets"][1]) -
                             std::uint64_t(tensor["data_offsets"][0])) /
                            4;
        CHECK(count.total() == elements);
        CHECK((count.heads > 0) == (name != "modernbert_plain"));
    }
}

TEST_CASE("the published sizes of BERT and ModernBERT") {
    // Without tensors: 109,482,240 and 149,014,272 are the numbers of the published files,
    // without the logits of next sentences and masked tokens.
    EncoderFamilyConfig bert = read_encoder("bert", "");
    bert.heads.pooler = true;
    CHECK(count_parameters(make_empty_encoder(bert)).total() == 109'482'240);
    const AnyEncoder modern = make_empty_encoder(read_encoder("modernbert", ""));
    CHECK(count_parameters(modern).total() == 149'014'272);
    CHECK(count_parameters(modern).embeddings == std::uint64_t(50368 + 1) * 768);
}

// A file that a damaged byte makes another one may be loaded; others are rejected.
TEST_CASE("a damaged file of an encoder is loaded or named, and nothing else happens") {
    const Scratch scratch;
    settings_policy().strict = true;  // without notes of unknown settings
    std::mt19937 random(25);
    std::size_t num_rejected = 0;
    for (const std::string name : {"bert", "modernbert_cls"}) {
        const std::string folder = scratch.copy_of("models/" + name);
        for (const std::string part : {"/config.json", "/model.safetensors"}) {
            const std::string original = content(folder + part);
            for (int repetition = 0; repetition < 400; ++repetition) {
                std::string damaged = original;
                const std::size_t most = std::min<std::size_t>(original.size(), 6000);
                damaged[random() % most] = char(random() % 128);
                overwrite(folder + part, damaged);
                try {
                    const AnyEncoder encoder = load_encoder(folder);
                    CHECK(count_parameters(encoder).total() > 0);
                } catch (const FileError& error) {
                    CHECK(std::string(error.what()).starts_with(folder));
                    ++num_rejected;
                }
            }
            overwrite(folder + part, original);
        }
    }
    settings_policy().strict = false;
    CHECK(num_rejected > 800);
}
