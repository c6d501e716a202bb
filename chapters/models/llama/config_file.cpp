#include "chapters/models/llama/config_file.hpp"

#include <algorithm>
#include <array>

#include "chapters/models/llama/unread_settings.hpp"

namespace llm::models {
namespace {

// The text models of files for text and pictures, which name them by other types or not at all.
const std::map<std::string, std::string> text_model_types = {
    {"gemma3", "gemma3_text"},
    {"llama4", "llama4_text"},
    {"llava", "llama"},
    {"llava_next", "llama"},
    {"mistral3", "mistral"},
    {"pixtral", "mistral"},
    {"qwen2_vl", "qwen2"},
    {"qwen2_vl_text", "qwen2"},
    {"qwen2_5_vl", "qwen2"},
    {"qwen2_5_vl_text", "qwen2"},
    {"qwen3_vl", "qwen3"},
    {"qwen3_vl_text", "qwen3"},
    {"qwen3_vl_moe", "qwen3_moe"},
    {"qwen3_vl_moe_text", "qwen3_moe"}};

constexpr std::array text_objects = {"text_config", "llm_config", "language_config"};
// The objects of other parts than the text model.
constexpr std::array other_objects = {"vision_config", "audio_config"};

// What the whole file says of the text model, too.
const std::set<std::string> settings_of_all = {
    "architectures",       "auto_map",     "quantization_config", "quantization",
    "compression_config",  "dtype",        "torch_dtype",         "transformers_version",
    "tie_word_embeddings", "bos_token_id", "eos_token_id",        "pad_token_id",
    "initializer_range"};

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

const Json* find_in(const JsonObject& object, const std::string& key) {
    for (const auto& [name, value] : object)
        if (name == key) return &value;
    return nullptr;
}

// Replaces the model_type by that of the text model, if the file has it.
void set_text_type(JsonObject& object, const std::string& otherwise) {
    const Json* named = find_in(object, "model_type");
    const std::string* type = named ? named->as<std::string>() : nullptr;
    const auto found = text_model_types.find(type ? *type : otherwise);
    if (found == text_model_types.end()) return;
    remove(object, "model_type");
    object.emplace_back("model_type", found->second);
}

}  // namespace

JsonFile open_config(const std::filesystem::path& file) {
    const JsonFile json(file);
    JsonObject all = json.members();
    remove_ignored(all);
    const Json* named = find_in(all, "model_type");
    const std::string* type = named ? named->as<std::string>() : nullptr;
    const std::string whole_type = type ? *type : "";
    for (const char* key : text_objects) {
        const Json* found = find_in(all, key);
        if (!found || !found->as<JsonObject>()) continue;
        JsonObject text = *found->as<JsonObject>();
        remove_ignored(text);
        // The head is that of the whole model, whatever class the text model had.
        if (find_in(text, "model_type") && find_in(all, "architectures"))
            remove(text, "architectures");
        for (const JsonMember& member : all)
            if ((settings_of_all.contains(member.key) ||
                 std::count(other_objects.begin(), other_objects.end(), member.key) > 0) &&
                !find_in(text, member.key))
                text.push_back(member);
        set_text_type(text, whole_type);
        const JsonFile result = JsonFile::made_of(file, std::move(text), key);
        result.remark("only the text model is read: " + std::string(key));
        return result;
    }
    set_text_type(all, "");
    return JsonFile::made_of(file, std::move(all), "");
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
    if (ends("ForSequenceClassification")) {
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
    if (!method.empty())
        json.reject("quantization_config",
                    "says that the weights are quantized (" + method +
                        "); supported: float32, float16 and bfloat16, mxfp4 of gpt-oss, and "
                        "GGUF files");
}

void name_as_causal_lm(const JsonFile& json, const std::string& embed_tokens,
                       const std::string& lm_head, SafeTensors& tensors) {
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
        if (name == head || name.ends_with("." + head)) return head;
        if (name.starts_with(stem)) return base + name.substr(stem.size());
        ++num_others;
        return "";
    });
    if (num_others > 0)
        note_once(json, std::to_string(num_others) + " tensors of other parts are not read");
}

}  // namespace llm::models
