// Poisons the free memory of pools for AddressSanitizer. Only in builds with it.
//
// A stream may use a block long after the host has freed it, even when the pool has reused the memory. Therefore a
// callback on the stream poisons it, except the parts in other blocks whose callback is still to come.

#include "driver/locks.hpp"
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
#include <optional>
#endif

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

#ifdef RMM_HAS_ASAN
namespace {

/// A block in use, until its streams have finished with it: possibly after the host has freed it.
struct user {
    std::uintptr_t end;
    bool live;          // not freed yet
    bool kept = false;  // no callback comes for it
};

/// Regions and blocks of a pool. Lives until the last callback.
class poison_book {
  public:
    using blocks = std::multimap<std::uintptr_t, user>;

    void add_region(std::uintptr_t base, std::size_t bytes) {
        const kmm::locks::Guard lock(mutex_);
        regions_[base] = base + bytes;
    }
    /// Poisons the parts of the range that are in a region of the book and in no block.
    void poison_unused(std::uintptr_t base, std::size_t bytes) {
        const kmm::locks::Guard lock(mutex_);
        poison_in_regions(base, base + bytes);
    }

    void remove_region(std::uintptr_t base, std::size_t bytes) {
        const kmm::locks::Guard lock(mutex_);
        ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(base), bytes);  // first, as the rest needs memory
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
        for (auto block = blocks_.lower_bound(base); block != blocks_.end() && block->first < end;)
            block = block->second.kept ? blocks_.erase(block) : std::next(block);
    }

    void remove_all() {
        const kmm::locks::Guard lock(mutex_);
        for (const auto& [begin, end] : regions_)
            ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
        regions_.clear();
    }

    void give(std::uintptr_t block, std::size_t bytes) {
        const kmm::locks::Guard lock(mutex_);
        blocks_.emplace(block, user{block + bytes, true, false});
        largest_ = std::max(largest_, bytes);
        ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(block), bytes);
    }

    /// The block that is freed now; it stays in the book until `end_use`. Nothing: it is not in use.
    std::optional<blocks::iterator> end_of_host_use(std::uintptr_t block) {
        const kmm::locks::Guard lock(mutex_);
        const auto [first, last] = blocks_.equal_range(block);
        for (auto at = first; at != last; ++at) {
            if (!at->second.live) continue;
            at->second.live = false;
            return at;
        }
        return std::nullopt;
    }

    /// Its streams have finished with it: poisons it, except parts in other blocks.
    void end_use(blocks::iterator block) {
        const kmm::locks::Guard lock(mutex_);
        const std::uintptr_t begin = block->first;
        const std::uintptr_t end = block->second.end;
        blocks_.erase(block);
        poison_in_regions(begin, end);
    }
    /// Its streams may use it at any later time: it stays unpoisoned until its region is removed.
    void keep_open(blocks::iterator block) {
        const kmm::locks::Guard lock(mutex_);
        const auto [first, last] = blocks_.equal_range(block->first);
        for (auto at = first; at != last; ++at) {
            if (!at->second.kept || at->second.end < block->second.end) continue;
            blocks_.erase(block);  // that one keeps all of it open
            return;
        }
        block->second.kept = true;
    }

  private:
    void poison_in_regions(std::uintptr_t begin, std::uintptr_t end) KMM_REQUIRES(mutex_) {
        auto region = regions_.upper_bound(begin);
        if (region != regions_.begin()) --region;
        for (; region != regions_.end() && region->first < end; ++region)
            poison_between_blocks(std::max(begin, region->first), std::min(end, region->second));
    }
    void poison_between_blocks(std::uintptr_t begin, std::uintptr_t end) KMM_REQUIRES(mutex_) {
        auto used = blocks_.lower_bound(begin > largest_ ? begin - largest_ : 0);
        for (; used != blocks_.end() && used->first < end; ++used) {
            if (used->second.end <= begin) continue;
            if (used->first > begin) poison(begin, used->first);
            // A granule of the shadow is 8 bytes: what shares one with a block stays as it is.
            begin = std::max(begin, (used->second.end + 7) / 8 * 8);
        }
        if (begin < end) poison(begin, end);
    }
    static void poison(std::uintptr_t begin, std::uintptr_t end) {
        ASAN_POISON_MEMORY_REGION(reinterpret_cast<void*>(begin), end - begin);
    }

    kmm::locks::Mutex mutex_;
    std::map<std::uintptr_t, std::uintptr_t> regions_ KMM_GUARDED_BY(mutex_);  // begin, end
    blocks blocks_ KMM_GUARDED_BY(mutex_);  // may overlap: the host is ahead of the streams
    std::size_t largest_ KMM_GUARDED_BY(mutex_) = 0;
};

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

/// Where the host has no memory for the book, a block stays unpoisoned.
template<typename F>
bool without_throwing(F&& f) noexcept {
    try {
        f();
        return true;
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("AddressSanitizer is not told of a block: ", e.what());
        return false;
    }
}

class asan_registration final : public memory_registration {
  public:
    explicit asan_registration(driver::Driver& driver) : driver_(driver), book_(std::make_shared<poison_book>()) {}
    ~asan_registration() override { book_->remove_all(); }

    void add_region(void* base, std::size_t bytes, const cuda_stream_view* behind) noexcept override {
        // Upstreams of tests give addresses where nothing is.
        driver::PointerInfo info;
        if (!driver_.pointer_info(base, &info).ok() || info.kind == driver::MemoryKind::pageable) return;
        without_throwing([&] {
            book_->add_region(address_of(base), bytes);
            if (behind == nullptr) return book_->poison_unused(address_of(base), bytes);
            (void)queue(*behind, [book = book_, base, bytes] { book->poison_unused(address_of(base), bytes); });
        });
    }
    void remove_region(void* base, std::size_t bytes) noexcept override {
        // The book is incomplete, so a block could be poisoned by mistake: drop all regions.
        if (!without_throwing([&] { book_->remove_region(address_of(base), bytes); })) book_->remove_all();
    }
    void give(void* block, std::size_t bytes) noexcept override {
        if (!without_throwing([&] { book_->give(address_of(block), bytes); })) book_->remove_all();
    }
    void take(void* block, std::size_t, cuda_stream_view stream) noexcept override {
        without_throwing([&] {
            const auto at = book_->end_of_host_use(address_of(block));
            if (!at) return;
            if (!queue(stream, [book = book_, at] { book->end_use(*at); })) book_->keep_open(*at);
        });
    }

  private:
    /// Calls `f` behind the work queued on the stream. False if it cannot: in a capture it would become a part of the
    /// graph, whose launches use the memory again.
    template<typename F>
    bool queue(cuda_stream_view stream, F f) {
        if (is_being_captured(driver_, stream)) return false;
        auto call = std::make_unique<F>(std::move(f));
        const auto run = [](void* queued) {
            const std::unique_ptr<F> mine{static_cast<F*>(queued)};
            without_throwing(*mine);
        };
        if (driver_.host_callback({stream.value()}, run, call.get()).ok()) {
            (void)call.release();
            return true;
        }
        (void)driver_.take_last_error();
        return false;
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
