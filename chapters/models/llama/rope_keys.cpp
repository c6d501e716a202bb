#include "chapters/models/llama/rope_keys.hpp"

#include <array>

#include "chapters/models/llama/unread_settings.hpp"
#include "common/output/show.hpp"

namespace llm::models {

std::string rope_object(const JsonFile& json, bool may_differ_by_layer_type) {
    const std::string parameters = "rope_parameters", scaling = "rope_scaling";
    if (json.has(parameters) && json.is_object(scaling))  // written twice
        for (const auto& [key, value] : *json.value(scaling).as<JsonObject>()) {
            const Json* same = json.value(parameters).find(key);
            if (!same || !(*same == value))
                json.reject("rope_parameters and rope_scaling contradict each other");
        }
    const std::string inside = json.has(parameters) ? parameters : scaling;
    if (json.has(inside) && !json.is_object(inside)) json.reject(inside + " must be an object");
    const std::string full = inside + ".full_attention";
    const bool differs = json.has(full) || json.has(inside + ".sliding_attention");
    if (differs && !may_differ_by_layer_type)
        json.reject(full + " is not supported; supported: one RoPE for all layers");
    return differs ? full : inside;
}

Real read_rope_theta(const JsonFile& json, const std::string& inside, double otherwise) {
    const std::string outer = "rope_theta", inner = inside + ".rope_theta";
    if (json.has(outer) && json.has(inner) && json.number(outer) != json.number(inner))
        json.reject("rope_theta " + brief(json.number(outer)) + " and " + inner + " " +
                    brief(json.number(inner)) + " contradict each other");
    // Files of transformers 5 always have it: without it, they are damaged.
    if (inside.starts_with("rope_parameters") && !json.has(outer) && !json.has(inner))
        json.reject(inner, "is missing");
    double theta = otherwise;
    if (json.has(outer)) theta = json.number(outer);
    if (json.has(inner)) theta = json.number(inner);
    if (!(theta > 0)) json.reject("rope_theta must be above 0");
    return static_cast<Real>(theta);
}

std::string read_rope_type(const JsonFile& json, const std::string& inside) {
    if (!json.has(inside) || json.value(inside) == Json(JsonObject{})) return "default";
    std::vector<std::string> types;
    for (const char* key : {".rope_type", ".type"}) {
        if (!json.has(inside + key)) continue;
        types.push_back(json.text(inside + key));
        // Three position ids for a token of a picture, which are equal for one of a text.
        if (types.back() == "mrope") types.back() = "default";
    }
    for (const char* of_pictures : {".mrope_section", ".mrope_interleaved"})
        json.ignore(inside + of_pictures);
    if (types.size() == 2 && types[0] != types[1])
        json.reject(inside + ".rope_type " + types[0] + " and " + inside + ".type " + types[1] +
                    " contradict each other");
    if (!types.empty()) return types[0];
    if (inside == "rope_scaling" || json.has(inside + ".factor"))
        json.reject(inside + " has no rope_type");
    return "default";
}

namespace {

// Reads Llama 3's scaling, a nested object.
Llama3Scaling read_llama3_scaling(const JsonFile& json, const std::string& inside) {
    const auto number = [&](const std::string& name) {
        return static_cast<Real>(json.number(inside + "." + name));
    };
    const Llama3Scaling scaling{number("factor"), number("low_freq_factor"),
                                number("high_freq_factor"),
                                number("original_max_position_embeddings")};
    if (!(scaling.factor >= 1 && scaling.low_freq_factor > 0 &&
          scaling.high_freq_factor >= scaling.low_freq_factor &&
          scaling.original_max_position_embeddings > 0))
        json.reject(inside + " needs a factor of at least 1, 0 < low_freq_factor <= " +
                    "high_freq_factor and original_max_position_embeddings above 0");
    return scaling;
}

}  // namespace

void add_llama3_scaling(const Llama3Scaling& scaling, JsonMembers& json) {
    json.insert(json.end(),
                {{"rope_scaling.rope_type", std::string("llama3")},
                 {"rope_scaling.factor", double(scaling.factor)},
                 {"rope_scaling.low_freq_factor", double(scaling.low_freq_factor)},
                 {"rope_scaling.high_freq_factor", double(scaling.high_freq_factor)},
                 {"rope_scaling.original_max_position_embeddings",
                  static_cast<std::size_t>(scaling.original_max_position_embeddings)}});
}

bool read_simple_scaling(const JsonFile& json, const std::string& inside, Config& config) {
    const std::string type = read_rope_type(json, inside);
    if (type == "llama3") {
        config.rope_scaling = read_llama3_scaling(json, inside);
    } else if (type == "linear") {
        const Real factor = Real(json.positive_or(inside + ".factor", 0));
        config.rope_scaling = FrequencyFactors{Vector(std::array{config.head_dim / 2}, factor)};
    } else if (type == "dynamic") {
        json.number(inside + ".factor");
        json.remark(inside +
                    ": dynamic scaling has no effect on texts of at most "
                    "max_position_embeddings tokens, and longer ones are not read");
    }
    for (const char* unused : {".original_max_position_embeddings", ".finetuned"})
        json.ignore(inside + unused);
    return type == "default" || type == "llama3" || type == "linear" || type == "dynamic";
}

}  // namespace llm::models
