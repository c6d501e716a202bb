// The tensors of a GGUF file.
#pragma once

#include <set>
#include <string>

#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/models/llama/gguf_config.hpp"

namespace llm::models {

// The names of the tensors in GGUF files of all architectures.
inline const TensorNames gguf_names = {"token_embd",
                                       "blk.",
                                       "output_norm",
                                       "output",
                                       {"attn_norm",
                                        "attn_q",
                                        "attn_k",
                                        "attn_v",
                                        "attn_output",
                                        "ffn_norm",
                                        {"ffn_gate", "ffn_up", "ffn_down"},
                                        "attn_q_norm",
                                        "attn_k_norm"},
                                       "position_embd"};

// Reads tensors of a GGUF file and keeps a list of the others.
class GgufTensors {
 public:
    explicit GgufTensors(const Gguf& file) : file_(file) {
        for (const auto& [name, tensor] : file.tensors()) unread_.insert(name);
        unread_.erase(gguf_rope_factors);  // read_config has read it
    }

    bool has(const std::string& name) const { return file_.has_tensor(name); }

    template <std::size_t N>
    xt::xtensor<Real, N> read(const std::string& name, const std::size_t (&shape)[N]) {
        unread_.erase(name);
        return file_.read(name, shape);
    }
    std::shared_ptr<const std::byte> read_bytes(const std::string& name, std::size_t out,
                                                std::size_t in) {
        unread_.erase(name);
        return file_.read_bytes(name, out, in);
    }

    [[noreturn]] void reject(const std::string& problem) const { file_.reject(problem); }

    // Leaves out the tensors whose names begin so.
    void ignore(const std::string& prefix) {
        std::erase_if(unread_, [&](const auto& name) { return name.starts_with(prefix); });
    }
    // Rejects tensors without which the model would compute something else.
    void reject_unread() const {
        if (!unread_.empty())
            file_.reject("the model has a tensor " + *unread_.begin() +
                         ", which is not supported");
    }

 private:
    const Gguf& file_;
    std::set<std::string> unread_;
};

}  // namespace llm::models
