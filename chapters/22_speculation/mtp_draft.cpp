#include "chapters/22_speculation/mtp_draft.hpp"

#include "chapters/09_full_model/checkpoint.hpp"

namespace llm {

MtpModule load_mtp_module(const std::string& file, const Config& target) {
    Generator unused(0);
    MtpModule module = make_mtp_module(target, unused);
    load_parameters(file, named_parameters(module));
    return module;
}

FastMtpModule make_fast_mtp_module(const MtpModule& module, const FastModel& target,
                                   DType dtype) {
    Config config = target.config;
    config.num_hidden_layers = 1;
    const Matrix no_embedding = xt::zeros<Real>({std::size_t{1}, config.hidden_size});
    FastModel decoder = make_fast_model(
        Model{config, no_embedding, {module.layer}, module.norm, std::nullopt}, dtype);
    decoder.embed_tokens = target.embed_tokens;
    decoder.lm_head = target.lm_head;
    return {module.pre_fc_norm_embedding,
            module.pre_fc_norm_hidden,
            {{quantize(module.fc.weight, dtype)}, {}},
            std::move(decoder)};
}

Matrix mtp_inputs(const FastMtpModule& module, std::span<const Id> next_ids,
                  ConstMatrixView hidden_states, MatmulWorkspace& workspace) {
    const std::size_t count = next_ids.size(), hidden_size = hidden_states.num_columns;
    Matrix joined = xt::zeros<Real>({count, 2 * hidden_size});  // (N, 2C)
    const MatrixView embeddings = view_of(joined).columns(0, hidden_size);
    for (std::size_t n = 0; n < count; ++n)
        module.decoder.embed_tokens.dequantize_row(std::size_t(next_ids[n]), embeddings[n]);
    apply_norm(module.pre_fc_norm_embedding, embeddings, embeddings);
    apply_norm(module.pre_fc_norm_hidden, hidden_states,
               view_of(joined).columns(hidden_size, hidden_size));

    Matrix inputs = xt::zeros<Real>({count, hidden_size});  // (N, C)
    const QuantizedMatmul by_rows = matmul_by_rows, for_many = matmul_transposed;
    apply_linear(count <= max_decode_tokens ? by_rows : for_many, module.fc, view_of(joined),
                 view_of(inputs), workspace);
    return inputs;
}

MtpDraft::MtpDraft(const FastMtpModule& fast_module, TargetSequence& target_sequence)
    : module(fast_module),
      target(target_sequence),
      sequence(module.decoder, make_run_state(module.decoder, target.cached.num_positions)) {
    sequence.keep_hidden_states();
}

Vector MtpDraft::append(std::span<const Id> next_ids, ConstMatrixView hidden_states) {
    const Matrix inputs =  // (N, C)
        mtp_inputs(module, next_ids, hidden_states, sequence.state.workspaces[0].matmul);
    return to_vector(sequence.compute(next_ids, LogitsToKeep::last, view_of(inputs))[0]);
}

// The logits after the last token of the context, x_n: those of position n - 1.
Vector MtpDraft::append_context(const std::vector<Id>& context) {
    fill_cache(target, context);

    // Position t depends on x_0 to x_{t+1}. Keep those whose tokens are the same, but not the
    // last one, whose logits are wanted.
    const auto differs = std::ranges::mismatch(context, context_ids).in1;
    const std::size_t num_common = std::size_t(differs - context.begin());
    const std::size_t done = num_common == 0 ? 0 : std::min(num_common - 1, context.size() - 2);
    sequence.crop(done);
    context_ids.resize(std::min(num_common, done + 1));

    // Compute the other ones: after a verification step, those of the accepted tokens.
    const std::size_t count = context.size() - 1 - done;
    const Matrix& of_target = target.sequence.last_hidden_states;  // (P, C)
    Vector logits =                                                // (V)
        append(std::span(context).subspan(done + 1), view_of(of_target).rows(done, count));
    context_ids = context;
    return logits;
}

Proposal MtpDraft::propose(const std::vector<Id>& context, std::size_t max_tokens,
                           const SamplingConfig& config, Generator& generator) {
    Proposal proposal;
    if (max_tokens == 0 || context.size() < 2) return proposal;
    const std::size_t num_cached = context.size() - 1;
    std::vector<Id> ids = context;
    Vector logits = append_context(context);  // (V)
    while (true) {
        const Vector q = token_probabilities(logits, ids, config);  // (V)
        const Id id = sample_from(q, generator);
        proposal.ids.push_back(id);
        proposal.probabilities.push_back(q);
        ids.push_back(id);
        const std::size_t seq_len = sequence.state.seq_len;
        if (proposal.size() == max_tokens || seq_len == target.cached.num_positions) break;

        // The target has not computed this token: go on from the module's own hidden state.
        const Matrix hidden_state =  // (1, C)
            xt::view(sequence.last_hidden_states, xt::range(seq_len - 1, seq_len), xt::all());
        logits = append({&id, 1}, view_of(hidden_state));
    }

    // Forget the positions that were computed from the module's own hidden states.
    sequence.crop(num_cached);
    return proposal;
}

}  // namespace llm
