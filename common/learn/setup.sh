# Installs the packages that the programs need. A part of ./learn.
# shellcheck shell=bash

setup() {
    if ! command -v apt-get >/dev/null; then
        setup_elsewhere
        return
    fi
    local missing=() package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0

    note "The chapters need these Debian packages: ${missing[*]}"
    if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
        note "learn: install them as root: apt-get install --no-install-recommends ${missing[*]}"
        exit 1
    fi
    note "Installing them with apt-get, which needs root and about half a minute ..."
    install_packages "${missing[@]}" || {
        note "learn: apt-get could not install them; see its message above"
        exit 1
    }
}

setup_elsewhere() {
    local tool missing=()
    for tool in "${CXX:-c++}" cmake ninja; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    note "learn: not found: ${missing[*]}"
    advise_elsewhere
    exit 1
}

advise_elsewhere() {
    note "On this system, install a C++20 compiler, CMake, Ninja, xtensor, xtensor-blas, Highway, doctest,"
    note "OpenBLAS, CLI11, fmt, nlohmann_json, Oniguruma, utf8proc and gnuplot. conda-forge has all of them:"
    note "  conda install -c conda-forge cxx-compiler cmake ninja xtensor xtensor-blas libhwy doctest openblas cli11 fmt nlohmann_json oniguruma libutf8proc gnuplot"
}
