// The forward pass of a fast encoder.
#include "chapters/15_fast/inference.hpp"
#include "chapters/25_encoders/unpadded.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"
#include "chapters/models/encoders/kernels/encoder_loops.hpp"
#include "common/system/for_blocks.hpp"

namespace llm::models {
namespace {

std::span<const Real> span_of(const Vector& vector) { return {vector.data(), vector.size()}; }

// A missing norm leaves the rows as they are.
void normalize(const NormOrIdentity& norm, ConstMatrixView rows, MatrixView normalized) {
    for (std::size_t t = 0; t < rows.num_rows; ++t)
        if (!norm.norm)
            std::ranges::copy(rows[t], normalized[t].begin());
        else
            layer_norm(rows[t], span_of(norm.norm->weight),
                       norm.norm->bias ? span_of(*norm.norm->bias) : std::span<const Real>(),
                       norm.norm->eps, normalized[t]);
}

// Some adjacent tokens of one text, whose attention is computed together.
struct TextTile {
    std::size_t begin_of_text, end_of_text, first_row, num_rows;
};
std::vector<TextTile> split_texts(const std::vector<std::size_t>& cu_seqlens) {
    std::vector<TextTile> tiles;
    for (std::size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
        for (std::size_t row = cu_seqlens[i]; row < cu_seqlens[i + 1]; row += tile_size)
            tiles.push_back({cu_seqlens[i], cu_seqlens[i + 1], row,
                             std::min(tile_size, cu_seqlens[i + 1] - row)});
    return tiles;
}

std::optional<RotaryTable> rotary_table(const EncoderConfig& config, bool has_window,
                                        std::size_t num_positions) {
    if (!config.rope_theta || (has_window && !config.windowed)) return std::nullopt;
    const Real theta = has_window ? config.windowed->rope_theta : *config.rope_theta;
    const std::size_t head_dim = config.hidden_size / config.num_attention_heads;
    return llm::make_rotary_table(inverse_frequencies(head_dim, theta), num_positions);
}

// What the layers of one call share. A batch of a few tokens divides the rows of the weights
// among the threads, a larger one the tokens.
struct EncoderRun {
    const FastEncoder& encoder;
    const BatchEncoding& row;  // (1, N), without padding
    bool few = row.input_ids.size() <= max_decode_tokens;
    std::size_t longest = static_cast<std::size_t>(xt::amax(row.position_ids)() + 1);
    std::optional<RotaryTable> full = rotary_table(encoder.config, false, longest),
                               windowed = rotary_table(encoder.config, true, longest);
    std::vector<TextTile> tiles = split_texts(row.cu_seqlens);
    Matrix hidden_states{}, qkv{}, context{};  // (N, C), (N, 3C), (N, C)
    std::vector<Workspace::ThreadWorkspace> workspaces{num_threads()};
};

// Some tokens and the memory of the thread that computes them.
struct EncoderBlock {
    MatrixView hidden_states, qkv, context;
    std::size_t first;  // row
    Workspace::ThreadWorkspace& workspace;
    QuantizedMatmul matmul;

    void linear(const FastLinear& linear, ConstMatrixView inputs, MatrixView outputs,
                Update update = Update::overwrite) const {
        apply_linear(matmul, linear, inputs, outputs, workspace.matmul, update);
    }
    // The input of a sublayer: in a post-norm block, the residual stream itself.
    ConstMatrixView sublayer_input(const FastEncoder& encoder, const NormOrIdentity& norm) {
        if (encoder.norm_placement == NormPlacement::post_norm || !norm.norm)
            return hidden_states;
        const MatrixView normalized = ensure_capacity(
            workspace.normalized, hidden_states.num_rows, hidden_states.num_columns);
        normalize(norm, hidden_states, normalized);
        return normalized;
    }
    // A post-norm block normalizes the sum of the residual stream and a sublayer's output.
    void end_sublayer(const FastEncoder& encoder, const NormOrIdentity& norm) {
        if (encoder.norm_placement == NormPlacement::post_norm)
            normalize(norm, hidden_states, hidden_states);
    }
};

template <class Function>
void for_token_blocks(EncoderRun& run, const Function& function) {
    const auto call = [&](std::size_t begin, std::size_t size, std::size_t thread) {
        function(EncoderBlock{
            view_of(run.hidden_states).rows(begin, size), view_of(run.qkv).rows(begin, size),
            view_of(run.context).rows(begin, size), begin, run.workspaces[thread],
            run.few ? matmul_by_rows : static_cast<QuantizedMatmul>(matmul_transposed)});
    };
    if (run.few)
        call(0, run.row.input_ids.size(), 0);
    else
        for_blocks(run.row.input_ids.size(), call);
}

void embed(const EncoderRun& run, EncoderBlock& block) {
    const FastEncoder& encoder = run.encoder;
    const auto index = [](Id id) { return static_cast<std::size_t>(id); };
    for (std::size_t t = 0; t < block.hidden_states.num_rows; ++t) {
        const std::size_t n = block.first + t;
        const std::span<Real> sum = block.hidden_states[t];
        encoder.word_embeddings.dequantize_row(index(run.row.input_ids(0, n)), sum);
        const auto add_row = [&](const std::optional<Matrix>& rows, Id id) {
            if (!rows) return;
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*rows)(index(id), i);
        };
        add_row(encoder.position_embeddings, run.row.position_ids(0, n));
        add_row(encoder.token_type_embeddings, run.row.token_type_ids(0, n));
    }
    normalize({encoder.embeddings_norm}, block.hidden_states, block.hidden_states);
}

// Queries, keys and values; queries and keys are rotated.
void compute_qkv(const EncoderRun& run, const FastEncoderLayer& layer, EncoderBlock& block) {
    block.linear(layer.qkv_proj, block.sublayer_input(run.encoder, layer.attention_norm),
                 block.qkv);
    const std::optional<RotaryTable>& table = layer.has_window ? run.windowed : run.full;
    if (!table) return;
    const std::size_t width = run.encoder.config.hidden_size;
    const std::size_t head_dim = width / run.encoder.config.num_attention_heads;
    for (std::size_t t = 0; t < block.qkv.num_rows; ++t) {
        const auto position = std::size_t(run.row.position_ids(0, block.first + t));
        for (std::size_t i = 0; i < 2 * width; i += head_dim)
            apply_rotary_embedding(block.qkv[t].subspan(i, head_dim),
                                   view_of(table->cos)[position],
                                   view_of(table->sin)[position]);
    }
}

// Attention of one head and one tile of queries, to the text of the tile alone.
void compute_context(EncoderRun& run, const FastEncoderLayer& layer, std::size_t head,
                     const TextTile& tile) {
    const EncoderConfig& config = run.encoder.config;
    const std::size_t C = config.hidden_size, head_dim = C / config.num_attention_heads;
    const std::size_t len = tile.end_of_text - tile.begin_of_text;
    const auto part = [&](std::size_t begin, std::size_t count, std::size_t column) {
        return view_of(run.qkv).rows(begin, count).columns(column + head * head_dim, head_dim);
    };
    const std::size_t reach = layer.has_window ? config.windowed->window : len;
    flash_attention(part(tile.first_row, tile.num_rows, 0), part(tile.begin_of_text, len, C),
                    part(tile.begin_of_text, len, 2 * C), tile.first_row - tile.begin_of_text,
                    view_of(run.context)
                        .rows(tile.first_row, tile.num_rows)
                        .columns(head * head_dim, head_dim),
                    {}, {reach, reach});
}

void compute_output_and_mlp(const EncoderRun& run, const FastEncoderLayer& layer,
                            EncoderBlock& block) {
    block.linear(layer.o_proj, block.context, block.hidden_states, Update::accumulate);
    block.end_sublayer(run.encoder, layer.attention_norm);

    const std::size_t F = run.encoder.config.intermediate_size;
    const MatrixView gate_up = ensure_capacity(
        block.workspace.gate_up, block.hidden_states.num_rows, layer.has_gate ? 2 * F : F);
    block.linear(layer.gate_up_proj, block.sublayer_input(run.encoder, layer.ffn_norm),
                 gate_up);
    for (std::size_t t = 0; t < gate_up.num_rows; ++t) {
        activate_row(layer.activation, gate_up[t].first(F));
        if (layer.has_gate) multiply_row(gate_up[t].first(F), gate_up[t].subspan(F));
    }
    block.linear(layer.down_proj, gate_up.columns(0, F), block.hidden_states,
                 Update::accumulate);
    block.end_sublayer(run.encoder, layer.ffn_norm);
}

}  // namespace

Tensor3 FastEncoder::operator()(const BatchEncoding& batch) const {
    check_batch(config, batch);
    if (batch.cu_seqlens.empty()) return pad_states((*this)(unpad(batch)), batch);
    EncoderRun run{*this, batch};
    const std::size_t count = batch.input_ids.size(), C = config.hidden_size;
    run.hidden_states = run.context = xt::zeros<Real>({count, C});
    run.qkv = xt::zeros<Real>({count, 3 * C});
    for_token_blocks(run, [&](EncoderBlock block) { embed(run, block); });
    for (const FastEncoderLayer& layer : layers) {
        for_token_blocks(run, [&](EncoderBlock block) { compute_qkv(run, layer, block); });
        parallel_for(run.tiles.size() * config.num_attention_heads, [&](std::size_t i) {
            compute_context(run, layer, i % config.num_attention_heads,
                            run.tiles[i / config.num_attention_heads]);
        });
        for_token_blocks(
            run, [&](EncoderBlock block) { compute_output_and_mlp(run, layer, block); });
    }
    for_token_blocks(run, [&](EncoderBlock block) {
        normalize(final_norm, block.hidden_states, block.hidden_states);
    });
    return reshape(std::move(run.hidden_states), {std::size_t{1}, count, C});
}

}  // namespace llm::models
