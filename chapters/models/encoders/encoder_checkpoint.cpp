#include "chapters/models/encoders/encoder_checkpoint.hpp"

#include "chapters/models/encoders/encoder_tensors.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tensor_list.hpp"

namespace llm::models {
namespace {

struct EncoderWriter : TensorList {
    void norm(const std::string& name, const Vector& weight, std::size_t) {
        vector(name + ".weight", weight, 0);
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t in, std::size_t num_groups) {
        linear(name, reordered.emplace_back(fuse_groups(parts, num_groups)), 0, in);
    }
};

// Adds the sizes of tensors, which may be empty.
struct EncoderCounter {
    const EncoderNames& names;
    EncoderParameters count{};

    std::uint64_t& part(const std::string& name) {
        if (name.starts_with(names.prefix + "embeddings.")) return count.embeddings;
        if (!name.starts_with(names.layer)) return count.heads;
        return name.find(".att") != name.npos ? count.attention : count.mlp;
    }
    void matrix(const std::string& name, const Matrix&, std::uint64_t out, std::uint64_t in) {
        part(name) += out * in;
    }
    void linear(const std::string& name, const Linear& linear, std::uint64_t out,
                std::uint64_t in) {
        part(name) += out * (in + (linear.bias ? 1 : 0));
    }
    void norm(const std::string& name, const Vector&, std::size_t size) {
        const bool is_of_layers = name.starts_with(names.layer) || name == names.final_norm;
        (is_of_layers ? count.norms : part(name)) += size;
    }
    void bias(const std::string& name, const Vector& values, std::size_t size) {
        norm(name, values, size);
    }
    template <std::size_t N>
    void grouped(const std::string& name, const std::array<GroupRows<const Linear>, N>& parts,
                 std::size_t in, std::size_t) {
        for (const auto& [layer, first, rows] : parts) linear(name, *layer, rows, in);
    }
};

// Gives the tensors the names of the newest files of a model with a head: files of a model
// without one lack the prefix, and the first files of BERT have LayerNorm.gamma and .beta.
void name_as_published(const EncoderNames& names, SafeTensors& tensors) {
    const std::string embeddings = names.word_embeddings + ".weight";
    const bool lacks_prefix = !tensors.has(embeddings);
    tensors.rename([&](std::string name) {
        for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                       {"LayerNorm.beta", "LayerNorm.bias"}})
            if (name.ends_with(old))
                name.replace(name.size() - std::string(old).size(), name.npos, now);
        for (const char* part :
             {"embeddings.", "encoder.", "layers.", "final_norm.", "pooler."})
            if (lacks_prefix && name.starts_with(part)) return names.prefix + name;
        return name;
    });
}

// BERT's decoder has its bias under two names in one file, or under either.
void name_decoder_bias(const JsonFile& json, const EncoderFamilyConfig& config,
                       SafeTensors& tensors) {
    const EncoderNames& names = config.family->names;
    const std::string bias = names.decoder_bias + ".bias", other = names.decoder + ".bias";
    if (bias == other || !tensors.has(other)) return;
    const std::size_t V = config.vocab_size;
    if (tensors.has(bias) && tensors.read(bias, {V}) != tensors.read(other, {V}))
        json.reject("the weights have two biases of the decoder, " + bias + " and " + other +
                    ", which differ");
    tensors.rename([&](const std::string& name) {
        return name == other && !tensors.has(bias) ? bias : name == other ? "" : name;
    });
}

// Adds the heads that are in the file, and what they read.
void add_heads(const SafeTensors& tensors, EncoderFamilyConfig& config) {
    const EncoderNames& names = config.family->names;
    const auto has = [&](const std::string& name) { return tensors.has(name + ".weight"); };
    EncoderHeads& heads = config.heads;
    heads.next_sentence = heads.next_sentence || has(names.seq_relationship);
    heads.pooler = heads.pooler || has(names.pooler) || heads.next_sentence;
    heads.masked_lm = heads.masked_lm || (has(names.head_dense) && !config.has_head_features());
}

void reject_quantized_encoder(const JsonFile& json) {
    if (const std::string method = quantization_method(json); !method.empty())
        json.reject("quantization_config", "says that the weights are quantized (" + method +
                                               "); supported for encoders: float32, float16 "
                                               "and bfloat16");
}

}  // namespace

AnyEncoder load_encoder(const std::string& folder) {
    const JsonFile json = open_config(folder + "/config.json");
    EncoderFamilyConfig config = read_encoder_config(json);
    reject_quantized_encoder(json);
    const EncoderNames& names = config.family->names;
    SafeTensors tensors(folder);
    name_as_published(names, tensors);
    name_decoder_bias(json, config, tensors);
    add_heads(tensors, config);
    // Memory for the layers is allocated only after this.
    if (config.num_hidden_layers > 0)
        tensors.read(names.layer + std::to_string(config.num_hidden_layers - 1) + "." +
                         names.layers.ffn_norm + ".weight",
                     {config.hidden_size});
    AnyEncoder encoder = make_empty_encoder(config);
    EncoderReader<const SafeTensors> reader{{tensors}};
    std::visit(
        [&](auto& model) {
            visit_encoder(model, names, reader);
            visit_heads(model, names, reader);
            reject_unread_tensors(tensors, json, names.decoder,
                                  model.encoder.embeddings.word_embeddings,
                                  {"embeddings.position_ids", "embeddings.token_type_ids"});
        },
        encoder);
    return encoder;
}

void export_model(const AnyEncoder& encoder, const std::string& folder, DType dtype) {
    EncoderWriter writer;
    std::visit(
        [&](const auto& model) {
            visit_encoder(model, model.config.family->names, writer);
            visit_heads(model, model.config.family->names, writer);
        },
        encoder);
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", writer.tensors, dtype);
    write_json(folder + "/config.json", config_json(config_of(encoder), dtype));
}

EncoderParameters count_parameters(const AnyEncoder& encoder) {
    EncoderCounter counter{config_of(encoder).family->names};
    std::visit(
        [&](const auto& model) {
            visit_encoder(model, model.config.family->names, counter);
            visit_heads(model, model.config.family->names, counter);
        },
        encoder);
    return counter.count;
}

}  // namespace llm::models
