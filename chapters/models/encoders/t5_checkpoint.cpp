#include "chapters/models/encoders/t5_tensors.hpp"
#include "chapters/models/llama/config_file.hpp"
#include "chapters/models/llama/load_model.hpp"
#include "chapters/models/tensor_list.hpp"

namespace llm::models {
namespace {

struct T5Writer : TensorList {
    void norm(const std::string& name, const Vector& weight, std::size_t) {
        vector(name + ".weight", weight, 0);
    }
};

// Adds the sizes of tensors, which may be empty.
struct T5Counter {
    EncoderParameters count{};

    void matrix(const std::string& name, const Matrix&, std::uint64_t out, std::uint64_t in) {
        const auto has = [&](const char* part) { return name.find(part) != name.npos; };
        (has("Attention")         ? count.attention
         : has("DenseReluDense.") ? count.mlp
         : has("lm_head")         ? count.heads
                                  : count.embeddings) += out * in;
    }
    void linear(const std::string& name, const Linear& linear, std::uint64_t out,
                std::uint64_t in) {
        matrix(name, linear.weight, out, in);
    }
    void norm(const std::string&, const Vector&, std::size_t size) { count.norms += size; }
    void bias(const std::string&, const Vector&, std::size_t) {}
};

T5StackNames stack_names(const std::string& stack, const std::string& ffn) {
    const auto attention = [](const std::string& layer, const std::string& name) {
        const std::string part = layer + name + ".";
        return T5AttentionNames{layer + "layer_norm", part + "q", part + "k", part + "v",
                                part + "o"};
    };
    const std::string mlp = ffn + "DenseReluDense.";
    return {stack + ".block.",
            attention("layer.0.", "SelfAttention"),
            attention("layer.1.", "EncDecAttention"),
            "layer.0.SelfAttention.relative_attention_bias",
            ffn + "layer_norm",
            mlp + "wi",
            {mlp + "wi_0", mlp + "wi_1", mlp + "wo"},
            stack + ".final_layer_norm"};
}

// Files have the embeddings under up to three names, which are one matrix; those of an encoder
// alone may lack the first. A name that is read under another one is left out.
void name_embeddings(const JsonFile& json, const T5FamilyConfig& config, SafeTensors& tensors) {
    const std::string shared = t5_names().shared + ".weight";
    const std::size_t V = config.sizes.vocab_size, C = config.sizes.hidden_size;
    for (const std::string other :
         {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
        if (!tensors.has(other)) continue;
        const bool is_copy = tensors.has(shared);
        if (is_copy && tensors.read(shared, {V, C}) != tensors.read(other, {V, C}))
            json.reject("the weights have two embeddings, " + shared + " and " + other +
                        ", which differ");
        tensors.rename([&](const std::string& name) {
            return name != other ? name : is_copy ? std::string() : shared;
        });
    }
}

}  // namespace

const T5Names& t5_names() {
    static const T5Names names = {"shared", "lm_head", stack_names("encoder", "layer.1."),
                                  stack_names("decoder", "layer.2.")};
    return names;
}

T5Model make_empty_t5(const T5FamilyConfig& config) {
    const std::size_t H = config.sizes.num_attention_heads;
    const Linear linear = empty_linear(false);
    const RMSNorm norm{{}, config.sizes.rms_norm_eps};
    const T5Attention attention{AttentionLayer{H, H, {linear, linear, linear, linear}}};
    T5Mlp mlp{Mlp{linear, linear, config.activation}};
    if (config.is_gated_act) mlp.mlp = GatedMlp{linear, linear, linear, config.activation};

    T5Model model;
    model.encoder_norm = model.decoder_norm = norm;
    model.encoder_bias.max_distance = model.decoder_bias.max_distance =
        config.relative_attention_max_distance;
    model.decoder_bias.bidirectional = false;
    model.encoder_layers.assign(config.sizes.num_hidden_layers,
                                T5EncoderBlock{attention, mlp, norm, norm});
    if (config.has_decoder)
        model.decoder_layers.assign(
            config.num_decoder_layers,
            T5DecoderBlock{attention, attention, mlp, norm, norm, norm});
    if (config.has_own_head()) model.lm_head = Matrix{};
    model.scale_decoder_outputs = config.scale_decoder_outputs;
    return model;
}

T5FamilyModel load_t5(const std::string& folder) {
    const JsonFile json = open_config(folder + "/config.json");
    T5FamilyConfig config = read_t5_config(json);
    reject_quantized_encoder(json);
    const T5Names& names = t5_names();
    SafeTensors tensors(folder);
    name_embeddings(json, config, tensors);
    // transformers 5 calls each head tied, and keeps one that is not.
    if (json.has("scale_decoder_outputs") && tensors.has(names.lm_head + ".weight"))
        config.sizes.tie_word_embeddings = false;
    // Memory for the layers is allocated only after this.
    const auto check_last_layer = [&](const T5StackNames& stack, std::size_t num_layers) {
        tensors.read(
            stack.layer + std::to_string(num_layers - 1) + "." + stack.ffn_norm + ".weight",
            {config.sizes.hidden_size});
    };
    check_last_layer(names.encoder, config.sizes.num_hidden_layers);
    if (config.has_decoder) check_last_layer(names.decoder, config.num_decoder_layers);
    T5FamilyModel t5{config, make_empty_t5(config)};
    TensorReader<const SafeTensors> reader{tensors};
    visit_t5(t5.model, config, names, reader);

    // A bias of cross-attention in the first files, which nothing reads; and what the class
    // leaves out.
    std::vector<std::string> unused = {"EncDecAttention.relative_attention_bias.weight"};
    if (!config.has_decoder) unused.push_back("decoder.");
    if (!config.has_lm_head) unused.push_back(names.lm_head + ".weight");
    reject_unread_tensors(tensors, json, names.lm_head, t5.model.shared, unused);
    return t5;
}

void export_model(const T5FamilyModel& t5, const std::string& folder, DType dtype) {
    T5Writer writer;
    visit_t5(t5.model, t5.config, t5_names(), writer);
    make_folder(folder);
    write_safetensors(folder + "/model.safetensors", writer.tensors, dtype);
    write_json(folder + "/config.json", config_json(t5.config, dtype));
}

EncoderParameters count_parameters(const T5FamilyModel& t5) {
    T5Counter counter;
    visit_t5(t5.model, t5.config, t5_names(), counter);
    return counter.count;
}

}  // namespace llm::models
