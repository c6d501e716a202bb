// For tests of the metadata of GGUF files: copies of an exported file with other values.
#pragma once

#include "tests/support/gguf_edit.hpp"
#include "tests/support/published_models.hpp"

namespace llm {

class GgufCopies {
 public:
    // A key and its new value; none: the copy lacks the key.
    using Changes = std::map<std::string, std::optional<GgufValue>>;

    explicit GgufCopies(const models::FamilyModel& model) {
        models::export_gguf(model, shipped_tokenizer(), file());
    }

    models::FamilyConfig read(const Changes& changes) const {
        const Scratch scratch;
        return models::read_family_config(Gguf(copy(scratch, changes)));
    }
    // The message, without the path of the file.
    std::string rejection(const Changes& changes) const {
        const Scratch scratch;
        const std::string path = copy(scratch, changes);
        try {
            models::read_family_config(Gguf(path));
        } catch (const FileError& error) {
            return std::string(error.what()).substr(path.size() + 2);
        }
        return "not rejected";
    }

 private:
    Scratch folder_;

    std::string file() const { return (folder_.folder / "model.gguf").string(); }
    std::string copy(const Scratch& scratch, const Changes& changes) const {
        const std::string path = (scratch.folder / "copy.gguf").string();
        edit_gguf(file(), path, changes);
        return path;
    }
};

}  // namespace llm
