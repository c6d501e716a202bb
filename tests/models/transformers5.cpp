// Files as transformers 5 writes them. Sources: Hugging Face's MIGRATION_GUIDE_V5.md and
// modeling_rope_utils.py.
#include <algorithm>

#include "chapters/models/llama/config_file.hpp"
#include "tests/support/model_folders.hpp"

using namespace llm;
using namespace llm::models;

namespace {

// Removes a member, and returns it, if there is one.
std::optional<Json> take(JsonObject& members, const std::string& key) {
    const Json* found = nullptr;
    for (const JsonMember& member : members)
        if (member.key == key) found = &member.value;
    if (!found) return std::nullopt;
    const Json value = *found;
    std::erase_if(members, [&](const JsonMember& member) { return member.key == key; });
    return value;
}

enum class RopeType { written, left_out, written_twice };

// The settings of RoPE that transformers 4 wrote at the top level or in rope_scaling, as the
// members of rope_parameters. The type is left out only if it is the default.
JsonObject take_rope_parameters(JsonObject& members, RopeType form) {
    const std::optional<Json> scaling = take(members, "rope_scaling");
    JsonObject rope =
        scaling && scaling->as<JsonObject>() ? *scaling->as<JsonObject>() : JsonObject{};
    const std::optional<Json> old_name = take(rope, "type"), new_name = take(rope, "rope_type");
    const bool is_default = !old_name && !new_name;
    const Json type = new_name ? *new_name : old_name ? *old_name : Json("default");
    if (form != RopeType::left_out || !is_default) rope.emplace_back("rope_type", type);
    if (form == RopeType::written_twice) rope.emplace_back("type", type);
    for (const char* key : {"rope_theta", "partial_rotary_factor"})
        if (const std::optional<Json> value = take(members, key))
            rope.emplace_back(key, *value);
    return rope;
}

// Rewrites a config.json. With a theta of its own for windows, rope_parameters has an object
// for each type of layers. Returns the key of the theta; none of a model without RoPE.
std::string rewrite_config(const std::string& folder, RopeType form, bool with_theta = true) {
    JsonObject members = JsonFile(folder + "/config.json").members();
    const bool has_rope = Json(members).find("rope_theta");
    if (has_rope) {
        JsonObject rope = take_rope_parameters(members, form);
        if (!with_theta) take(rope, "rope_theta");
        if (const std::optional<Json> local = take(members, "rope_local_base_freq")) {
            const JsonObject sliding = {{"rope_theta", *local}, {"rope_type", "default"}};
            rope = {{"full_attention", rope}, {"sliding_attention", sliding}};
        }
        members.emplace_back("rope_parameters", rope);
    }
    // theta: a second spelling in files of LFM2.
    for (const char* key : {"torch_dtype", "dtype", "transformers_version", "theta"})
        take(members, key);
    for (const JsonMember& member :
         JsonObject{{"dtype", "bfloat16"}, {"transformers_version", "5.2.0"}})
        members.push_back(member);
    overwrite(folder + "/config.json", json_text(members));
    if (!has_rope) return "";
    const bool nested = Json(members).find("rope_parameters")->find("full_attention");
    return nested ? "rope_parameters.full_attention.rope_theta" : "rope_parameters.rope_theta";
}

// The fixtures whose config.json is still one of transformers 4.
std::vector<std::string> models_of_transformers_4() {
    std::vector<std::string> names = {"09_full_model/llama", "09_full_model/qwen2",
                                      "09_full_model/qwen3"};
    const std::vector<std::string> fixtures = family_fixtures();
    names.insert(names.end(), fixtures.begin(), fixtures.end());
    // The published files of LFM2 have another key for theta.
    std::erase_if(names, [](const std::string& name) {
        const JsonFile json = open_config(fixture_path(name) + "/config.json");
        return json.has("rope_parameters") || json.has("theta");
    });
    return names;
}

}  // namespace

TEST_CASE("config.json of transformers 5: rope_parameters and dtype give the same logits") {
    for (const std::string& name : models_of_transformers_4()) {
        CAPTURE(name);
        const IdMatrix ids = ids_of(name);
        const Tensor3 expected = logits_of(fixture_path(name), ids);
        for (const RopeType form :
             {RopeType::written, RopeType::left_out, RopeType::written_twice}) {
            const Scratch scratch;
            const std::string folder = scratch.copy_of(name);
            rewrite_config(folder, form);
            CHECK_CLOSE(logits_of(folder, ids), expected, 0);
        }
    }
}

TEST_CASE("rope_parameters without rope_theta is an error that names the key") {
    for (const std::string& name : models_of_transformers_4()) {
        CAPTURE(name);
        const Scratch scratch;
        const std::string folder = scratch.copy_of(name);
        const std::string key = rewrite_config(folder, RopeType::written, false);
        if (key.empty()) continue;
        CHECK(rejection_of_folder(folder) == folder + "/config.json: " + key + " is missing");
        // At the top level, it counts for all layers but those with a theta of their own.
        edit(folder + "/config.json", "{", R"({"rope_theta": 77.0, )");
        CHECK(read_any_config(open_config(folder + "/config.json")).rope_theta == 77);
    }
}

TEST_CASE("without rope_parameters, a missing rope_theta is that of the class") {
    const std::vector<std::pair<std::string, Real>> classes = {
        {"llama", 10'000}, {"qwen3_vl", 500'000}, {"mixtral", 1'000'000}};
    for (const std::string members :
         {"", R"("rope_parameters": null)", R"("rope_scaling": null)",
          R"("rope_scaling": {"type": "linear", "factor": 2})"})
        for (const auto& one : classes) {
            CAPTURE(one.first);
            CAPTURE(members);
            const Scratch scratch;
            config_json(scratch, one.first, members);
            CHECK(read_any_config(open_config(scratch.folder / "config.json")).rope_theta ==
                  one.second);
        }
    const Scratch scratch;
    config_json(scratch, "qwen3_vl",
                R"("rope_scaling": {"type": "default", "rope_theta": 77})");
    CHECK(read_any_config(open_config(scratch.folder / "config.json")).rope_theta == 77);
    // The text models of the VL classes have defaults of their own for the old files only.
    config_json(scratch, "qwen3_vl", R"("rope_parameters": {"rope_type": "default"})");
    CHECK_THROWS_WITH_AS(
        read_any_config(open_config(scratch.folder / "config.json")),
        ((scratch.folder / "config.json").string() + ": rope_parameters.rope_theta is missing")
            .c_str(),
        FileError);
}

TEST_CASE("rope_parameters: partial_rotary_factor is read, or rejected by name") {
    const auto rejection_of_llama = [](const std::string& members) -> std::string {
        const Scratch scratch;
        config_json(scratch, "llama",
                    R"("rope_parameters": {"rope_theta": 500.0, )" + members + "}");
        try {
            read_any_config(open_config(scratch.folder / "config.json"));
        } catch (const FileError& error) {
            return error.what();
        }
        return "it was read";
    };
    CHECK(rejection_of_llama(R"("partial_rotary_factor": 1.0)") == "it was read");
    CHECK(rejection_of_llama(R"("partial_rotary_factor": 0.5)") == "it was read");
    CHECK(mentions(rejection_of_llama(R"("partial_rotary_factor": 0.75)"),
                   "partial_rotary_factor 0.75 is not supported; supported: an even number"));
    const std::string same = R"("rope_parameters": {"rope_theta": 500.0,
        "partial_rotary_factor": 0.5}, "head_dim": 8)";
    CHECK(main_rope(read("phi3", same))->rotary_dim == 4);
    CHECK(main_rope(read("phi3", same + R"(, "partial_rotary_factor": 0.5)"))->rotary_dim == 4);
    CHECK(mentions(rejection_of("phi3", same + R"(, "partial_rotary_factor": 0.25)"),
                   "partial_rotary_factor contradicts rope_parameters.partial_rotary_factor"));
}
