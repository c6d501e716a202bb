#include "common/tensors/permute.hpp"

namespace llm {

Tensor4 swap_axes_1_and_2(const Tensor4& tensor) {
    const auto [I, J, K, L] = dims(tensor);
    Tensor4 swapped(std::array{I, K, J, L});
    const Real* row = tensor.data();
    for (std::size_t i = 0; i < I; ++i)
        for (std::size_t j = 0; j < J; ++j)
            for (std::size_t k = 0; k < K; ++k, row += L)
                std::copy(row, row + L, swapped.data() + ((i * K + k) * J + j) * L);
    return swapped;
}

}  // namespace llm
