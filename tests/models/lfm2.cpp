// LFM2 and LFM2-MoE: the published keys and sizes, the width of the MLP, what is rejected, and
// GGUF files.
#include "chapters/models/model_size.hpp"
#include "chapters/models/parameter_count.hpp"
#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_models.hpp"
#include "tests/support/random_family.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// c for a convolution, a for attention; small for a dense MLP, large for experts.
std::string kinds_of_lfm2(const FamilyConfig& config) {
    std::string kinds;
    for (const LayerConfig& layer : config.layers) {
        const char kind = attention_of(layer) ? 'a' : 'c';
        kinds += moe_of(layer) ? char(kind - 'a' + 'A') : kind;
    }
    return kinds;
}

const GatedConvolutionSizes& sizes_of_convolution(const FamilyConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (const auto* sizes = std::get_if<GatedConvolutionSizes>(&layer.mixer)) return *sizes;
    FAIL("there is no convolution");
    throw 0;
}

const SigmoidRouting& routing_of_lfm2(const FamilyConfig& config) {
    return std::get<SigmoidRouting>(moe(config).routing);
}

FamilyConfig read_text(const std::string& members) {
    const Scratch scratch;
    overwrite(scratch.folder / "config.json", "{" + members + "}");
    return read_family_config(JsonFile(scratch.folder / "config.json"));
}

std::size_t width_of(const std::string& members) {
    // With 1000 features, no third is a whole number.
    const FamilyConfig config = read_text(R"("model_type": "lfm2", "hidden_size": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, )" +
                                          members);
    for (const LayerConfig& layer : config.layers)
        CHECK(mlp_of(layer)->intermediate_size == config.intermediate_size);
    return config.intermediate_size;
}

}  // namespace

TEST_CASE("the published config.json of LFM2-350M: keys of Liquid AI's library") {
    const std::string published = R"("architectures": ["Lfm2ForCausalLM"],
        "block_auto_adjust_ff_dim": true, "block_dim": 1024, "block_ff_dim": 6656,
        "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0, "block_multiple_of": 256,
        "block_norm_eps": 1e-05, "block_out_init_scale": 1.0, "block_use_swiglu": true,
        "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3,
        "conv_bias": false, "conv_dim": 1024, "conv_dim_out": 1024,
        "conv_use_xavier_init": true, "eos_token_id": 7,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 1024,
        "initializer_range": 0.02, "max_position_embeddings": 128000, "model_type": "lfm2",
        "norm_eps": 1e-05, "num_attention_heads": 16, "num_heads": 16, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1000000.0,
        "theta": 1000000.0, "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0",
        "use_cache": true, "use_pos_enc": true, "vocab_size": 65536)";
    const FamilyConfig config = read_text(published);
    CHECK(kinds_of_lfm2(config) == "ccaccaccacacacac");
    CHECK(sizes_of_convolution(config).hidden_size == 1024);
    CHECK(sizes_of_convolution(config).conv_kernel_dim == 3);
    CHECK_FALSE(sizes_of_convolution(config).bias);
    CHECK(config.head_dim == 64);
    CHECK(config.rms_norm_eps == Real(1e-5));
    CHECK(config.tie_word_embeddings);
    CHECK(*main_rope(config) == RopeParameters{1'000'000, 64, 64});
    CHECK(attention(config, 2).qk_norm == QKNormType::with_weights);
    CHECK(count_parameters(config).total() == 354'483'968);  // of the model card
    // Convolutions keep two products of each channel, whatever the length.
    CHECK(kv_cache_bytes(config, 1000, 3, 2) == 3 * 2 * (6 * 1000 * 1024 + 10 * 2 * 1024));
    // Each attention layer attends to 10 more keys; the others have two gates.
    CHECK(flops_per_token(config, 99) - flops_per_token(config, 89) == 6 * 10 * 4 * 1024);
    CHECK(flops_per_token(config, 0) ==
          2 * count_parameters(config).active_matrix_elements + 6 * 4 * 1024 + 10 * 2 * 1024);
    CHECK(count_parameters(config).attention ==
          10 * (4 * 1024 * 1024 + 3 * 1024) + 6 * 3 * 1024 * 1024);

    // LFM2.5 has layer_types, which wins, and both names of some keys.
    std::string newer = published;
    const auto replace = [&](const std::string& from, const std::string& to) {
        newer.replace(newer.find(from), from.size(), to);
    };
    replace("\"full_attn_idxs\": [2, 5, 8, 10, 12, 14]",
            R"("full_attn_idxs": [0], "layer_types": ["conv", "conv", "full_attention",
               "conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv",
               "full_attention", "conv", "full_attention", "conv", "full_attention", "conv"],
               "intermediate_size": 6656, "tie_embedding": true, "tie_word_embeddings": true)");
    replace("\"rope_theta\": 1000000.0",
            R"("rope_theta": 1000000.0,
               "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"})");
    CHECK(kinds_of_lfm2(read_text(newer)) == "ccaccaccacacacac");
    CHECK(count_parameters(read_text(newer)).total() == 354'483'968);
}

TEST_CASE("LFM2: parameters of the other published sizes") {
    const auto count = [](std::size_t C, std::size_t block_ff_dim, std::size_t num_layers,
                          const std::string& attention_layers, const std::string& more = "") {
        return count_parameters(
                   read_text("\"model_type\": \"lfm2\", \"hidden_size\": " + to_text(C) +
                             ", \"num_attention_heads\": " + to_text(C / 64) +
                             ", \"block_ff_dim\": " + to_text(block_ff_dim) +
                             ", \"num_hidden_layers\": " + to_text(num_layers) +
                             ", \"full_attn_idxs\": [" + attention_layers + "]" + more))
            .total();
    };
    const std::string six = "2, 5, 8, 10, 12, 14", eight = "2, 5, 9, 13, 17, 21, 24, 27";
    CHECK(count(1536, 10240, 16, six) == 742'489'344);
    CHECK(count(2048, 12288, 16, six) == 1'170'340'608);
    CHECK(count(2048, 16128, 30, eight) == 2'569'272'320);
    // LFM2.5-230M and LFM2.5-2.6B have the width itself.
    const std::string as_it_is = R"(, "block_auto_adjust_ff_dim": false)";
    CHECK(count(1024, 2560, 14, "2, 4, 6, 8, 10, 12", as_it_is) == 229'693'184);
    CHECK(count(2048, 10752, 30, eight, as_it_is + R"(, "vocab_size": 128000)") ==
          2'697'198'592);
}

TEST_CASE("lfm2: the width of the MLP is two thirds, times a multiplier, rounded up") {
    CHECK(width_of(R"("block_ff_dim": 1000)") == 768);
    CHECK(width_of(R"("intermediate_size": 1000)") == 768);
    CHECK(width_of(R"("block_ff_dim": 1000, "intermediate_size": 1000)") == 768);
    CHECK(width_of(R"("block_ff_dim": 1000, "block_multiple_of": 64)") == 704);
    CHECK(width_of(R"("block_ff_dim": 1000, "block_multiple_of": 1)") == 666);
    CHECK(width_of(R"("block_ff_dim": 1000, "block_multiple_of": 48,
                      "block_ffn_dim_multiplier": 1.5)") == 1008);
    CHECK(width_of(R"("block_ff_dim": 1000, "block_ffn_dim_multiplier": null)") == 666);
    CHECK(width_of(R"("block_ff_dim": 1000, "block_auto_adjust_ff_dim": false,
                      "block_multiple_of": 64)") == 1000);
    // That of the dense layers of lfm2_moe is not changed.
    const FamilyConfig moe_config = read("lfm2_moe", "");
    CHECK(mlp_of(moe_config.layers[0])->intermediate_size == 20);
}

TEST_CASE("LFM2: defaults of keys that a file may leave out") {
    const FamilyConfig config = read_text(R"("model_type": "lfm2")");
    CHECK(kinds_of_lfm2(config) == std::string(32, 'a'));
    CHECK(config.hidden_size + config.vocab_size == 2560 + 65536);
    CHECK(config.intermediate_size == 8192);
    CHECK(config.num_attention_heads + 100 * config.num_key_value_heads == 832);
    CHECK(config.max_position_embeddings == 128'000);
    const FamilyConfig convolutions = read("lfm2", R"("full_attn_idxs": [1, 7])");
    CHECK(kinds_of_lfm2(convolutions) == "caccccca");
    CHECK(sizes_of_convolution(convolutions).conv_kernel_dim == 3);
    CHECK_FALSE(sizes_of_convolution(convolutions).bias);
    CHECK(
        sizes_of_convolution(read("lfm2", R"("full_attn_idxs": [1], "conv_bias": true)")).bias);

    const FamilyConfig experts = read_text(R"("model_type": "lfm2_moe")");
    CHECK(kinds_of_lfm2(experts) == "aa" + std::string(30, 'A'));
    CHECK(experts.hidden_size + experts.intermediate_size == 2048 + 7168);
    CHECK(experts.num_attention_heads + 100 * experts.num_key_value_heads == 832);
    CHECK(experts.max_position_embeddings + experts.vocab_size == 128'000 + 65'536);
    CHECK(moe(experts).sizes.num_experts + 100 * moe(experts).sizes.num_experts_per_tok == 432);
    CHECK(moe(experts).sizes.moe_intermediate_size == 1792);
    CHECK(moe(experts).correction_bias);
    CHECK(routing_of_lfm2(experts).norm_topk_prob);
    CHECK(routing_of_lfm2(experts).routed_scaling_factor == 1);
    CHECK(kinds_of_lfm2(read("lfm2_moe", R"("num_dense_layers": 0)")) == "AAAAAAAA");
    // Without a token in the file for the layers with experts, there is none.
    CHECK(kinds_of_lfm2(read("lfm2_moe", R"("num_dense_layers": 8)")) == "aaaaaaaa");
}

TEST_CASE("LFM2: theta and tie_embedding are Liquid AI's names") {
    CHECK(main_rope(read("lfm2", R"("theta": 300.0)"))->rope_theta == 300);
    CHECK(read("lfm2", R"("theta": 300.0)").rope_theta == 300);
    CHECK(main_rope(read("lfm2", R"("theta": 300.0, "rope_theta": 300.0)"))->rope_theta == 300);
    CHECK(rejection_of("lfm2", R"("theta": 300.0, "rope_theta": 10000.0)") ==
          "theta contradicts rope_theta");
    CHECK(rejection_of("lfm2", R"("theta": 300.0, "rope_parameters": {"rope_theta": 7.0})") ==
          "theta contradicts rope_theta");
    for (const std::string type : {"lfm2", "lfm2_moe"}) {
        CHECK_FALSE(read(type, R"("tie_embedding": false)").tie_word_embeddings);
        // transformers: it wins.
        CHECK(read(type, R"("tie_embedding": true, "tie_word_embeddings": false)")
                  .tie_word_embeddings);
    }
}

TEST_CASE("LFM2: what is not implemented, or contradicts itself, is rejected by name") {
    const auto lfm2 = [](const std::string& members) { return rejection_of("lfm2", members); };
    CHECK(lfm2(R"("layer_types": ["conv"])") == "layer_types has 1 entries for 8 layers");
    CHECK(lfm2(R"("layer_types": ["conv", "sliding_attention", "conv", "conv", "conv", "conv",
                   "conv", "conv"])") ==
          "layer_types sliding_attention is not supported; supported: conv and full_attention");
    CHECK(lfm2(R"("full_attn_idxs": [1, 8])") == "full_attn_idxs has no layer 8 of 8");
    CHECK(lfm2(R"("block_ff_dim": 30)") == "intermediate_size contradicts block_ff_dim");
    CHECK(lfm2(R"("conv_dim": 8)") ==
          "conv_dim 8 is not supported; supported: the hidden_size, 16");
    CHECK(lfm2(R"("conv_dim_out": 8)") ==
          "conv_dim_out 8 is not supported; supported: the hidden_size, 16");
    CHECK(lfm2(R"("block_dim": 8)") ==
          "block_dim 8 is not supported; supported: the hidden_size, 16");
    CHECK(lfm2(R"("block_use_swiglu": false)") ==
          "block_use_swiglu false is not supported; supported: true");
    CHECK(lfm2(R"("use_pos_enc": false)") ==
          "use_pos_enc false is not supported; supported: true");
    CHECK(lfm2(R"("hidden_act": "gelu")") ==
          "hidden_act gelu is not supported; supported: silu");
    CHECK(lfm2(R"("hidden_act": "silu")") == "not rejected");
    CHECK(lfm2(R"("attention_bias": true)") ==
          "attention_bias true is not supported: nothing reads it");
    CHECK(lfm2(R"("num_experts": 4)") == "num_experts 4 is not supported: nothing reads it");
    const auto moe_type = [](const std::string& members) {
        return rejection_of("lfm2_moe", members);
    };
    CHECK(moe_type(R"("block_auto_adjust_ff_dim": true)") ==
          "block_auto_adjust_ff_dim true is not supported: nothing reads it");
    CHECK(mentions(moe_type(R"("num_experts_per_tok": 33)"), "num_experts_per_tok must be at"));
}

TEST_CASE("LFM2: the spellings of config.json and of the experts give the same logits") {
    const IdMatrix ids = fixture_ids("models/ids");
    CHECK_CLOSE(load_family_model(fixture_path("models/lfm2_published"))(ids),
                load_family_model(fixture_path("models/lfm2"))(ids), 0);
    // lfm2_moe_fused has the same weights, another factor.
    const Scratch scratch;
    const fs::path fused = scratch.copy_of("models/lfm2_moe_fused");
    edit(fused / "config.json", "\"routed_scaling_factor\": 1.7",
         "\"routed_scaling_factor\": 1.0");
    const FamilyModel model = load_family_model(fixture_path("models/lfm2_moe"));
    CHECK_CLOSE(load_family_model(fused.string())(ids), model(ids), 0);
    CHECK(count_parameters(model.config).router_biases == 3 * 5);
    // Without use_expert_bias, a bias in the file is not read.
    edit(fused / "config.json", "\"use_expert_bias\": true", "\"use_expert_bias\": false");
    CHECK_THROWS_AS(load_family_model(fused.string()), FileError);
}

TEST_CASE("LFM2 in GGUF: the settings of each layer, and the name of the final norm") {
    const Scratch scratch;
    const fs::path file = scratch.folder / "model.gguf", other = scratch.folder / "other.gguf";
    const IdMatrix ids = {{3, 1, 4, 1, 5, 9, 2, 6}};
    using Integers = std::vector<std::int64_t>;
    for (const std::string type : {"lfm2", "lfm2_moe"}) {
        CAPTURE(type);
        const FamilyModel model = random_model("models/" + type);
        fs::remove(file);
        models::export_gguf(model, shipped_tokenizer(), file.string());
        const Gguf gguf(file);
        const std::string prefix = model.config.family->gguf_architecture + ".";
        const std::string heads = prefix + "attention.head_count_kv";
        CHECK(gguf.integers(heads) ==
              (type == "lfm2" ? Integers{0, 2, 0, 2} : Integers{0, 0, 2, 0}));
        CHECK(gguf.size(prefix + "shortconv.l_cache") == (type == "lfm2" ? 4 : 3));
        CHECK(gguf.tensor("blk.0.shortconv.conv.weight").shape.size() == 2);
        CHECK(gguf.has_tensor("token_embd_norm.weight"));
        CHECK_FALSE(gguf.has_tensor("output_norm.weight"));
        const FamilyConfig config = read_family_config(gguf);
        CHECK(kinds_of_lfm2(config) == kinds_of_lfm2(model.config));
        CHECK(sizes_of_convolution(config).conv_kernel_dim ==
              sizes_of_convolution(model.config).conv_kernel_dim);
        CHECK(config.head_dim == 6);

        const auto rejection = [&](const std::string& key, const GgufValue& value) {
            edit_gguf(file, other, {{key, value}});
            try {
                read_family_config(Gguf(other));
            } catch (const FileError& error) {
                return std::string(error.what()).substr(other.string().size() + 2);
            }
            return std::string("not rejected");
        };
        CHECK(rejection(heads, Integers{0, 2}) == heads +
                                                      " must have a number for each of 4 "
                                                      "layers");
        CHECK(rejection(heads, Integers{0, 2, 1, 2}) ==
              heads + " must be 0 or the same in all layers");
        CHECK(rejection(heads, Integers{0, 0, 0, 0}) != "not rejected");
        CHECK(rejection(heads, Integers{}) != "not rejected");
        if (type == "lfm2") continue;
        CHECK(gguf.integer(prefix + "leading_dense_block_count") == 1);
        CHECK(gguf.integer(prefix + "expert_gating_func") == 2);
        CHECK(rejection(prefix + "expert_gating_func", std::int64_t{1}) ==
              "lfm2moe.expert_gating_func must be 2, a sigmoid");
        // llama.cpp: without the key, all layers have experts.
        edit_gguf(file, other, {{prefix + "leading_dense_block_count", std::nullopt}});
        CHECK(kinds_of_lfm2(read_family_config(Gguf(other))) == "CCAC");
    }
    // Ollama's files of lfm2 have output_norm.
    const FamilyModel model = random_model("models/lfm2");
    fs::remove(file);
    models::export_gguf(model, shipped_tokenizer(), file.string());
    std::string bytes = content(file);
    const std::string from = "token_embd_norm.weight", to = "output_norm.weight";
    const std::size_t at = bytes.find(from);
    const Gguf gguf(file);
    std::vector<NamedGgufTensor> tensors;
    for (const auto& [name, tensor] : gguf.tensors())
        tensors.push_back({name == from ? to : name, tensor});
    CHECK(at != bytes.npos);
    write_gguf(other, {gguf.metadata().begin(), gguf.metadata().end()}, tensors);
    CHECK_CLOSE(load_family_gguf(other.string())(ids), model(ids), 1e-6);
    // One number for each layer belongs to families that read them.
    edit_gguf(file, other,
              {{"general.architecture", std::string("granite")},
               {"granite.attention.head_count_kv", Integers{2, 1, 2, 2}}});
    CHECK_THROWS_AS(read_family_config(Gguf(other)), FileError);
}

TEST_CASE("LFM2: what llama.cpp computes differently is not exported") {
    const auto rejection = [](const std::string& type, const auto& change) {
        FamilyModel model = random_model("models/" + type);
        change(model.config);
        return rejection_of_gguf(model);
    };
    const std::string convolutions =
        "export: llama.cpp's lfm2 has convolutions over at least 2 tokens, without biases";
    CHECK(rejection("lfm2", [](FamilyConfig& config) {
              change_each<GatedConvolutionSizes>(
                  config, [](GatedConvolutionSizes& sizes) { sizes.bias = true; });
          }) == convolutions);
    CHECK(rejection("lfm2", [](FamilyConfig& config) {
              change_each<GatedConvolutionSizes>(
                  config, [](GatedConvolutionSizes& sizes) { sizes.conv_kernel_dim = 1; });
          }) == convolutions);
    CHECK(rejection("lfm2", [](FamilyConfig& config) {
              for (LayerConfig& layer : config.layers) layer.mixer = attention(config, 1);
          }) == convolutions);
    CHECK(rejection("lfm2", [](FamilyConfig& config) {
              set_rope_scaling(config, YarnScaling{});
          }) == "export: llama.cpp's lfm2 is exported without a RoPE scaling");
    const auto with_moe = [&](const auto& change) {
        return rejection("lfm2_moe", [&](FamilyConfig& config) {
            change_each<MoeConfig>(config, [&](MoeConfig& experts) {
                change(experts, std::get<SigmoidRouting>(experts.routing));
            });
        });
    };
    const std::string weights =
        "export: llama.cpp's lfm2moe normalizes the routing weights, and does not scale them";
    CHECK(with_moe([](MoeConfig&, SigmoidRouting& routing) {
              routing.norm_topk_prob = false;
          }) == weights);
    CHECK(with_moe([](MoeConfig&, SigmoidRouting& routing) {
              routing.routed_scaling_factor = 2;
          }) == weights);
    CHECK(with_moe([](MoeConfig& experts, SigmoidRouting&) {
              experts.correction_bias = false;
          }) == "export: llama.cpp's lfm2moe has biases of the experts");
    CHECK(rejection("lfm2_moe", [](FamilyConfig& config) {
              for (LayerConfig& layer : config.layers) layer.mlp = config.layers[0].mlp;
          }) == "export: llama.cpp's lfm2moe has experts");
}
