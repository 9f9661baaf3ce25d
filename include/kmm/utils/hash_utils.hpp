// Combination of hashes.
//
// Owns: nothing; pure functions. Must not know: the types that are hashed. The values may differ between versions: not
// for files. Any thread; host only.
#pragma once

#include "kmm/detail/standard.hpp"

#if !KMM_IS_RTC

namespace kmm {

/// Mixes the hash of `value` into `seed`; the order of the calls matters.
template<typename T>
inline void hash_combine(std::size_t& seed, const T& value) {
    // The finaliser of a 64-bit multiplicative hash: neighbouring integers, which std::hash leaves as they are, spread.
    std::uint64_t mixed = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15u + std::hash<T>{}(value);
    mixed ^= mixed >> 32;
    mixed *= 0xD6E8FEB86659FD93u;
    mixed ^= mixed >> 32;
    seed = static_cast<std::size_t>(mixed);
}

/// Mixes the hashes of [begin, end) into `seed`, one after the other.
template<typename Iterator>
inline void hash_combine_range(std::size_t& seed, Iterator begin, Iterator end) {
    for (; begin != end; ++begin) {
        hash_combine(seed, *begin);
    }
}

template<typename Iterator>
inline std::size_t hash_range(Iterator begin, Iterator end) {
    std::size_t seed = 0;
    hash_combine_range(seed, begin, end);
    return seed;
}

template<typename... Ts>
inline std::size_t hash_fields(const Ts&... fields) {
    std::size_t seed = sizeof...(Ts);
    (hash_combine(seed, fields), ...);
    return seed;
}

/// A function object for containers: std::hash of a T, mixed so that neighbouring numbers spread.
template<typename T = void>
struct Hasher {
    std::size_t operator()(const T& value) const { return hash_fields(value); }
};
template<>
struct Hasher<void> {
    template<typename T>
    std::size_t operator()(const T& value) const {
        return hash_fields(value);
    }
};

}  // namespace kmm

#endif
