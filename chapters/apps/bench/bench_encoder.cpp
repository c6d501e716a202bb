// ./learn bench: a text of 512 tokens by an encoder of ModernBERT-base's sizes, beside PyTorch
// and llama.cpp.
#include "chapters/apps/bench/bench_rivals.hpp"
#include "chapters/apps/bench/bench_timing.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"

namespace llm::bench {
namespace {

constexpr std::array dtypes_of_encoder = {DType::float32, DType::bfloat16, DType::q8_0,
                                          DType::q4_0};
constexpr std::size_t num_encoded = 512;

models::EncoderFamilyConfig modern_bert_base(std::size_t num_layers) {
    models::EncoderFamilyConfig config;
    config.family = &models::modernbert_family();
    config.architecture = config.family->base_class;
    config.vocab_size = 50368;
    config.hidden_size = 768;
    config.intermediate_size = 1152;
    config.num_hidden_layers = num_layers;
    config.num_attention_heads = 12;
    config.max_position_embeddings = 8192;
    config.rope_theta = Real(160'000);
    config.windowed = WindowedLayers{};
    for (std::size_t n = 0; n < num_layers; ++n)
        config.windows.push_back(config.windowed->has_window(n));
    config.layer_norm_eps = Real(1e-5);
    config.has_bias = config.norm_bias = config.attention_bias = config.mlp_bias = false;
    return config;
}

models::AnyEncoder random_encoder(const models::EncoderFamilyConfig& config,
                                  Generator& generator) {
    ModernBertModel encoder = empty_modern_bert(config);
    init_weights(encoder, generator);
    return models::EncoderFamilyModel<ModernBertBlock>{
        config, std::move(encoder), std::nullopt, std::nullopt, std::nullopt, std::nullopt};
}

// The FLOPs of all matrix products, with the scores of keys in a window alone.
double flops_of(const models::EncoderFamilyConfig& config) {
    const double C = double(config.hidden_size), F = double(config.intermediate_size);
    double multiplications = 0;
    for (const bool has_window : config.windows) {
        double num_scores = 0;
        for (std::size_t t = 0; t < num_encoded; ++t)
            for (std::size_t s = 0; s < num_encoded; ++s)
                num_scores += !has_window || (t > s ? t - s : s - t) <= config.windowed->window;
        multiplications += double(num_encoded) * (4 * C * C + 3 * C * F) + 2 * num_scores * C;
    }
    return 2 * multiplications;
}

std::string name_of(DType dtype) { return "encoder 512, " + std::string(to_text(dtype)); }

// PyTorch computes in float32; llama.cpp's weights have our dtype.
struct EncoderRivals {
    Rival pytorch;
    std::array<Rival, dtypes_of_encoder.size()> llama_cpp;
};
EncoderRivals make_encoder_rivals(const models::AnyEncoder& encoder, const Matrix& vectors) {
    const Vector mean = xt::mean(vectors, 0);  // (T, C) -> (C)
    EncoderRivals rivals{make_pytorch_rival(encoder, vectors), {}};
    for (std::size_t k = 0; k < dtypes_of_encoder.size(); ++k)
        rivals.llama_cpp[k] =
            make_llama_cpp_rival(encoder, dtypes_of_encoder[k], {mean.data(), mean.size()});
    return rivals;
}

void show_encoder_table(const std::vector<Benchmark>& benchmarks,
                        const BenchmarkResults& results, const EncoderRivals& rivals) {
    std::vector<TableRow> table;
    for (std::size_t k = 0; k < benchmarks.size(); ++k) {
        table.push_back(result_row(benchmarks[k], results));
        for (const Rival& rival : {rivals.pytorch, rivals.llama_cpp[k]})
            table.back().push_back(
                rival.speedup("encoder 512", results.seconds(benchmarks[k].name)));
    }
    show_table({"benchmark", "ms", "speed", "% of roofline", "PyTorch", "llama.cpp"}, table);
    say("PyTorch, llama.cpp: their time, divided by ours");
    say("roofline (median): " + fixed(median(results.peaks), 1) + " GFLOP/s");
}

}  // namespace

void benchmark_encoder(Generator& generator, int repetitions) {
    step("An encoder of ModernBERT-base's sizes, random weights");
    const models::EncoderFamilyConfig config = modern_bert_base(repetitions > 1 ? 22 : 3);
    const models::AnyEncoder encoder = random_encoder(config, generator);
    std::vector<Id> ids;
    for (std::size_t i = 0; i < num_encoded; ++i)
        ids.push_back(static_cast<Id>(i * 7919 % config.vocab_size));
    const BatchEncoding text = pad({ids}, 0);

    std::vector<models::FastEncoder> encoders;
    std::vector<Benchmark> benchmarks;
    for (const DType dtype : dtypes_of_encoder) {
        benchmarks.push_back({name_of(dtype), [&, k = encoders.size()] { encoders[k](text); },
                              flops_of(config)});
        encoders.push_back(models::make_fast_encoder(encoder, dtype));
    }
    EncoderRivals rivals;
    if (repetitions > 1) rivals = make_encoder_rivals(encoder, xt::view(encoders[0](text), 0));

    // Our runs and those of the other programs alternate.
    BenchmarkResults results;
    for (int round = 0; round < (repetitions + 1) / 2; ++round) {
        run_benchmarks(benchmarks, std::min(repetitions, 2), results);
        rivals.pytorch.run();
        for (Rival& rival : rivals.llama_cpp) rival.run();
    }
    show_encoder_table(benchmarks, results, rivals);
}

}  // namespace llm::bench
