#include "chapters/models/llama/config_file.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "chapters/models/llama/unread_settings.hpp"

namespace llm::models {
namespace {

// The text models of files for text and pictures, which name them by other types or not at all,
// with the defaults of their classes that are not those of the text model alone; 0: none.
struct TextModel {
    std::string type;
    double rope_theta = 0, rms_norm_eps = 0;
};
const std::map<std::string, TextModel> text_models = {
    {"gemma3", {"gemma3_text"}},
    {"llama4", {"llama4_text"}},
    {"llava", {"llama"}},
    {"llava_next", {"llama"}},
    {"mistral3", {"mistral"}},
    {"pixtral", {"mistral"}},
    {"qwen2_vl", {"qwen2", 1e6, 1e-5}},
    {"qwen2_vl_text", {"qwen2", 1e6, 1e-5}},
    {"qwen2_5_vl", {"qwen2", 1e6, 1e-5}},
    {"qwen2_5_vl_text", {"qwen2", 1e6, 1e-5}},
    {"qwen3_5", {"qwen3_5_text"}},
    {"qwen3_5_moe", {"qwen3_5_moe_text"}},
    {"qwen3_vl", {"qwen3", 5e5}},
    {"qwen3_vl_text", {"qwen3", 5e5}},
    {"qwen3_vl_moe", {"qwen3_moe", 5e5}},
    {"qwen3_vl_moe_text", {"qwen3_moe", 5e5}}};

// Adds the defaults that the members lack.
void add_defaults(const TextModel& model, JsonObject& members) {
    const Json object = members;
    const Json* scaling = object.find("rope_scaling");
    const Json* parameters = object.find("rope_parameters");  // which must have a theta
    const bool has_theta =
        object.find("rope_theta") || (scaling && scaling->find("rope_theta"));
    if (model.rope_theta > 0 && !has_theta && !(parameters && parameters->as<JsonObject>()))
        members.emplace_back("rope_theta", model.rope_theta);
    if (model.rms_norm_eps > 0 && !object.find("rms_norm_eps"))
        members.emplace_back("rms_norm_eps", model.rms_norm_eps);
}

// What the whole file says of the text model, too.
const std::set<std::string> settings_of_all = {
    "architectures",       "auto_map",      "quantization_config", "quantization",
    "compression_config",  "dtype",         "torch_dtype",         "transformers_version",
    "tie_word_embeddings", "bos_token_id",  "eos_token_id",        "pad_token_id",
    "initializer_range",   "vision_config", "audio_config"};

// Removes a member; its key has dots if it is inside others.
void remove(JsonObject& object, const std::string& key) {
    const std::size_t dot = key.find('.');
    for (JsonMember& member : object)
        if (auto* inner = std::get_if<JsonObject>(&member.value.value);
            inner && dot != key.npos && member.key == key.substr(0, dot))
            remove(*inner, key.substr(dot + 1));
    std::erase_if(object, [&](const JsonMember& member) { return member.key == key; });
}

// Removes the settings of --ignore.
void remove_ignored(JsonObject& object) {
    const std::string& keys = settings_policy().ignored;
    for (std::size_t begin = 0, end = 0; begin < keys.size(); begin = end + 1) {
        end = std::min(keys.find(',', begin), keys.size());
        remove(object, keys.substr(begin, end - begin));
    }
}

std::string model_type_in(const Json& object) {
    const Json* type = object.find("model_type");
    return type && type->as<std::string>() ? *type->as<std::string>() : "";
}

// The members of this object with the model_type of a text model, if it is another one.
JsonObject with_text_type(const Json& object, const std::string& otherwise) {
    JsonObject members = *object.as<JsonObject>();
    const std::string type = model_type_in(object);
    const auto found = text_models.find(type.empty() ? otherwise : type);
    if (found == text_models.end()) return members;
    add_defaults(found->second, members);
    remove(members, "model_type");
    members.emplace_back("model_type", found->second.type);
    return members;
}

// The settings of the text model, and those of the whole file that it lacks.
Json with_settings_of_all(Json text, const Json& all) {
    JsonObject& members = std::get<JsonObject>(text.value);
    remove_ignored(members);
    // The head is that of the whole model, whatever class the text model had.
    const bool has_type = !model_type_in(text).empty();
    if (has_type && all.find("architectures")) remove(members, "architectures");
    for (const JsonMember& member : *all.as<JsonObject>())
        if (settings_of_all.contains(member.key) && !text.find(member.key))
            members.push_back(member);
    return text;
}

}  // namespace

JsonFile open_config(const std::filesystem::path& file) {
    JsonObject members = JsonFile(file).members();
    remove_ignored(members);
    const Json all = members;
    for (const std::string key : {"text_config", "llm_config", "language_config"}) {
        const Json* text = all.find(key);
        if (!text || !text->as<JsonObject>()) continue;
        const JsonFile result = JsonFile::made_of(
            file, with_text_type(with_settings_of_all(*text, all), model_type_in(all)), key);
        result.remark("only the text model is read: " + key);
        return result;
    }
    return JsonFile::made_of(file, with_text_type(all, ""), "");
}

namespace {

// The number of labels of a classifier: 2 unless the file says.
std::uint64_t num_labels(const JsonFile& json) {
    if (json.has("num_labels")) return json.size("num_labels");
    if (!json.is_object("id2label")) return 2;
    return json.value("id2label").as<JsonObject>()->size();
}

}  // namespace

HeadOfClass read_head(const JsonFile& json) {
    HeadOfClass head;
    if (!json.is_array("architectures") || json.text_lists("architectures").empty())
        return head;
    const std::vector<std::string> first = json.text_lists("architectures").front();
    head.class_name = first.empty() ? "" : first.front();
    const auto ends = [&](const char* suffix) { return head.class_name.ends_with(suffix); };
    if (ends("ForSequenceClassification") || ends("ForImageClassification")) {
        head.num_outputs = num_labels(json);
    } else if (ends("ForTokenClassification")) {
        head.num_outputs = num_labels(json);
        head.has_bias = true;
    } else if (ends("ForQuestionAnswering")) {
        head.num_outputs = 2;  // where the answer begins and ends
        head.has_bias = true;
    } else if (!ends("Model") || ends("LMHeadModel")) {
        return head;
    }
    head.is_language_model = false;
    return head;
}

namespace {

const std::string activation_scheme = "quantization_config.activation_scheme";

}  // namespace

std::string quantization_method(const JsonFile& json) {
    for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
        if (!json.is_object(key) || json.value(key).as<JsonObject>()->empty()) continue;
        const std::string method = key + std::string(".quant_method");
        if (json.is_text(method)) return json.text(method);
        return std::string(key) == "quantization" ? "mlx" : "an unnamed method";
    }
    return "";
}

void reject_other_head(const JsonFile& json, bool tie_word_embeddings) {
    const HeadOfClass head = read_head(json);
    if (!head.is_language_model && (head.num_outputs > 0 || !tie_word_embeddings))
        json.reject("architectures", head.class_name +
                                         " has no language-model head (lm_head), so there are "
                                         "no logits of a next token");
}

void reject_quantized_weights(const JsonFile& json) {
    const std::string method = quantization_method(json);
    if (method.empty()) return;
    if (method != "fp8" || !json.is_object("quantization_config"))
        json.reject("quantization_config",
                    "says that the weights are quantized (" + method +
                        "); supported: float32, float16, bfloat16 and fp8, mxfp4 of gpt-oss, "
                        "and GGUF files");
    const std::string scheme = json.has(activation_scheme) ? json.text(activation_scheme) : "";
    if (!scheme.empty() && scheme != "dynamic" && scheme != "static")
        json.reject_value(activation_scheme, scheme, "dynamic and static");
}

namespace {

// The rows and columns of FP8 weights that share a scale; nullopt if all of a matrix do. The
// default is that of Hugging Face's FineGrainedFP8Config.
std::optional<std::array<std::size_t, 2>> read_weight_block_size(const JsonFile& json) {
    const std::string key = "quantization_config.weight_block_size";
    if (json.is_null(key)) return std::nullopt;
    if (!json.has(key)) return {{128, 128}};
    const std::vector<std::int64_t> size = json.ids(key);
    if (size.size() != 2 || size[0] == 0 || size[1] == 0)
        json.reject(key,
                    "must be two numbers above 0, or null, not " + json_text(json.value(key)));
    return {{std::size_t(size[0]), std::size_t(size[1])}};
}

// Leaves out the scales with which other software rounds activations to FP8, too.
void drop_activation_scales(const JsonFile& json, SafeTensors& tensors) {
    std::size_t num_scales = 0;
    tensors.rename([&](const std::string& name) {
        if (!name.ends_with("activation_scale")) return name;
        ++num_scales;
        return std::string();
    });
    if (num_scales == 0) return;
    note_once(json, "activation_scheme static: activations are not rounded to FP8, so " +
                        std::to_string(num_scales) + " scales of activations are not read");
}

}  // namespace

void name_as_causal_lm(const JsonFile& json, const std::string& embed_tokens,
                       const std::string& lm_head, SafeTensors& tensors) {
    tensors.set_weight_block_size(read_weight_block_size(json));
    if (json.has(activation_scheme) && json.text(activation_scheme) == "static")
        drop_activation_scales(json, tensors);
    const std::size_t dot = embed_tokens.rfind('.') + 1;
    const std::string base = embed_tokens.substr(0, dot);           // "model."
    const std::string leaf = embed_tokens.substr(dot) + ".weight";  // "embed_tokens.weight"
    std::string found = base + leaf;
    if (!tensors.has(found)) {
        found = "";  // the shortest name: other parts may have embeddings, too
        for (const std::string& name : tensors.names())
            if ((name == leaf || name.ends_with("." + leaf)) &&
                (found.empty() || name.size() < found.size()))
                found = name;
    } else if (!json.has("vision_config") && !json.has("audio_config")) {
        return;
    }
    if (found.empty()) return;
    const std::string stem = found.substr(0, found.size() - leaf.size());
    const std::string head = lm_head + ".weight";
    std::size_t num_others = 0;
    tensors.rename([&](const std::string& name) -> std::string {
        for (const std::string& tensor : {head, head + scale_suffix})
            if (name == tensor || name.ends_with("." + tensor)) return tensor;
        if (name.starts_with(stem)) return base + name.substr(stem.size());
        ++num_others;
        return "";
    });
    if (num_others > 0)
        note_once(json, std::to_string(num_others) + " tensors of other parts are not read");
}

}  // namespace llm::models
