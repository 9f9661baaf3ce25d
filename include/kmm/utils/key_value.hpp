// A value with the index it came from, for reductions such as "where is the smallest element".
//
// Owns: nothing; a plain value. Must not know: reductions. Any thread, host and device.
#pragma once

#include "kmm/detail/standard.hpp"
#include "kmm/utils/hash_utils.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

/// Ordered by value, ties by key.
template<typename V>
struct KeyValue {
    std::int64_t key;
    V value;

    KeyValue() = default;
    KMM_HOST_DEVICE constexpr KeyValue(std::int64_t key_, V value_) : key(key_), value(value_) {}

    KMM_HOST_DEVICE friend constexpr bool operator==(const KeyValue& a, const KeyValue& b) {
        return a.value == b.value && a.key == b.key;
    }
    KMM_HOST_DEVICE friend constexpr bool operator!=(const KeyValue& a, const KeyValue& b) { return !(a == b); }
    KMM_HOST_DEVICE friend constexpr bool operator<(const KeyValue& a, const KeyValue& b) {
        return a.value < b.value || (!(b.value < a.value) && a.key < b.key);
    }
    KMM_HOST_DEVICE friend constexpr bool operator>(const KeyValue& a, const KeyValue& b) { return b < a; }
    KMM_HOST_DEVICE friend constexpr bool operator<=(const KeyValue& a, const KeyValue& b) { return !(b < a); }
    KMM_HOST_DEVICE friend constexpr bool operator>=(const KeyValue& a, const KeyValue& b) { return !(a < b); }
};

}  // namespace kmm

#if !KMM_IS_RTC
namespace kmm {

template<typename C, typename Traits, typename V>
std::basic_ostream<C, Traits>& operator<<(std::basic_ostream<C, Traits>& stream, const KeyValue<V>& that) {
    return stream << "{" << that.key << ": " << that.value << "}";
}

}  // namespace kmm

template<typename V>
struct std::hash<kmm::KeyValue<V>> {
    std::size_t operator()(const kmm::KeyValue<V>& that) const { return kmm::hash_fields(that.key, that.value); }
};
#endif
