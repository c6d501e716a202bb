// GGUF files for llama.cpp: a model, or an adapter.
#pragma once

#include <string>
#include <vector>

#include "chapters/09_full_model/model_tensors.hpp"
#include "chapters/10_tokenizer/tokenizer.hpp"
#include "chapters/14_fine_tuning/lora.hpp"
#include "common/files/gguf.hpp"
#include "common/tensors/dtype.hpp"

namespace llm::models {

// A tensor that is stored in another dtype than the one asked for (stored_dtype).
struct TensorInOtherDType {
    std::string name;
    DType dtype;
};

// The tensors of a GGUF file, and the memory with their bytes. Matrices are stored in dtype,
// where their rows are divisible into its blocks; vectors stay in float32. Names are complete,
// but for the ".weight" and ".bias" of a linear layer. Throws ValueError for a tensor that
// cannot be stored, for example one with an element that is not finite.
class GgufTensorList {
 public:
    explicit GgufTensorList(DType dtype) : dtype_(dtype) {}

    const std::vector<NamedGgufTensor>& tensors() const { return tensors_; }
    const std::vector<TensorInOtherDType>& in_other_dtype() const { return in_other_dtype_; }

    void add_vector(const std::string& name, const Vector& values);
    void add_matrix(const std::string& name, const Matrix& weights);
    void add_linear(const std::string& name, const Linear& linear);
    // Rows of any tensor, for example the matrices of all experts: (E, out, in).
    void add_rows(const std::string& name, const std::vector<std::size_t>& shape,
                  std::span<const Real> values);
    void add_float32(const std::string& name, const std::vector<std::size_t>& shape,
                     std::span<const Real> values) {
        add(name, DType::float32, shape, values);
    }

 private:
    DType dtype_;
    std::vector<std::vector<std::byte>> memory_;
    std::vector<NamedGgufTensor> tensors_;
    std::vector<TensorInOtherDType> in_other_dtype_;

    void add(const std::string& name, DType dtype, const std::vector<std::size_t>& shape,
             std::span<const Real> values);
};

// Reorders the rows of each head of q_proj or k_proj (and its bias): the inverse of
// interleaved_to_split_half (chapter 04). Source: llama.cpp, convert_hf_to_gguf.py, permute.
Linear split_half_to_interleaved(const Linear& projection, std::size_t num_heads);

// A visitor of chapter 09's visit_model that appends the tensors to a list. llama.cpp's norms
// multiply by their weights, as here.
struct GgufTensorWriter {
    GgufTensorList& list;

    void matrix(const std::string& name, const Matrix& weight, std::size_t, std::size_t) {
        list.add_matrix(name + ".weight", weight);
    }
    void linear(const std::string& name, const Linear& linear, std::size_t, std::size_t) {
        list.add_linear(name, linear);
    }
    void interleaved(const std::string& name, const Linear& projection, std::size_t,
                     std::size_t, std::size_t num_heads) {
        list.add_linear(name, split_half_to_interleaved(projection, num_heads));
    }
    void norm(const std::string& name, const Vector& weight, std::size_t) {
        list.add_vector(name + ".weight", weight);
    }
    void bias(const std::string& name, const Vector& bias, std::size_t) {
        list.add_vector(name + ".bias", bias);
    }
};

// Throws FileError if the file exists.
void reject_existing(const std::string& file);

// Writes a model and its tokenizer as a GGUF file of architecture qwen3 if it has a QK norm,
// qwen2 if it has the biases of Qwen2, and otherwise llama. Matrices are stored in dtype; norms
// and biases stay in float32. load_model and load_tokenizer read the same model and tokenizer
// from it. Returns the tensors in another dtype. Throws FileError if the file exists or cannot
// be written, and ValueError if llama.cpp has no such model or tokenizer. Source: llama.cpp,
// convert_hf_to_gguf.py.
std::vector<TensorInOtherDType> export_gguf(const Model& model, const Tokenizer& tokenizer,
                                            const std::string& file, DType dtype);

// The metadata of all architectures: sizes, theta and the eps of the norms, under this key.
inline const std::string gguf_rms_norm_eps = "attention.layer_norm_rms_epsilon";
GgufMetadata size_metadata(const std::string& architecture, const Config& config,
                           const std::string& eps_key = gguf_rms_norm_eps);

// Writes a LoRA adapter of this model as a GGUF file, in float32, which llama.cpp applies to
// the model's GGUF file (llama-server --lora FILE). The file has no field for rsLoRA:
// lora_alpha is multiplied by √r, so that α/r is the same scaling. Throws FileError if the file
// exists or cannot be written, and ValueError if the adapter does not fit the model. Source:
// llama.cpp, convert_lora_to_gguf.py.
void export_gguf_adapter(const LoraAdapter& adapter, const Model& model,
                         const std::string& file);

}  // namespace llm::models
