#!/usr/bin/env bash
# xtensor 0.24.3 (Debian 12: libxtensor-dev 0.24.3-1, xtl-dev 0.7.2-2.1): xt::mean of a container of
# floats returns a double, and adds in float. Only the division is done in double. So the mean of 2^25
# ones is 0.5: a float that is 2^24 does not change when 1 is added. xt::variance and xt::stddev use this
# mean: 0.25 and 0.5 for equal numbers. The type of the result suggests a sum in double; NumPy, which has
# float32 as the type of such a result, adds pairwise and gives 1. xt::mean<double> adds in double.
# Exits with 1 if one of these numbers changes.
set -euo pipefail
cd "$(mktemp -d)"
apt-get download -q libxtensor-dev=0.24.3-1 xtl-dev=0.7.2-2.1 >/dev/null
for package in ./*.deb; do dpkg -x "$package" .; done
cat >mean.cpp <<'END'
#include <iostream>
#include <type_traits>
#include <xtensor/xmath.hpp>
#include <xtensor/xtensor.hpp>

int main() {
    xt::xtensor<float, 1> ones = xt::ones<float>({std::size_t{1} << 25});
    static_assert(std::is_same_v<std::decay_t<decltype(xt::mean(ones)())>, double>);
    std::cout << xt::mean(ones)() << ' ' << xt::mean<double>(ones)() << ' ' << xt::variance(ones)()
              << ' ' << xt::stddev(ones)() << '\n';
}
END
g++ -std=c++17 -O1 -I usr/include mean.cpp -o mean
seen=$(./mean)
echo "mean, mean<double>, variance, stddev of 2^25 ones: $seen"
[[ $seen == "0.5 1 0.25 0.5" ]]
