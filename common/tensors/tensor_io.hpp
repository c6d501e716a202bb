// xtensor's printing and .npy reading and writing. These headers compile slowly, so only .cpp
// files include this one.
#pragma once

#if __has_include(<xtensor/io/xnpy.hpp>)  // xtensor 0.26 moved its headers
#include <xtensor/io/xio.hpp>
#include <xtensor/io/xnpy.hpp>
#else
#include <xtensor/xio.hpp>
#include <xtensor/xnpy.hpp>
#endif
