#include "chapters/25_encoders/demo/vectors.hpp"

#include <algorithm>

#include "chapters/13_training/training_loop.hpp"
#include "chapters/25_encoders/text_embedding.hpp"
#include "chapters/25_encoders/unpadded.hpp"
#include "common/output/show.hpp"
#include "common/output/terminal.hpp"
#include "common/system/timer.hpp"
#include "common/tensors/matmul.hpp"

namespace llm {
namespace {

// The wrong mean: over all positions, padding included.
Matrix mean_of_all_positions(const Tensor3& hidden_states) {
    const auto [batch_size, seq_len, width] = dims(hidden_states);
    const IdMatrix nothing_is_padding = xt::ones<Id>({batch_size, seq_len});
    return pool(Pooling::mean, hidden_states, nothing_is_padding);
}

double cosine_of_rows(const Matrix& a, const Matrix& b) {
    const Matrix cosines = matmul_transposed(l2_normalize(a), l2_normalize(b));  // (1, 1)
    return static_cast<double>(cosines(0, 0));
}

Matrix first_row(const Matrix& rows) { return xt::view(rows, xt::range(0, 1), xt::all()); }

double seconds_of(const std::function<void()>& run) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
        const double start = elapsed_seconds();
        run();
        best = std::min(best, elapsed_seconds() - start);
    }
    return best;
}

}  // namespace

std::string misspell(const std::string& name, Generator& generator) {
    if (name.size() < 3) return name;
    std::string changed = name;
    const std::size_t i = 1 + generator.next_32_bits() % (name.size() - 2);
    switch (generator.next_32_bits() % 3) {
        case 0:
            std::swap(changed[i], changed[i + 1]);
            break;
        case 1:
            changed[i] = static_cast<char>('a' + generator.next_32_bits() % 26);
            break;
        default:
            changed.erase(i, 1);
    }
    return changed;
}

void mean_with_padding(const ModernBertModel& encoder) {
    step("One vector for a text: padding is not a part of the mean");
    const BatchEncoding alone = encode_names({"ada"});
    const BatchEncoding beside_longer = encode_names({"ada", "maximiliane"});
    const Tensor3 short_states = encoder(alone), long_states = encoder(beside_longer);
    const Matrix right = pool(Pooling::mean, short_states, alone.padding_mask);
    const Matrix padded = pool(Pooling::mean, long_states, beside_longer.padding_mask);
    const Matrix wrong = mean_of_all_positions(long_states);
    const Matrix first = pool(Pooling::cls, long_states, beside_longer.padding_mask);
    const Matrix first_alone = pool(Pooling::cls, short_states, alone.padding_mask);
    show_table(
        {"the vector of ada in a batch with maximiliane", "cosine with that of ada alone"},
        {{"mean of its tokens", fixed(cosine_of_rows(right, first_row(padded)), 4)},
         {"its first token, [CLS]", fixed(cosine_of_rows(first_alone, first_row(first)), 4)},
         {"wrong: mean of all positions", fixed(cosine_of_rows(right, first_row(wrong)), 4)}});
}

void rows_without_padding(const ModernBertModel& encoder, const Names& names) {
    step("Without padding: the tokens of several names in one row");
    const BatchEncoding padded =
        encode_names({names.held_out.begin(), names.held_out.begin() + 64});
    const BatchEncoding row = unpad(padded);
    const std::vector<std::size_t> first_ends(row.cu_seqlens.begin(),
                                              row.cu_seqlens.begin() + 5);
    show("cu_seqlens, the first", to_text(first_ends));
    show_table(
        {"batch", "positions"},
        {{"padded: " + to_text(padded.input_ids.shape()), with_commas(padded.input_ids.size())},
         {"in one row: " + to_text(row.input_ids.shape()), with_commas(row.input_ids.size())}});
    const Matrix right = pool(Pooling::mean, encoder(padded), padded.padding_mask);
    const Matrix same =
        pool(Pooling::mean, pad_states(encoder(row), padded), padded.padding_mask);
    show("largest difference < 0.0001", double(xt::amax(xt::abs(right - same))()) < 1e-4);
}

void measure_unpadded() {
    step("The time of both kinds of batches: texts of 16 to 512 tokens");
    EncoderConfig config;
    config.vocab_size = 100;
    config.hidden_size = 384;
    config.intermediate_size = 576;
    config.num_hidden_layers = 6;
    config.num_attention_heads = 6;
    config.max_position_embeddings = 512;
    config.rope_theta = Real(160'000);
    config.windowed = WindowedLayers{};
    Generator generator(1);
    ModernBertModel encoder = empty_modern_bert(config);
    init_weights(encoder, generator);
    std::vector<std::vector<Id>> texts;
    for (std::size_t length = 16; length <= 512; length *= 2)
        texts.push_back(std::vector<Id>(length, 7));
    const BatchEncoding padded = pad(texts, 0), row = unpad(padded);
    const double padded_seconds = seconds_of([&] { encoder(padded); });
    const double row_seconds = seconds_of([&] { encoder(row); });
    show_table(
        {"batch", "positions", "ms"},
        {{"padded", with_commas(padded.input_ids.size()), fixed(1e3 * padded_seconds, 0)},
         {"in one row", with_commas(row.input_ids.size()), fixed(1e3 * row_seconds, 0)}});
    show("padded / in one row", fixed(padded_seconds / row_seconds, 2));
}

ModernBertModel train_for_search(const ModernBertModel& given, const Names& names,
                                 std::size_t num_steps, std::uint32_t seed) {
    step("Contrastive training: " + to_text(num_steps) + " steps of 64 misspelled names");
    ModernBertModel encoder = given;
    if (!step_is_printed()) return encoder;  // with --only, no other step needs it
    Generator generator(seed);
    TrainingArguments args;
    args.lr_schedule = {Real(0.002), Real(0.0002), num_steps / 10, num_steps};
    std::size_t step_number = 0;
    const std::vector<Real> losses =
        run_training_loop<ModernBertModel>(encoder, args, [&](ModernBertModel& gradient) {
            show_progress("step " + to_text(++step_number) + " of " + to_text(num_steps));
            const std::vector<std::string> passages = sample_names(names.train, 64, generator);
            std::vector<std::string> queries;
            for (const std::string& name : passages)
                queries.push_back(misspell(name, generator));
            return forward_backward(encoder, Pooling::mean, Real(0.05), encode_names(queries),
                                    encode_names(passages), gradient);
        });
    show_progress("");
    show("loss", sparkline(losses, 60));
    show("last loss", fixed(double(losses.back()), 2));
    return encoder;
}

}  // namespace llm
