// The packed parameters of a kernel: in order, each at its natural alignment, as the driver wants them.
//
// Owns: the layout of a parameter list. Must not know: arrays, the runtime. C++17.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kmm {
namespace detail {

/// Offsets of the parameters `P...`, and the bytes that they take together in `[sizeof...(P)]`.
template<typename... P>
constexpr std::array<std::uint32_t, sizeof...(P) + 1> parameter_offsets() noexcept {
    constexpr std::size_t count = sizeof...(P);
    const std::size_t sizes[count + 1] = {sizeof(P)..., 0};
    const std::size_t alignments[count + 1] = {alignof(P)..., 1};
    std::array<std::uint32_t, count + 1> offsets{};
    std::size_t end = 0;
    for (std::size_t i = 0; i < count; i++) {
        end = (end + alignments[i] - 1) / alignments[i] * alignments[i];
        offsets[i] = static_cast<std::uint32_t>(end);
        end += sizes[i];
    }
    offsets[count] = static_cast<std::uint32_t>(end);
    return offsets;
}

/// The parameters as bytes.
template<typename... P>
class PackedParameters {
    static_assert((std::is_trivially_copyable_v<P> && ...), "kernel parameters must be trivially copyable");

  public:
    static constexpr std::size_t size_bytes = parameter_offsets<P...>()[sizeof...(P)];

    explicit PackedParameters(const P&... values) noexcept {
        [[maybe_unused]] constexpr auto offsets = parameter_offsets<P...>();
        [[maybe_unused]] std::size_t i = 0;
        (std::memcpy(bytes_ + offsets[i++], &values, sizeof(P)), ...);
    }
    const void* data() const noexcept { return bytes_; }

  private:
    alignas(16) unsigned char bytes_[size_bytes + 1] = {};
};

}  // namespace detail
}  // namespace kmm
