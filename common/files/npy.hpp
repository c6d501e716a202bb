// Reading NumPy's .npy files.
#pragma once

#include <filesystem>
#include <vector>

namespace llm {

struct NpyArray {
    std::vector<std::size_t> shape;
    std::vector<float> elements;  // in row-major order
};

// Reads an array of float32, as numpy.save writes it. Throws FileError, which names what is
// wrong: another type, another order, fewer or more bytes than the shape has, an element that
// is not finite. Source: numpy.lib.format.
NpyArray read_npy(const std::filesystem::path& file);

}  // namespace llm
