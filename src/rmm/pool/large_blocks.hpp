// The blocks in use that belong to no arena, by address.
//
// Owns: their records. Must not know: where free memory is. Under the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "rmm/detail/cuda_types.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/pool/engine_mutex.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

struct capture_heap;

struct large_block {
    std::size_t size_bytes = 0;
    std::uint8_t area = 0;
    rmm::detail::tag_number tag = rmm::detail::untagged;
    capture_heap* capture = nullptr;  // of a block that a captured stream asked for
    cudaStream_t stream = nullptr;    // of the allocation
};

class large_blocks {
  public:
    /// Throws std::bad_alloc, with nothing done.
    void insert(std::uintptr_t address, const large_block& block) KMM_REQUIRES(in_engine) {
        blocks_.insert(address, block);
        bytes_ += block.size_bytes;
    }
    std::optional<large_block> take(std::uintptr_t address) noexcept KMM_REQUIRES(in_engine) {
        std::optional<large_block> taken = blocks_.take(address);
        if (taken) bytes_ -= taken->size_bytes;
        return taken;
    }
    const large_block* find(std::uintptr_t address) const noexcept KMM_REQUIRES(in_engine) {
        return blocks_.find(address);
    }
    template<typename F>
    void for_each(F&& f) const KMM_REQUIRES(in_engine) {
        blocks_.for_each(std::forward<F>(f));
    }
    std::size_t size() const noexcept KMM_REQUIRES(in_engine) { return blocks_.size(); }
    std::size_t bytes() const noexcept KMM_REQUIRES(in_engine) { return bytes_; }

  private:
    heap::address_map<large_block> blocks_ KMM_GUARDED_BY(in_engine);
    std::size_t bytes_ KMM_GUARDED_BY(in_engine) = 0;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
