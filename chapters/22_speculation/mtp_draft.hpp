// Chapter 22, file 5 of 5: a draft that predicts tokens from the target's hidden states.
#pragma once

#include <string>

#include "chapters/22_speculation/mtp_module.hpp"
#include "chapters/22_speculation/speculative_decoding.hpp"

namespace llm {

// Reads a module from a safetensors file. Throws FileError, which names the file and the tensor
// that is missing, does not fit the target, or was not read.
MtpModule load_mtp_module(const std::string& file, const Config& target);

// The module for fast inference. Embedding and head share the memory of the target's.
struct FastMtpModule {
    RMSNorm pre_fc_norm_embedding, pre_fc_norm_hidden;  // (C)
    FastLinear fc;                                      // (C, 2C)
    FastModel decoder;  // the layer, the module's norm, and the target's embedding and head
};
FastMtpModule make_fast_mtp_module(const MtpModule& module, const FastModel& target,
                                   DType dtype = DType::float32);

// The inputs of the layer: fc [norm_e(embed(x_{t+1})); norm_h(h_t)].
Matrix mtp_inputs(const FastMtpModule& module,    // -> (N, C)
                  std::span<const Id> next_ids,   // (N): x_{t+1}
                  ConstMatrixView hidden_states,  // (N, C): h_t
                  MatmulWorkspace& workspace);

// Proposes K tokens with one module. The first follows from the target's hidden states, which
// the last verification step has left; for each further one, the module's own last hidden state
// takes the place of the target's, which is not computed yet. Module and target must outlive
// it. Source: vLLM, vllm/v1/spec_decode/eagle.py, which does this for all modules of this kind.
struct MtpDraft final : Proposer {
    const FastMtpModule& module;
    TargetSequence& target;
    FastSequence sequence;        // of the module: position t has read h_t and x_{t+1}
    std::vector<Id> context_ids;  // x_0 to x_n, if the cache of the module has n positions

    MtpDraft(const FastMtpModule& fast_module, TargetSequence& target_sequence);
    std::size_t vocab_size() const override { return module.decoder.config.vocab_size; }
    // Proposes nothing for a context of one token, of which the target has no hidden state.
    Proposal propose(const std::vector<Id>& context, std::size_t max_tokens,
                     const SamplingConfig& config, Generator& generator) override;

 private:
    Vector append(std::span<const Id> next_ids,    // (N) -> (V)
                  ConstMatrixView hidden_states);  // (N, C)
    Vector append_context(const std::vector<Id>& context);
};

}  // namespace llm
