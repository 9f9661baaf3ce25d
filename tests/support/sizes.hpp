// Sizes in bytes by their names. Constants alone: nothing of the library may be included here.
#pragma once

#include <cstddef>

inline constexpr std::size_t KiB = std::size_t{1} << 10;
inline constexpr std::size_t MiB = std::size_t{1} << 20;
inline constexpr std::size_t GiB = std::size_t{1} << 30;
inline constexpr std::size_t PiB = std::size_t{1} << 50;
