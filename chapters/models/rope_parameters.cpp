// RoPE in config.json: Hugging Face, modeling_rope_utils.py.
#include <cmath>

#include "chapters/models/family_keys.hpp"
#include "chapters/models/llama/rope_keys.hpp"
#include "common/output/show.hpp"

namespace llm::models {
namespace {

// A divisor, above 0, for each pair of rotated features.
Vector read_factors(const JsonFile& json, const std::string& key, std::size_t num_pairs) {
    const std::vector<double> numbers = json.numbers(key);
    if (numbers.size() != num_pairs)
        json.reject(key, "must have " + to_text(num_pairs) +
                             " numbers, one per frequency, not " + to_text(numbers.size()));
    Vector factors(std::array{num_pairs});
    for (std::size_t i = 0; i < num_pairs; ++i) {
        factors(i) = Real(numbers[i]);
        if (!(factors(i) > 0)) json.reject(key, "must be above 0, not " + brief(numbers[i]));
    }
    return factors;
}

// The original context of LongRoPE is a key of its own; transformers repeats it in the object.
LongRopeScaling read_longrope(const JsonFile& json, const std::string& inside,
                              std::size_t context, std::size_t num_pairs) {
    const std::string original_key = "original_max_position_embeddings";
    const std::size_t original =
        json.size_or(original_key, json.size_or(inside + "." + original_key, 4096));
    json.size_or(inside + "." + original_key, original);
    const std::string factor = inside + ".factor";
    if (json.has(factor) && json.number(factor) != double(context) / double(original))
        json.reject(factor, "contradicts max_position_embeddings and " + original_key);
    return {read_factors(json, inside + ".short_factor", num_pairs),
            read_factors(json, inside + ".long_factor", num_pairs), original,
            Real(json.positive_or(inside + ".attention_factor",
                                  double(longrope_attention_factor(context, original))))};
}

// The factor of cosine and sine: explicit, or the quotient of two mscales; none: YaRN's.
std::optional<Real> read_attention_factor(const JsonFile& json, const std::string& inside,
                                          Real factor) {
    const std::string explicit_key = inside + ".attention_factor", mscale = inside + ".mscale",
                      all_dim = inside + ".mscale_all_dim";
    if (json.has(explicit_key)) return Real(json.positive_or(explicit_key, 1));
    // 0 is as if the key were missing: Devstral 2.
    const auto number = [&](const std::string& key) {
        return json.has(key) && json.number(key) != 0 ? Real(json.positive_or(key, 1)) : 0;
    };
    const Real above = number(mscale), below = number(all_dim);
    if (above == 0 || below == 0) return std::nullopt;
    return yarn_mscale(factor, above) / yarn_mscale(factor, below);
}

// Throws FileError if the object has parameters of layers that are not known.
void reject_other_layer_types(const JsonFile& json, const std::string& inside) {
    if (!json.is_object(inside)) return;
    for (const auto& [type, value] : *json.value(inside).as<JsonObject>())
        if (value.as<JsonObject>() && type != "full_attention" && type != "sliding_attention")
            json.reject_value(inside, type, "full_attention and sliding_attention");
}

std::size_t read_rotary_dim(const JsonFile& json, const std::string& inside,
                            const RopeParameters& otherwise) {
    const std::string outer = "partial_rotary_factor", inner = inside + "." + outer;
    if (!json.has(inner) && !json.has(outer)) return otherwise.rotary_dim;
    const double factor = json.positive_or(json.has(inner) ? inner : outer, 1);
    if (json.has(inner) && json.positive_or(outer, factor) != factor)
        json.reject(outer, "contradicts " + inner);
    // A factor that was divided by head_dim may be a little too small. One above 1 may be too
    // large for an integer.
    const std::size_t D = otherwise.head_dim,
                      rotated = factor > 1 ? 0 : std::size_t(double(D) * factor + 1e-6);
    if (rotated < 2 || rotated % 2 != 0)
        json.reject_value(outer, brief(factor),
                          "an even number of the " + to_text(D) + " features of a head");
    return rotated;
}

}  // namespace

YarnScaling read_yarn(const JsonFile& json, const std::string& inside, double default_factor) {
    const auto number = [&](const std::string& key, double otherwise) {
        return Real(json.positive_or(inside + "." + key, otherwise));
    };
    YarnScaling yarn;
    yarn.factor = number("factor", default_factor);
    yarn.original_max_position_embeddings = number("original_max_position_embeddings", 4096);
    yarn.beta_fast = number("beta_fast", 32);
    yarn.beta_slow = number("beta_slow", 1);
    yarn.truncate = json.boolean_or(inside + ".truncate", true);
    yarn.attention_factor = read_attention_factor(json, inside, yarn.factor);
    return yarn;
}

RopeParameters read_rope(const JsonFile& json, const std::string& inside,
                         const FamilyConfig& config, const RopeParameters& otherwise) {
    RopeParameters rope = otherwise;
    reject_other_layer_types(json, inside);
    // A theta outside of the object is that of the layers that see all.
    const std::string theta = inside + ".rope_theta";
    rope.rope_theta = inside.ends_with(".sliding_attention") && json.has(theta)
                          ? Real(json.positive_or(theta, 1))
                          : read_rope_theta(json, inside, double(otherwise.rope_theta));
    rope.rotary_dim = read_rotary_dim(json, inside, otherwise);
    const std::string type = read_rope_type(json, inside);
    if (type == "longrope" || type == "su") {  // su: its name in the first files
        rope.scaling =
            read_longrope(json, inside, config.max_position_embeddings, rope.rotary_dim / 2);
        return rope;
    }
    if (type == "yarn") {
        json.number(inside + ".factor");
        YarnScaling yarn = read_yarn(json, inside, 1);
        if (!json.has(inside + ".original_max_position_embeddings"))
            yarn.original_max_position_embeddings = Real(config.max_position_embeddings);
        rope.scaling = yarn;
        return rope;
    }
    Config plain;
    plain.head_dim = rope.rotary_dim;
    if (!read_simple_scaling(json, inside, plain))
        json.reject_value(inside + ".rope_type", type,
                          "default, linear, dynamic, llama3, yarn and longrope");
    if (plain.rope_scaling)
        std::visit([&](const auto& scaling) { rope.scaling = scaling; }, *plain.rope_scaling);
    return rope;
}

void read_rope_by_layer_type(const JsonFile& json, FamilyConfig& config) {
    const std::string parameters =
        json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const std::string full = parameters + ".full_attention",
                      windows = parameters + ".sliding_attention";
    if (!json.is_object(parameters)) return;
    reject_other_layer_types(json, parameters);
    if (!json.has(full) && !json.has(windows)) return;
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer))
            *rope = read_rope(json, window_of(layer) ? windows : full, config, *rope);
}

void add_rope_scaling(const RopeParameters& rope, JsonMembers& members) {
    const auto add = [&](const std::string& key, const auto& value) {
        members.push_back({"rope_scaling." + key, value});
    };
    if (rope.rotary_dim != rope.head_dim)
        members.push_back(
            {"partial_rotary_factor", double(rope.rotary_dim) / double(rope.head_dim)});
    if (const auto* divisors = std::get_if<FrequencyFactors>(&rope.scaling)) {
        const Vector& factors = divisors->factors;
        for (const Real factor : factors)
            require(factor == factors(0),
                    "export: no supported rope_scaling has a factor for each frequency");
        add("rope_type", std::string("linear"));
        add("factor", double(factors(0)));
    }
    if (const auto* llama3 = std::get_if<Llama3Scaling>(&rope.scaling))
        add_llama3_scaling(*llama3, members);
    if (const auto* yarn = std::get_if<YarnScaling>(&rope.scaling)) {
        add("rope_type", std::string("yarn"));
        add("factor", double(yarn->factor));
        add("original_max_position_embeddings", double(yarn->original_max_position_embeddings));
        add("beta_fast", double(yarn->beta_fast));
        add("beta_slow", double(yarn->beta_slow));
        add("truncate", yarn->truncate);
        if (yarn->attention_factor) add("attention_factor", double(*yarn->attention_factor));
    }
    if (const auto* longrope = std::get_if<LongRopeScaling>(&rope.scaling)) {
        const auto numbers_of = [](const Vector& values) {
            return std::vector<double>(values.begin(), values.end());
        };
        members.push_back(
            {"original_max_position_embeddings", longrope->original_max_position_embeddings});
        add("rope_type", std::string("longrope"));
        add("short_factor", numbers_of(longrope->short_factor));
        add("long_factor", numbers_of(longrope->long_factor));
        add("attention_factor", double(longrope->attention_factor));
    }
}

const LongRopeScaling* longrope_of(const FamilyConfig& config) {
    const RopeParameters* rope = main_rope(config);
    return rope ? std::get_if<LongRopeScaling>(&rope->scaling) : nullptr;
}

void set_rotary_dim(FamilyConfig& config, std::size_t rotary_dim) {
    for (LayerConfig& layer : config.layers)
        if (RopeParameters* rope = rope_of(layer)) rope->rotary_dim = rotary_dim;
}

}  // namespace llm::models
