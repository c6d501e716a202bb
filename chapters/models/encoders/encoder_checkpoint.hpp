// Loading published weights of encoders, exporting and counting them.
#pragma once

#include "chapters/models/encoders/encoder_model.hpp"

namespace llm::models {

// Loads an encoder from a folder with config.json and model.safetensors (or several files and
// an index). It has the heads of its class, and those others whose tensors are there: the files
// of BertForMaskedLM often have a pooler. Throws FileError, which names the file and the
// tensor, also if the weights have a tensor that the model does not.
AnyEncoder load_encoder(const std::string& folder);

// Throws FileError if this config.json says that the weights are quantized.
void reject_quantized_encoder(const JsonFile& json);

// Writes config.json and model.safetensors in Hugging Face's format, in float32 or bfloat16.
// Throws FileError.
void export_model(const AnyEncoder& encoder, const std::string& folder,
                  DType dtype = DType::float32);

// The parameters by part. The norms of embeddings and heads count with these.
struct EncoderParameters {
    std::uint64_t embeddings = 0, attention = 0, mlp = 0, norms = 0, heads = 0;

    std::uint64_t total() const { return embeddings + attention + mlp + norms + heads; }
};
EncoderParameters count_parameters(const AnyEncoder& encoder);

}  // namespace llm::models
