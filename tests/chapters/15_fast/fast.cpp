#include "chapters/models/llama/load_model.hpp"
#include "common/files/mapped_file.hpp"
#include "common/system/parallel.hpp"
#include "tests/support/count_memory.hpp"
#include "tests/support/fast_helpers.hpp"

using namespace llm;

TEST_CASE(
    "a fast model gives the model's logits, for each kind of model and in chunks of any size") {
    const std::vector<Id> ids = some_ids(40);
    for (const NamedModel& each : all_models()) {
        INFO(each.name);
        const Matrix expected = logits_of(each.model, ids);
        const FastModel fast = make_fast_model(each.model, DType::float32);
        CHECK_CLOSE(in_one_call(fast, ids), expected, 1e-5);
        CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
        CHECK_CLOSE(in_chunks(fast, ids, {5, 1, 7, 2, 24, 1}), expected, 1e-5);
        CHECK_CLOSE(in_chunks(fast, ids, {1, 39}), expected, 1e-5);
    }
}

TEST_CASE("a fast model gives the model's logits after hundreds of tokens") {
    const std::vector<Id> ids = some_ids(530);  // nine tiles, the last of 18; more than 2 * 256
    for (const std::string name : {"Qwen 3", "biases"}) {
        INFO(name);
        const Matrix expected = logits_of(model_named(name), ids);
        const FastModel fast = make_fast_model(model_named(name), DType::float32);
        CHECK_CLOSE(in_one_call(fast, ids), expected, 1e-5);
        CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
        CHECK_CLOSE(in_chunks(fast, ids, {5, 1, 7, 1, 64, 130, 65, 1, 256}), expected, 1e-5);
    }
}

TEST_CASE("a fast model gives only the logits of the last token by default") {
    const FastModel fast = make_fast_model(model_named("an untied head"), DType::float32);
    const std::vector<Id> ids = some_ids(90);
    const Matrix expected = logits_of(model_named("an untied head"), ids);
    RunState state = make_run_state(fast, 90);
    std::size_t end = 0;
    for (const std::size_t chunk : {70u, 1u, 2u, 17u}) {
        const ConstMatrixView logits =
            compute_logits(fast, std::span(ids).subspan(end, chunk), state);
        end += chunk;
        REQUIRE(logits.num_rows == 1);
        CHECK_CLOSE(matrix_of(logits), Matrix(xt::view(expected, xt::range(end - 1, end))),
                    1e-5);
    }
    CHECK(state.logits.shape(0) == 1);
}

TEST_CASE("a quantized fast model gives the logits of the model with dequantized weights") {
    const std::vector<Id> ids = some_ids(80);
    for (const std::string name : {"GQA", "an untied head", "biases"}) {
        INFO(name);
        const Model& model = model_named(name);
        const Matrix expected = logits_of(dequantized_model(model, DType::bfloat16), ids);
        CHECK_FALSE(difference(expected, logits_of(model, ids), 1e-3).empty());
        const FastModel fast = make_fast_model(model, DType::bfloat16);
        CHECK_CLOSE(in_one_call(fast, ids), expected, 1e-5);
        CHECK_CLOSE(token_by_token(fast, ids), expected, 1e-5);
        CHECK_CLOSE(in_chunks(fast, ids, {5, 1, 7, 67}), expected, 1e-5);
    }
}

TEST_CASE("fuse joins the rows of adjacent matrices of the same dtype") {
    Generator generator(23);
    std::vector<Matrix> parts;
    for (const std::size_t out : {3u, 5u, 2u, 4u})
        parts.push_back(randn({out, std::size_t{7}}, generator));
    const auto fused = [&](const std::array<DType, 4>& dtypes) {
        std::vector<WeightMatrix> matrices;
        for (std::size_t i = 0; i < 4; ++i) matrices.push_back(quantize(parts[i], dtypes[i]));
        return WeightMemory().fuse(matrices);
    };
    const auto rows_of = [&](std::size_t first, std::size_t count) {
        const Matrix all = xt::concatenate(xt::xtuple(parts[0], parts[1], parts[2], parts[3]));
        return Matrix(xt::view(all, xt::range(first, first + count)));
    };
    const DType f = DType::float32, b = DType::bfloat16;
    const auto same = [](const WeightMatrix& matrix, const Matrix& weights, DType dtype) {
        const WeightMatrix expected = quantize(weights, dtype);
        CHECK(matrix.dtype() == dtype);
        CHECK(matrix.out_features == expected.out_features);
        CHECK(matrix.in_features == 7);
        CHECK(std::ranges::equal(matrix.rows(0, matrix.out_features),
                                 expected.rows(0, expected.out_features)));
    };
    for (const DType dtype : weight_dtypes) {
        const std::vector<WeightMatrix> one = fused({dtype, dtype, dtype, dtype});
        REQUIRE(one.size() == 1);
        same(one[0], rows_of(0, 14), dtype);
    }
    const std::vector<WeightMatrix> three = fused({f, b, b, f});
    REQUIRE(three.size() == 3);
    same(three[0], parts[0], f);
    same(three[1], rows_of(3, 7), b);
    same(three[2], parts[3], f);
    CHECK(fused({f, b, f, b}).size() == 4);
    CHECK(WeightMemory().fuse({}).empty());
}

TEST_CASE("WeightMemory: matrices of any size stay as they are, aligned, and mostly adjacent") {
    Generator generator(24);
    std::vector<Matrix> weights;
    // 9 MB, which is more than a block, between others; rows of 7 bfloat16 are 14 bytes.
    for (const std::size_t out : {3u, 5u, 640'000u, 2u, 300'000u, 300'001u, 4u})
        weights.push_back(randn({out, std::size_t{7}}, generator));
    std::vector<WeightMatrix> matrices;
    {
        WeightMemory memory;
        for (const Matrix& weight : weights)
            matrices.push_back(memory.fuse({quantize(weight, DType::bfloat16)})[0]);
    }  // the matrices keep their memory
    std::size_t adjacent = 0;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        const auto same = quantize(weights[i], DType::bfloat16);
        CHECK(std::ranges::equal(matrices[i].rows(0, same.out_features),
                                 same.rows(0, same.out_features)));
        CHECK(reinterpret_cast<std::uintptr_t>(matrices[i].bytes.get()) % 64 == 0);
        if (i == 0) continue;
        const auto distance = matrices[i].bytes.get() - matrices[i - 1].bytes.get();
        const auto size = std::ptrdiff_t(matrices[i - 1].nbytes());
        adjacent += distance >= size && distance < size + 64;
    }
    CHECK(adjacent >= 2);
}

TEST_CASE("fuse rejects matrices that do not read the same input, whatever their dtypes") {
    for (const DType dtype : weight_dtypes) {
        std::vector<WeightMatrix> matrices;
        matrices.push_back(quantize(counting({4, 3}), DType::float32));
        matrices.push_back(quantize(counting({5, 2}), dtype));
        CHECK_THROWS_WITH_AS(
            WeightMemory().fuse(matrices),
            "fast model: weights of (5, 2) and (4, 3) do not read the same input", ValueError);
    }
}

TEST_CASE("fused projections of different dtypes give the logits of the dequantized model") {
    const auto weights_of = [](std::initializer_list<std::pair<const Linear*, DType>> linears) {
        std::vector<WeightMatrix> weights;
        for (const auto& [linear, dtype] : linears)
            weights.push_back(quantize(linear->weight, dtype));
        return WeightMemory().fuse(weights);
    };
    const std::vector<Id> ids = some_ids(30);
    for (const std::string name : {"GQA", "some biases"}) {
        INFO(name);
        const Model& model = model_named(name);
        Model expected = model;
        FastModel fast = make_fast_model(model, DType::float32);
        for (std::size_t n = 0; n < model.layers.size(); ++n) {
            const auto& [q_proj, k_proj, v_proj, o_proj] =
                model.layers[n].self_attn.projections;
            const auto& mlp = model.layers[n].mlp;
            fast.layers[n].qkv_proj.weights = weights_of({{&q_proj, DType::float32},
                                                          {&k_proj, DType::bfloat16},
                                                          {&v_proj, DType::float32}});
            fast.layers[n].gate_up_proj.weights =
                weights_of({{&mlp.gate_proj, DType::bfloat16}, {&mlp.up_proj, DType::float32}});
            CHECK(fast.layers[n].qkv_proj.weights.size() == 3);
            CHECK(fast.layers[n].gate_up_proj.weights.size() == 2);
            for (Linear* linear : {&expected.layers[n].self_attn.projections.k_proj,
                                   &expected.layers[n].mlp.gate_proj})
                linear->weight = dequantize(quantize(linear->weight, DType::bfloat16));
        }
        const Matrix logits = logits_of(expected, ids);
        CHECK_FALSE(difference(logits, logits_of(model, ids), 1e-4).empty());
        CHECK_CLOSE(in_one_call(fast, ids), logits, 1e-5);     // a prefill
        CHECK_CLOSE(token_by_token(fast, ids), logits, 1e-5);  // decode steps
        CHECK_CLOSE(in_chunks(fast, ids, {3, 1, 16, 10}), logits, 1e-5);
        // 20 of the rows of 70 weights, and 130 of them, in 2 instead of 4 bytes.
        CHECK(make_fast_model(model, DType::float32).weight_bytes() - fast.weight_bytes() ==
              2 * 150 * 70 * 2);
    }
}

TEST_CASE("make_fast_model asks for the kernels of each matrix by its in_features") {
    Model expected = model_named("an untied head");
    const FastModel fast =
        make_fast_model(expected, [](std::size_t in_features) -> const WeightKernels& {
            return kernels_of(in_features == 70 ? DType::bfloat16 : DType::float32);
        });
    CHECK(fast.embed_tokens.dtype() == DType::bfloat16);
    CHECK(fast.lm_head.value().dtype() == DType::bfloat16);
    const auto round_trip = [](Matrix& weight) {
        weight = dequantize(quantize(weight, DType::bfloat16));
    };
    round_trip(expected.embed_tokens);
    round_trip(*expected.lm_head);
    for (std::size_t n = 0; n < expected.layers.size(); ++n) {
        const FastLayer& layer = fast.layers[n];
        for (const FastLinear* linear : {&layer.qkv_proj, &layer.gate_up_proj}) {
            REQUIRE(linear->weights.size() == 1);
            CHECK(linear->weights[0].dtype() == DType::bfloat16);
        }
        for (const FastLinear* linear : {&layer.o_proj, &layer.down_proj}) {
            REQUIRE(linear->weights.size() == 1);
            CHECK(linear->weights[0].dtype() == DType::float32);
        }
        auto& [q_proj, k_proj, v_proj, o_proj] = expected.layers[n].self_attn.projections;
        auto& mlp = expected.layers[n].mlp;
        for (Linear* linear : {&q_proj, &k_proj, &v_proj, &mlp.gate_proj, &mlp.up_proj})
            round_trip(linear->weight);
    }
    const std::vector<Id> ids = some_ids(30);
    const Matrix logits = logits_of(expected, ids);
    CHECK_CLOSE(in_one_call(fast, ids), logits, 1e-5);
    CHECK_CLOSE(token_by_token(fast, ids), logits, 1e-5);
}

TEST_CASE("fast models of checkpoints give PyTorch's logits") {
    const IdMatrix ids{{3, 16, 0, 5, 5}, {9, 1, 2, 3, 4}};
    for (const std::string name : {"llama", "qwen2", "qwen3", "mistral", "mini_llm"}) {
        INFO(name);
        const Model model = models::load_model(fixture_path("09_full_model/" + name));
        const FastModel fast = make_fast_model(model, DType::float32);
        const Tensor3 pinned = fixture<3>("09_full_model/" + name + "_logits");
        for (const std::size_t b : {0, 1}) {
            const std::span<const Id> text(&ids(b, 0), 5);
            const Matrix expected = xt::view(pinned, b);
            CHECK_CLOSE(in_one_call(fast, text), expected, 1e-5);
            CHECK_CLOSE(token_by_token(fast, text), expected, 1e-5);
        }
    }
}

TEST_CASE("the fast model of Mini-LLM gives PyTorch's first logits") {
    Generator generator(77);
    const Model model = make_model(mini_llm_config(), generator, RopeLayout::interleaved);
    const FastModel fast = make_fast_model(model, DType::float32);
    const std::vector<Id> ids = {1, 334, 3855, 288};
    const Matrix expected = xt::view(fixture<3>("09_full_model/demo_logits"), 0);
    const auto every_97th = [](const Matrix& logits) {
        return Matrix(xt::view(logits, xt::all(), xt::range(0, 32000, 97)));
    };
    CHECK_CLOSE(every_97th(in_one_call(fast, ids)), expected, 1e-5);
    CHECK_CLOSE(every_97th(token_by_token(fast, ids)), expected, 1e-5);
    CHECK(fast.weight_bytes() == 50036736 * 4);
}

TEST_CASE(
    "the model of assets/ generates PyTorch's greedy tokens, with weights of each dtype") {
    const Model model = models::load_model(asset("king_james"));
    const IdMatrix ids = id_fixture<2>("13_training/king_james_ids");
    const std::vector<Id> text(ids.begin(), ids.end());
    for (const DType dtype : weight_dtypes)
        CHECK(greedy(make_fast_model(model, dtype), {text.begin(), text.begin() + 3}, 24) ==
              text);

    // Its weights are stored in bfloat16, so converting them to bfloat16 loses nothing.
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const FastModel fast = make_fast_model(model, dtype);
        RunState state = make_run_state(fast, 26);
        CHECK_CLOSE(matrix_of(compute_logits(fast, std::span(text).first(26), state)),
                    fixture<2>("13_training/king_james_logits"), 1e-5);
    }
}

TEST_CASE("make_fast_model stores the weights in the bytes of the dtype") {
    const std::size_t C = 70, F = 130, V = 131, qkv = (6 + 2 * 2) * 10, width = 60;
    const std::size_t rows_of_C = 2 * (qkv + 2 * F);
    const std::size_t weights = rows_of_C * C + 2 * (C * width + C * F);
    for (const std::string name : {"GQA", "an untied head"}) {
        const Model& model = model_named(name);  // a decode step reads the head, tied or not
        CHECK(make_fast_model(model, DType::float32).weight_bytes() == 4 * (weights + V * C));
        CHECK(make_fast_model(model, DType::bfloat16).weight_bytes() == 2 * (weights + V * C));
        for (const DType dtype : weight_dtypes)
            CHECK(make_fast_model(model, dtype).lm_head.has_value() ==
                  model.lm_head.has_value());
    }
}

TEST_CASE("make_fast_model fuses biases, with zeros for projections without one") {
    for (const FastLayer& layer : make_fast_model(model_named("GQA"), DType::float32).layers)
        for (const FastLinear* linear :
             {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj})
            CHECK(linear->bias.empty());
    const Model model = model_named("some biases");
    const FastModel fast = make_fast_model(model, DType::float32);
    const std::vector<Real>& bias = fast.layers[0].qkv_proj.bias;  // 60, 20 and 20
    const Vector& v_bias = *model.layers[0].self_attn.projections.v_proj.bias;
    REQUIRE(bias.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(bias[i] == (i < 80 ? 0 : v_bias(i - 80)));
    CHECK(fast.layers[1].gate_up_proj.bias.size() == 260);
    CHECK(fast.layers[0].gate_up_proj.bias.empty());
}

TEST_CASE("make_fast_model rejects norms and activations that it does not support") {
    const auto rejected = [](const auto& change) {
        Model model = model_named("an untied head");
        change(model);
        CHECK_THROWS_WITH_AS(
            make_fast_model(model, DType::float32),
            "fast model: only RMSNorm without bias, SwiGLU, RoPE, and embeddings "
            "and logits without a scale or a cap",
            ValueError);
    };
    const Vector bias = xt::zeros<Real>({70});
    rejected([&](Model& model) { model.norm.bias = bias; });
    rejected([&](Model& model) { model.layers[0].attention_norm.bias = bias; });
    rejected([&](Model& model) { model.layers[0].ffn_norm.bias = bias; });
    rejected([&](Model& model) { model.layers[1].attention_norm.bias = bias; });
    rejected([](Model& model) { model.layers[0].mlp.activation = GELU; });
    rejected([](Model& model) { model.layers[1].mlp.activation = ReLU; });
    rejected([](Model& model) { model.embedding_scale = 4; });
    rejected([](Model& model) { model.final_logit_softcapping = 30; });
    rejected([](Model& model) { model.logits_scaling = 8; });
    rejected([](Model& model) { model.embed_positions = xt::zeros<Real>({9, 70}); });
    rejected([](Model& model) { model.layers[1].residual_multiplier = 2; });
}

TEST_CASE("make_fast_model rejects QK norm weights that chapter 05 rejects") {
    const auto rejected = [](Vector QKNormWithWeights::*weight) {
        Model model = model_named("Qwen 3");
        auto& norm = std::get<QKNormWithWeights>(model.layers[1].self_attn.qk_norm);
        norm.*weight = xt::ones<Real>({11});
        CHECK_THROWS_WITH_AS(make_fast_model(model, DType::float32),
                             "fast model: norm weights of (11,) do not fit heads of 10",
                             ValueError);
    };
    rejected(&QKNormWithWeights::q_weight);
    rejected(&QKNormWithWeights::k_weight);
}

TEST_CASE("make_fast_model rejects weights that are not finite or do not read the same input") {
    const auto rejected = [](const auto& matrix_of_model) {
        Model model = model_named("an untied head");
        Matrix& matrix = matrix_of_model(model);
        matrix(matrix.shape(0) - 1, 0) = not_a_number;
        for (const DType dtype : weight_dtypes)
            CHECK_THROWS_AS(make_fast_model(model, dtype), ValueError);
    };
    rejected([](Model& model) -> Matrix& { return model.embed_tokens; });
    rejected([](Model& model) -> Matrix& { return *model.lm_head; });
    for (const std::size_t n : {0, 1}) {
        using Layer = PreNormBlock;
        for (Matrix& (*part)(Layer&) : std::initializer_list<Matrix& (*)(Layer&)>{
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.q_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.k_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.v_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.self_attn.projections.o_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.gate_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.up_proj.weight; },
                 [](Layer& x) -> Matrix& { return x.mlp.down_proj.weight; }})
            rejected([&](Model& model) -> Matrix& { return part(model.layers[n]); });
    }
    Model model = model_named("an untied head");
    model.layers[1].self_attn.projections.k_proj.weight = counting({20, 71});
    CHECK_THROWS_AS(make_fast_model(model, DType::float32), ValueError);
}

TEST_CASE("make_run_state: at least one position, at most max_position_embeddings") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::bfloat16);
    CHECK_NOTHROW(make_run_state(fast, 1));
    CHECK_NOTHROW(make_run_state(fast, 1024));
    CHECK_THROWS_WITH_AS(
        make_run_state(fast, 0),
        "fast model: a run state for 0 tokens, but max_position_embeddings is 1024",
        ValueError);
    CHECK_THROWS_WITH_AS(
        make_run_state(fast, 1025),
        "fast model: a run state for 1025 tokens, but max_position_embeddings is 1024",
        ValueError);
}

TEST_CASE("a rejected call explains why in one line and leaves the state as it was") {
    const FastModel fast = make_fast_model(model_named("Qwen 3"), DType::float32);
    const std::vector<Id> ids = some_ids(12);
    const Matrix undisturbed = in_chunks(fast, ids, {7, 5});
    RunState state = make_run_state(fast, 12);
    compute_logits(fast, std::span(ids).first(7), state);
    const Tensor4 keys = state.keys, values = state.values;
    const auto rejected = [&](const std::vector<Id>& new_ids, const std::string& message) {
        for (const LogitsToKeep keep : {LogitsToKeep::all, LogitsToKeep::last})
            CHECK_THROWS_WITH_AS(compute_logits(fast, new_ids, state, keep), message.c_str(),
                                 ValueError);
        CHECK(state.seq_len == 7);
        CHECK(state.keys == keys);
        CHECK(state.values == values);
    };
    rejected({}, "fast model: no tokens are given");
    rejected({131}, "model: there is no token 131 in a vocabulary of 131");
    rejected({-1}, "model: there is no token -1 in a vocabulary of 131");
    rejected({1, 2, 3, 4, 131}, "model: there is no token 131 in a vocabulary of 131");
    rejected({1, 2, 3, 4, 5, 6}, "cache: 6 tokens after 7 others exceed 12 positions");
    rejected({1, 2, 3, 4, 5, 200}, "cache: 6 tokens after 7 others exceed 12 positions");

    const Matrix rest =
        matrix_of(compute_logits(fast, std::span(ids).subspan(7), state, LogitsToKeep::all));
    CHECK(identical(rest, Matrix(xt::view(undisturbed, xt::range(7, 12)))));
    CHECK(state.seq_len == 12);
    CHECK_THROWS_AS(compute_logits(fast, std::span(ids).first(1), state), ValueError);
}

TEST_CASE("seq_len 0 starts a new sequence: the same logits, whatever the state held before") {
    const std::vector<Id> ids = some_ids(200);
    for (const DType dtype : weight_dtypes) {
        const FastModel fast = make_fast_model(model_named("Qwen 3"), dtype);
        const std::vector<std::size_t> chunks = {130, 1, 1, 5, 63};
        const Matrix first = in_chunks(fast, ids, chunks);

        RunState state = make_run_state(fast, 300);
        const auto again = [&] {
            state.seq_len = 0;
            return in_chunks(fast, ids, chunks, state);
        };
        CHECK(identical(again(), first));
        CHECK(identical(again(), first));
        state.seq_len = 0;
        compute_logits(fast, some_ids(290), state, LogitsToKeep::all);
        CHECK(identical(again(), first));

        // No element of the workspace or the cache is read before it is written.
        for (Matrix* matrix : {&state.hidden_states, &state.qkv, &state.context, &state.logits})
            matrix->fill(not_a_number);
        state.keys.fill(not_a_number);
        state.values.fill(not_a_number);
        for (RunState::ThreadWorkspace& workspace : state.workspaces) {
            workspace.normalized.fill(not_a_number);
            workspace.gate_up.fill(not_a_number);
            std::ranges::fill(workspace.matmul.dequantized, not_a_number);
            std::ranges::fill(workspace.matmul.quantized, std::byte{0xFF});
            std::ranges::fill(workspace.scores, not_a_number);
        }
        CHECK(identical(again(), first));
    }
}

TEST_CASE("logits do not depend on the threads: on all, on one, and two sequences at a time") {
    const FastModel fast = make_fast_model(model_named("biases"), DType::bfloat16);
    const std::vector<Id> ids = some_ids(150);
    const std::vector<std::size_t> chunks = {100, 1, 1, 1, 47};
    const Matrix expected = in_chunks(fast, ids, chunks);
    for (int times = 0; times < 5; ++times)
        CHECK(identical(in_chunks(fast, ids, chunks), expected));
    std::vector<Matrix> both(2);
    parallel_for(2, [&](std::size_t i) { both[i] = in_chunks(fast, ids, chunks); });
    CHECK(identical(both[0], expected));
    CHECK(identical(both[1], expected));
}

TEST_CASE("memory grows linearly with the sequence length") {
    Config config = odd_config();
    config.max_position_embeddings = 4096;
    Generator generator(19);
    const FastModel fast = make_fast_model(make_test_model(config, generator), DType::bfloat16);
    for (const std::size_t T : {512u, 1024u, 2048u}) {
        const std::size_t before = allocated_bytes;
        RunState state = make_run_state(fast, T);
        compute_logits(fast, some_ids(T), state);
        [[maybe_unused]] const std::size_t allocated = allocated_bytes - before;

        // Each token needs its hidden state, queries, keys and values, context, 80 elements of
        // the cache and 10 of the table, and in one of the thread workspaces 70 and 260. A
        // matrix of (T, T) for a single head would exceed the limit.
        const std::size_t per_token = 70 + 100 + 60 + 80 + 10 + 70 + 260;
        // Dequantized rows, a tile of keys or values, scores.
        const std::size_t per_thread = 64 * 130 + 64 * 10 + T + 330;
        const std::size_t limit = T * per_token + num_threads() * per_thread + 131;
        CHECK(state.nbytes() > 4 * T * (70 + 100 + 60 + 80));
        CHECK(state.nbytes() <= 4 * limit);
#ifndef LLM_SANITIZE
        // It agrees with what was allocated. (A workspace may have been allocated twice.)
        CHECK(state.nbytes() <= allocated);
        CHECK(state.nbytes() * 2 >= allocated);
#endif
    }
}

TEST_CASE("nbytes includes what a call adds to the workspace") {
    const FastModel fast = make_fast_model(model_named("GQA"), DType::float32);
    RunState state = make_run_state(fast, 50);
    const std::size_t fresh = state.nbytes();
    CHECK(fresh >= 4 * 50 * (2 * 2 * 2 * 10 + num_threads()));  // cache, scores
    compute_logits(fast, some_ids(1), state);
    // Hidden state, queries, keys and values, context, normalized, gate and up, logits.
    CHECK(state.nbytes() - fresh == 4 * (70 + 100 + 60 + 70 + 260 + 131));
    compute_logits(fast, some_ids(20), state);
    const std::size_t last = state.nbytes();
    state.seq_len = 1;
    compute_logits(fast, some_ids(20), state, LogitsToKeep::all);
    CHECK(state.nbytes() - last >= 4 * 19 * 131);
}

TEST_CASE("nbytes includes the workspace of each thread's matrix products") {
    RunState state = make_run_state(make_fast_model(model_named("GQA"), DType::float32), 50);
    const std::size_t fresh = state.nbytes();
    state.workspaces.back().matmul.dequantized.resize(1000);
    CHECK(state.nbytes() - fresh == 4000);
    state.workspaces.front().matmul.quantized.resize(10);
    CHECK(state.nbytes() - fresh == 4010);

    // A prefill dequantizes 64 rows of 70 weights or more.
    const FastModel fast = make_fast_model(model_named("GQA"), DType::bfloat16);
    state = make_run_state(fast, 50);
    compute_logits(fast, some_ids(20), state);
    CHECK(state.nbytes() - fresh >= 4 * 20 * (70 + 100 + 60 + 70) + 4 * 131 + 4 * 64 * 70);
}

#ifndef LLM_SANITIZE
TEST_CASE("a decode step allocates no memory after the first two") {
    for (const DType dtype : weight_dtypes) {
        const FastModel fast = make_fast_model(model_named("Qwen 3"), dtype);
        const std::vector<Id> ids = some_ids(60);
        RunState state = make_run_state(fast, 60);
        const auto decode_steps = [&](std::size_t count) {
            const std::size_t before = num_allocations;
            for (std::size_t n = 0; n < count; ++n)
                compute_logits(fast, std::span(ids).subspan(state.seq_len, 1), state);
            return num_allocations - before;
        };
        CHECK(decode_steps(2) > 0);
        CHECK(decode_steps(20) == 0);
        compute_logits(fast, std::span(ids).subspan(22, 30), state);
        CHECK(decode_steps(8) == 0);
    }
}
#endif

TEST_CASE("a run state of another model is rejected") {
    Generator generator(3);
    Config config = odd_config();
    const FastModel fast = make_fast_model(make_test_model(config, generator), DType::float32);
    config.num_hidden_layers += 1;
    const FastModel deeper =
        make_fast_model(make_test_model(config, generator), DType::float32);
    RunState state = make_run_state(fast, 8);
    CHECK_THROWS_AS(compute_logits(deeper, std::vector<Id>{1}, state), ValueError);
    CHECK_NOTHROW(compute_logits(fast, std::vector<Id>{1}, state));
}
