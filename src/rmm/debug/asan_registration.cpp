// Pools in the eyes of AddressSanitizer: what they hold and nobody has is poisoned. Only where the library was built with it.
//
// A stream may use a block long after the host has freed it. A callback on the stream therefore poisons it, and leaves out
// what has been given out again meanwhile: such a block may be that of a stream that does not wait for the callback.
#include <mutex>

#include "rmm/debug/memory_registration.hpp"
#include "rmm/status.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define RMM_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RMM_HAS_ASAN 1
#endif
#endif

#ifdef RMM_HAS_ASAN
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <cstdint>
#include <map>
#endif

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

#ifdef RMM_HAS_ASAN
namespace {

/// What a pool has and has given out. Lives as long as a callback may come.
class poison_book {
  public:
    void add_region(std::uintptr_t base, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        regions_[base] = base + bytes;
        ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(base), bytes);
    }

    void remove_region(std::uintptr_t base, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        const std::uintptr_t end = base + bytes;
        auto at = regions_.upper_bound(base);
        if (at != regions_.begin()) --at;
        while (at != regions_.end() && at->first < end) {
            const auto [begin, stop] = *at;
            if (stop <= base) {
                ++at;
                continue;
            }
            at = regions_.erase(at);
            if (begin < base) regions_[begin] = base;
            if (stop > end) at = std::next(regions_.emplace(end, stop).first);
        }
        ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(base), bytes);
    }

    void remove_all() {
        const std::lock_guard lock(mutex_);
        for (const auto& [begin, end] : regions_)
            ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
        regions_.clear();
        live_.clear();
    }

    void give(std::uintptr_t block, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        live_[block] = block + bytes;
        ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(block), bytes);
    }

    /// The block's size; 0 if it is not in use.
    std::size_t take(std::uintptr_t block) {
        const std::lock_guard lock(mutex_);
        const auto at = live_.find(block);
        if (at == live_.end()) return 0;
        const std::size_t bytes = at->second - block;
        live_.erase(at);
        return bytes;
    }

    /// All of the range that the pool still has and nobody uses.
    void poison_unused(std::uintptr_t begin, std::uintptr_t end) {
        const std::lock_guard lock(mutex_);
        auto region = regions_.upper_bound(begin);
        if (region != regions_.begin()) --region;
        for (; region != regions_.end() && region->first < end; ++region)
            poison_between_blocks(std::max(begin, region->first), std::min(end, region->second));
    }

  private:
    void poison_between_blocks(std::uintptr_t begin, std::uintptr_t end) {
        auto used = live_.upper_bound(begin);
        if (used != live_.begin() && std::prev(used)->second > begin) --used;
        for (; used != live_.end() && used->first < end; ++used) {
            if (used->first > begin) poison(begin, used->first);
            // A granule of the shadow is 8 bytes: what shares one with a block stays as it is.
            begin = (used->second + 7) / 8 * 8;
        }
        if (begin < end) poison(begin, end);
    }
    static void poison(std::uintptr_t begin, std::uintptr_t end) {
        ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
    }

    std::mutex mutex_;
    std::map<std::uintptr_t, std::uintptr_t> regions_;  // begin, end
    std::map<std::uintptr_t, std::uintptr_t> live_;
};

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

/// Memory that the program has called its own is left alone when the host has no memory for the book.
template<typename F>
void without_throwing(F&& f) noexcept {
    try {
        f();
    } catch (const std::exception& e) {
        rmm::detail::report_misuse(std::string("AddressSanitizer is not told of a block: ") + e.what());
    }
}

class asan_registration final : public memory_registration {
  public:
    explicit asan_registration(driver::Driver& driver) : driver_(driver), book_(std::make_shared<poison_book>()) {}
    ~asan_registration() override { book_->remove_all(); }

    void add_region(void* base, std::size_t bytes) noexcept override {
        // Upstreams of tests give addresses where nothing is.
        driver::PointerInfo info;
        if (!driver_.pointer_info(base, &info).ok() || info.kind == driver::MemoryKind::pageable) return;
        without_throwing([&] { book_->add_region(address_of(base), bytes); });
    }
    void remove_region(void* base, std::size_t bytes) noexcept override {
        without_throwing([&] { book_->remove_region(address_of(base), bytes); });
    }
    void give(void* block, std::size_t bytes) noexcept override {
        without_throwing([&] { book_->give(address_of(block), bytes); });
    }
    void take(void* block, std::size_t, cuda_stream_view stream) noexcept override {
        without_throwing([&] {
            // Not the size that the program says: that may be wrong.
            const std::size_t bytes = book_->take(address_of(block));
            if (bytes == 0) return;
            // In a capture the callback would become a part of the graph.
            if (is_being_captured(driver_, stream)) return;
            auto range = std::make_unique<freed_range>(freed_range{book_, address_of(block), bytes});
            if (driver_.host_callback({stream.value()}, &poison_range, range.get()).ok())
                (void)range.release();
            else
                (void)driver_.take_last_error();
        });
    }

  private:
    struct freed_range {
        std::shared_ptr<poison_book> book;
        std::uintptr_t address;
        std::size_t bytes;
    };
    static void poison_range(void* range) {
        const std::unique_ptr<freed_range> r{static_cast<freed_range*>(range)};
        without_throwing([&] { r->book->poison_unused(r->address, r->address + r->bytes); });
    }

    driver::Driver& driver_;
    const std::shared_ptr<poison_book> book_;
};

}  // namespace

std::unique_ptr<memory_registration> make_asan_registration(driver::Driver& driver) {
    return std::make_unique<asan_registration>(driver);
}

#else

std::unique_ptr<memory_registration> make_asan_registration(driver::Driver&) { return nullptr; }

#endif

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
