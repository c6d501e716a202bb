// Published T5 models against a plain PyTorch reference (tests/make/make_t5_fixtures.py), their
// settings and their weights.
#include "chapters/models/encoders/t5.hpp"

#include <functional>

#include "chapters/models/run_model.hpp"
#include "common/files/safetensors.hpp"
#include "tests/support/published_encoders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

const std::vector<std::string> t5_fixtures = {"t5", "t5_gated", "t5_saved_by_5", "t5_model",
                                              "t5_without_decoder"};

std::string folder_of_t5(const std::string& name) { return fixture_path("models/" + name); }

IdMatrix t5_ids(const std::string& name) { return id_fixture<2>("models/t5_" + name); }

// Three texts of 13, 8 and 5 tokens; the decoder has written 9, 6 and 4.
T5Outputs t5_outputs(const T5FamilyModel& t5) {
    const IdMatrix ids = t5_ids("input_ids"), types = IdMatrix(ids.shape(), 0);
    return run_texts(t5, {ids, t5_ids("padding_mask"), types, types},
                     t5_ids("decoder_input_ids"));
}

// Padding has no meaning: its vectors are set to 0.
Tensor3 before_padding(Tensor3 states, const std::array<std::size_t, 3>& lengths) {
    for (auto [b, t] : every_index(3, states.shape(1)))
        if (t >= lengths[b]) xt::view(states, b, t) = Real(0);
    return states;
}
constexpr std::array<std::size_t, 3> text_lengths = {13, 8, 5}, decoder_lengths = {9, 6, 4};

std::string t5_difference(const T5Outputs& a, const T5Outputs& b, double tolerance) {
    const bool has_decoder = a.encoder_last_hidden_state.has_value();
    if (has_decoder != b.encoder_last_hidden_state.has_value() ||
        a.logits.has_value() != b.logits.has_value())
        return "only one has this output";
    const auto compare = [&](const Tensor3& one, const Tensor3& other, const auto& lengths) {
        return difference(before_padding(one, lengths), before_padding(other, lengths),
                          tolerance);
    };
    std::string result = compare(a.last_hidden_state, b.last_hidden_state,
                                 has_decoder ? decoder_lengths : text_lengths);
    if (has_decoder)
        result +=
            compare(*a.encoder_last_hidden_state, *b.encoder_last_hidden_state, text_lengths);
    if (a.logits) result += compare(*a.logits, *b.logits, decoder_lengths);
    return result;
}

T5Outputs expected_outputs(const std::string& name) {
    const auto expected = [&](const std::string& output) -> std::optional<Tensor3> {
        const std::string file = "models/" + name + "_" + output;
        if (!fs::exists(fixture_file(file))) return std::nullopt;
        return fixture<3>(file);
    };
    return {expected("encoder_last_hidden_state"), *expected("last_hidden_state"),
            expected("logits")};
}

T5FamilyConfig read_t5(const std::string& members) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json",
              R"({"model_type": "t5")" + (members.empty() ? "" : ", " + members) + "}");
    return read_t5_config(JsonFile(scratch.folder / "config.json"));
}

std::string rejection_of_t5(const std::string& members) {
    try {
        read_t5(members);
    } catch (const FileError& error) {
        const std::string message = error.what();
        const std::size_t begin = message.find(": ") + 2;
        return message.substr(begin, message.find(" (--ignore ") - begin);
    }
    return "not rejected";
}

std::string rejection_of_t5_copy(const std::string& name,
                                 const std::function<void(const std::string&)>& change) {
    const Scratch scratch;
    const std::string folder = scratch.copy_of("models/" + name);
    change(folder);
    try {
        load_t5(folder);
    } catch (const FileError& error) {
        const std::string message = error.what();
        REQUIRE(message.starts_with(folder + "/"));
        return message.substr(folder.size() + 1);
    }
    return "not rejected";
}
std::string rejection_of_t5_copy(const std::string& name, const nlohmann::json& changes) {
    return rejection_of_t5_copy(name, [&](const std::string& folder) {
        change_members(folder + "/config.json", changes);
    });
}

}  // namespace

TEST_CASE("load_t5: every fixture equals PyTorch, with padded texts") {
    for (const std::string& name : t5_fixtures) {
        CAPTURE(name);
        CHECK(is_t5(JsonFile(folder_of_t5(name) + "/config.json")));
        CHECK(t5_difference(t5_outputs(load_t5(folder_of_t5(name))), expected_outputs(name),
                            2e-5) == "");
    }
}

TEST_CASE("generate with a T5 writes PyTorch's greedy tokens, with and without caches") {
    const IdMatrix ids = t5_ids("input_ids");
    for (const std::string name : {"t5", "t5_gated", "t5_saved_by_5"}) {
        const IdMatrix expected = id_fixture<2>("models/" + name + "_generated");
        T5FamilyModel t5 = load_t5(folder_of_t5(name));
        t5.config.eos_token_ids = {Id(36)};  // not among these tokens
        for (auto [b, use_cache] : every_index(3, 2)) {
            const std::vector<Id> text(&ids(b, 0), &ids(b, 0) + text_lengths[b]);
            const std::vector<Id> wanted(&expected(b, 0), &expected(b, 0) + 7);
            Generator generator(1);
            CAPTURE(name);
            CHECK(models::generate(t5, text,
                                   {.sampling = {.temperature = 0},
                                    .max_new_tokens = 7,
                                    .use_cache = use_cache == 1},
                                   generator)
                      .ids == wanted);
        }
    }
}

TEST_CASE("generate with a T5 stops at its EOS token") {
    const IdMatrix ids = t5_ids("input_ids");
    T5FamilyModel t5 = load_t5(folder_of_t5("t5_gated"));
    const IdMatrix expected = id_fixture<2>("models/t5_gated_generated");
    const std::vector<Id> text(&ids(1, 0), &ids(1, 0) + text_lengths[1]);
    t5.config.eos_token_ids = {Id(36), expected(1, 2)};
    Generator generator(1);
    CHECK(models::generate(t5, text, {.sampling = {.temperature = 0}}, generator).ids ==
          std::vector<Id>{expected(1, 0), expected(1, 1)});
}

TEST_CASE("export_model of a T5: the copy has the same outputs, in every bit") {
    for (const std::string& name : t5_fixtures) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string first = (scratch.folder / "first").string(),
                          second = (scratch.folder / "second").string();
        const T5FamilyModel t5 = load_t5(folder_of_t5(name));
        models::export_model(t5, first);
        const T5FamilyModel copy = load_t5(first);
        CHECK(t5_difference(t5_outputs(copy), t5_outputs(t5), 0) == "");
        CHECK(copy.config.eos_token_ids == t5.config.eos_token_ids);
        CHECK(copy.config.decoder_start_token_id == 3);
        CHECK(copy.config.pad_token_id == 2);
        models::export_model(copy, second);
        for (const std::string file : {"/config.json", "/model.safetensors"})
            CHECK(content(first + file) == content(second + file));
        models::export_model(t5, second, DType::bfloat16);
        CHECK(mentions(content(second + "/config.json"), "\"bfloat16\""));
        load_t5(second);
    }
}

TEST_CASE("an exported T5 has the tensors of the file, under the same names") {
    for (const std::string name : {"t5", "t5_gated", "t5_saved_by_5"}) {
        const Scratch scratch;
        models::export_model(load_t5(folder_of_t5(name)), scratch.folder.string());
        const SafeTensors written(scratch.folder), read(folder_of_t5(name));
        CHECK(written.names() == read.names());
        CHECK(written.checksum() == read.checksum());
    }
}

TEST_CASE("every change of a T5's changes.json changes an output, and is written") {
    std::size_t count = 0;
    for (const std::string name : {"t5", "t5_gated", "t5_saved_by_5"}) {
        const T5Outputs unchanged = t5_outputs(load_t5(folder_of_t5(name)));
        const std::string file = folder_of_t5(name) + "/changes.json";
        for (const nlohmann::json& changes : nlohmann::json::parse(content(file))) {
            const Scratch scratch;
            const std::string folder = scratch.copy_of("models/" + name);
            change_members(folder + "/config.json", changes);
            INFO(name << ": " << changes.dump());
            const T5FamilyModel changed = load_t5(folder);
            CHECK(t5_difference(t5_outputs(changed), unchanged, 1e-4) != "");
            models::export_model(changed, folder);
            CHECK(t5_difference(t5_outputs(load_t5(folder)), t5_outputs(changed), 0) == "");
            ++count;
        }
    }
    CHECK(count == 8);
}

TEST_CASE("a T5: each class leaves out what it does not have") {
    const auto outputs = [](const std::string& name, const std::string& architecture) {
        const Scratch scratch;
        const std::string folder = scratch.copy_of("models/" + name);
        change_members(folder + "/config.json", {{"architectures", {architecture}}});
        return t5_outputs(load_t5(folder));
    };
    for (const std::string name : {"t5", "t5_gated"}) {
        const T5Outputs all = expected_outputs(name);
        CHECK(t5_difference(outputs(name, "T5WithLMHeadModel"), all, 2e-5) == "");
        CHECK(t5_difference(outputs(name, "T5Model"),
                            {all.encoder_last_hidden_state, all.last_hidden_state, {}},
                            2e-5) == "");
        CHECK(t5_difference(outputs(name, "T5EncoderModel"),
                            {std::nullopt, *all.encoder_last_hidden_state, std::nullopt},
                            2e-5) == "");
    }
}

TEST_CASE("the parameters of a T5 by part are the elements of its file") {
    for (const std::string& name : t5_fixtures) {
        CAPTURE(name);
        const Scratch scratch;
        const T5FamilyModel t5 = load_t5(folder_of_t5(name));
        models::export_model(t5, scratch.folder.string());
        const EncoderParameters count = count_parameters(t5);
        std::uint64_t elements = 0;
        for (const nlohmann::json& tensor :
             nlohmann::json::parse(header_of(scratch.folder / "model.safetensors")))
            if (tensor.contains("data_offsets"))
                elements += (std::uint64_t(tensor["data_offsets"][1]) -
                             std::uint64_t(tensor["data_offsets"][0])) /
                            4;
        CHECK(count.total() == elements);
        CHECK(count.embeddings == 37 * 20);
        CHECK(count.heads == (name == "t5_gated" || name == "t5_saved_by_5" ? 37 * 20 : 0));
    }
}

TEST_CASE("the published sizes of T5") {
    const auto size = [](const std::string& members) {
        const T5FamilyConfig config = read_t5(members);
        return count_parameters({config, make_empty_t5(config)}).total();
    };
    CHECK(size("") == 60'506'624);  // t5-small
    CHECK(size(R"("d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12)") ==
          222'903'552);  // t5-base
    // t5-v1_1-small and flan-t5-base
    CHECK(size(R"("d_ff": 1024, "num_layers": 8, "num_heads": 6, "num_decoder_layers": 8,
                  "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)") ==
          76'961'152);
    CHECK(size(R"("d_model": 768, "d_ff": 2048, "num_layers": 12, "num_heads": 12,
                  "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false)") ==
          247'577'856);
}

TEST_CASE("t5: the keys of t5-small and of flan-t5") {
    const T5FamilyConfig small = read_t5(
        R"("architectures": ["T5WithLMHeadModel"], "d_ff": 2048, "d_kv": 64, "d_model": 512,
        "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1,
        "initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06,
        "n_positions": 512, "num_heads": 8, "num_layers": 6, "output_past": true,
        "pad_token_id": 0, "relative_attention_num_buckets": 32, "vocab_size": 32128,
        "task_specific_params": {"summarization": {"early_stopping": true, "prefix": "a"}})");
    CHECK(small.activation.name == "relu");
    CHECK_FALSE(small.is_gated_act);
    CHECK(small.num_decoder_layers == 6);
    CHECK(small.relative_attention_max_distance == 128);
    CHECK(small.sizes.rms_norm_eps == Real(1e-6));
    CHECK(small.sizes.max_position_embeddings == std::size_t{1} << 24);  // no limit
    CHECK(small.scale_decoder_outputs);
    CHECK_FALSE(small.has_own_head());
    CHECK(small.eos_token_ids == std::vector<Id>{1});

    const T5FamilyConfig flan = read_t5(
        R"("architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64,
        "d_model": 512, "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1,
        "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
        "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "n_positions": 512,
        "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "output_past": true,
        "pad_token_id": 0, "relative_attention_max_distance": 128, "vocab_size": 32128,
        "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "use_cache": true,
        "transformers_version": "4.23.1", "torch_dtype": "float32", "is_gated_act": true,
        "dense_act_fn": "gelu_new", "classifier_dropout": 0.0)");
    CHECK(flan.activation.name == "gelu_pytorch_tanh");
    CHECK(flan.is_gated_act);
    CHECK_FALSE(flan.scale_decoder_outputs);
    CHECK(flan.has_own_head());
}

TEST_CASE("t5: the activation, its gate and the start token") {
    CHECK(read_t5(R"("feed_forward_proj": "gated-silu")").activation.name == "silu");
    CHECK(read_t5(R"("feed_forward_proj": "gelu")").activation.name == "gelu");
    CHECK(read_t5(R"("feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu")")
              .activation.name == "gelu");
    CHECK(read_t5(R"("is_gated_act": true)").is_gated_act);
    CHECK(read_t5(R"("pad_token_id": 7)").decoder_start_token_id == 7);
    CHECK(read_t5(R"("pad_token_id": 7, "decoder_start_token_id": 2)").decoder_start_token_id ==
          2);
    CHECK(read_t5(R"("eos_token_id": [4, 5])").eos_token_ids == std::vector<Id>{4, 5});
    CHECK(read_t5(R"("scale_decoder_outputs": false)").scale_decoder_outputs == false);
}

TEST_CASE("t5: all EOS tokens of the settings are written, also several or none") {
    for (const std::string ids : {"4", "[4, 5]", "[]"}) {
        const T5FamilyConfig config = read_t5(R"("eos_token_id": )" + ids);
        const Scratch scratch;
        const std::string file = (scratch.folder / "config.json").string();
        write_json(file, config_json(config, DType::float32));
        CHECK(read_t5_config(JsonFile(file)).eos_token_ids == config.eos_token_ids);
    }
}

TEST_CASE("t5: settings that would change a result are rejected by name") {
    for (const auto& [members, message] : std::vector<std::pair<std::string, std::string>>{
             {R"("feed_forward_proj": "gated-gelu-x")",
              "feed_forward_proj gated-gelu-x is not supported; supported: silu, gelu, relu "
              "and the others of ACT2FN but prelu and xielu, also with gated- before them"},
             {R"("dense_act_fn": "xielu")",
              "dense_act_fn xielu is not supported; supported: silu, gelu, relu and the others "
              "of ACT2FN but prelu and xielu"},
             {R"("architectures": ["T5ForTokenClassification"])",
              "architectures T5ForTokenClassification is not supported; supported: "
              "T5ForConditionalGeneration, T5WithLMHeadModel, T5Model, T5EncoderModel"},
             {R"("relative_attention_num_buckets": 5)",
              "relative positions: 5 buckets do not fit distances up to 128"},
             {R"("relative_attention_max_distance": 16)",
              "relative positions: 32 buckets do not fit distances up to 16"},
             {R"("layer_norm_epsilon": 0)", "layer_norm_epsilon must be above 0"},
             {R"("pad_token_id": [])",
              "pad_token_id must be a whole number from 1 to 16777216, not a list"},
             {R"("decoder_start_token_id": [])",
              "decoder_start_token_id must be a whole number from 1 to 16777216, not a list"},
             {R"("decoder_start_token_id": 32128)",
              "t5: there is no token 32128 in a vocabulary of 32128"},
             {R"("hidden_size": 7)", "hidden_size 7 is not supported: nothing reads it"}}) {
        CHECK(rejection_of_t5(members) == message);
    }
}

TEST_CASE("is_t5: by the model type, or, without one, by the class") {
    const Scratch scratch;
    const auto is = [&](const std::string& text) {
        overwrite(scratch.folder / "config.json", text);
        return is_t5(JsonFile(scratch.folder / "config.json"));
    };
    CHECK(is(R"({"model_type": "t5"})"));
    CHECK(is(R"({"model_type": "umt5"})"));
    const std::string folder = scratch.folder.string();
    CHECK_THROWS_WITH_AS(load_t5(folder),
                         (folder + "/config.json: model_type umt5 is not supported; supported: "
                                   "t5, whose layers share one table of biases")
                             .c_str(),
                         FileError);
    CHECK(is(R"({"architectures": ["T5EncoderModel"]})"));
    CHECK_FALSE(is(R"({"architectures": ["BertModel"]})"));
    CHECK_FALSE(is(R"({"model_type": "bert", "architectures": ["T5Model"]})"));
}

TEST_CASE("weights of a T5 that do not fit the settings are named, with both shapes") {
    CHECK(
        rejection_of_t5_copy("t5", {{"d_kv", 5}}) ==
        "model.safetensors: tensor encoder.block.0.layer.0.SelfAttention.q.weight should have "
        "the shape (15, 20), it has (18, 20)");
    CHECK(
        rejection_of_t5_copy("t5", {{"relative_attention_num_buckets", 6}}) ==
        "model.safetensors: tensor "
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight should have the "
        "shape (6, 3), it has (8, 3)");
    CHECK(rejection_of_t5_copy("t5", {{"num_decoder_layers", 16'000'000}}) ==
          "model.safetensors: tensor decoder.block.15999999.layer.2.layer_norm.weight of shape "
          "(20,) is missing");
    CHECK(rejection_of_t5_copy("t5", {{"num_layers", 2}}) ==
          "config.json: the weights have a tensor "
          "encoder.block.2.layer.0.SelfAttention.k.weight, which these settings do not "
          "describe");
    CHECK(rejection_of_t5_copy("t5", {{"is_gated_act", true}}) ==
          "model.safetensors: tensor encoder.block.0.layer.1.DenseReluDense.wi_0.weight of "
          "shape (28, 20) is missing");
    CHECK(rejection_of_t5_copy("t5", {{"tie_word_embeddings", false}}) ==
          "model.safetensors: tensor lm_head.weight of shape (37, 20) is missing");
    CHECK(rejection_of_t5_copy("t5_gated", {{"tie_word_embeddings", true}}) ==
          "config.json: tie_word_embeddings is true, but lm_head.weight of the weights differs "
          "from the embedding");
    CHECK(rejection_of_t5_copy("t5_without_decoder",
                               {{"architectures", {"T5ForConditionalGeneration"}}}) ==
          "model.safetensors: tensor decoder.block.1.layer.2.layer_norm.weight of shape (20,) "
          "is missing");
    CHECK(rejection_of_t5_copy("t5", {{"quantization_config", {{"quant_method", "gptq"}}}}) ==
          "config.json: quantization_config says that the weights are quantized (gptq); "
          "supported for encoders: float32, float16 and bfloat16");
}

TEST_CASE("the embeddings of a T5 stand under up to three names, and are one matrix") {
    const auto change_copy = [](const std::string& folder) {
        const std::string file = folder + "/model.safetensors";
        std::string bytes = content(file);
        const nlohmann::json header = nlohmann::json::parse(header_of(file));
        const auto& offsets = header["decoder.embed_tokens.weight"]["data_offsets"];
        bytes[8 + header_of(file).size() + std::size_t(offsets[0])] ^= 1;
        overwrite(file, bytes);
    };
    CHECK(rejection_of_t5_copy("t5_model", change_copy) ==
          "config.json: the weights have two embeddings, shared.weight and "
          "decoder.embed_tokens.weight, which differ");
}
