// The ledger: the holders of memory in this process, by device.
//
// Every object that takes memory from the driver, or keeps some for others, has a holder here for its lifetime. A
// device is one of `the_driver()`: in a `driver_scope` a thread enters and sees the devices of that driver. The ledger
// keeps no figures; holders are queried on demand. Memory that several holders pass on to each other is counted once:
// where it comes from the driver (`takes_from_driver`). Owns: the list, which is never destroyed. Must not know: the
// types of holders. Any thread; no lock is held during a call of a holder, so a holder may take any lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "driver/driver.hpp"
#include "driver/locks.hpp"
#include "rmm/heap/address_map.hpp"
#include "rmm/tags.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace detail {

namespace driver = ::kmm::driver;

/// Bytes; 0 also where a holder cannot tell.
struct holder_figures {
    std::string name;
    std::string kind;
    std::size_t held_bytes = 0;
    std::size_t in_use_bytes = 0;
    std::size_t largest_free_bytes = 0;
    std::size_t peak_bytes = 0;     ///< the most that was held
    std::size_t maximum_bytes = 0;  ///< 0: none
    std::size_t num_blocks = 0;     ///< in use
    bool takes_from_driver = false;
};

struct held_block {
    std::uintptr_t address = 0;
    std::size_t size_bytes = 0;
    tag_number tag = untagged;
};

/// Any thread may ask at any time between `enter_ledger` and `leave_ledger`.
class memory_holder {
  public:
    virtual holder_figures figures() = 0;
    /// O(blocks in use). What is counted elsewhere too has the tag `of_a_pool`.
    virtual void add_by_tag(tag_sums* sums) { (void)sums; }
    virtual void add_blocks(std::vector<held_block>* blocks) { (void)blocks; }
    /// Returns up to about `bytes` of unused memory to the driver. Result: the bytes returned. Waits for no lock that
    /// is held over calls of others.
    virtual std::size_t give_back(std::size_t bytes) noexcept {
        (void)bytes;
        return 0;
    }
    /// Whether the holder gave this memory out, and it is still in use. O(1).
    virtual bool gave(const void* memory) noexcept {
        (void)memory;
        return false;
    }
    /// One line for the out-of-memory errors of others, about what they could have from here; "" for none.
    virtual std::string line_for_shortage() { return {}; }

  protected:
    ~memory_holder() = default;
};

/// A device of `the_driver()`. Throws std::bad_alloc.
void enter_ledger(int device, memory_holder& holder);
/// Removes the holder, and blocks until running calls of it have returned. Ignores a holder that is not in the ledger.
void leave_ledger(memory_holder& holder) noexcept;

/// f(memory_holder&) for the holders of a device of `the_driver()`, in the order in which they came. What `f` throws
/// passes through.
using holder_visitor = void (*)(void* user, memory_holder& holder);
void visit_holders(int device, holder_visitor visit, void* user);
template<typename F>
void for_each_holder(int device, F&& f) {
    visit_holders(
        device, [](void* user, memory_holder& h) { (*static_cast<std::remove_reference_t<F>*>(user))(h); }, &f);
}

/// While memory of the device is, or may be, on its way from the driver to a holder or back, so that no holder's
/// figures have it. Any thread; nests; O(1).
class transit_scope {
  public:
    explicit transit_scope(int device) noexcept;
    ~transit_scope();
    transit_scope(const transit_scope&) = delete;
    transit_scope& operator=(const transit_scope&) = delete;

  private:
    const int device_;
};
/// Whether any thread is in such a scope of the device. A caller that checks this before it reads the holders' figures
/// misses nothing that was taken before. (Devices of other drivers with the same number count too.)
bool is_in_transit(int device) noexcept;

/// What a resource that has no memory of its own takes from the driver, block by block. All objects of such a class
/// share one, which is never destroyed; on each device it is a holder. A block is found again whichever device is
/// current.
class block_record {
  public:
    block_record(const char* name, const char* kind, bool takes_from_driver)
        : name_(name), kind_(kind), takes_from_driver_(takes_from_driver) {}
    block_record(const block_record&) = delete;
    block_record& operator=(const block_record&) = delete;

    /// A block for which there is no host memory here is not counted.
    void note(int device, void* ptr, std::size_t bytes) noexcept;
    /// Of one that goes back to the driver in the scope of the result: it has no entry any more, so that the driver may
    /// give the address to another thread, and is held until the scope ends. Nothing for one that is not known.
    class going;
    [[nodiscard]] going forget(void* ptr) noexcept;

  private:
    class on_device;
    struct block {
        std::size_t size_bytes = 0;
        on_device* where = nullptr;
        tag_number tag = untagged;
    };
    class on_device final : public memory_holder {
      public:
        on_device(block_record& all, const driver::Driver& of, int device) : of_driver(of), device(device), all_(all) {}
        holder_figures figures() override;
        void add_by_tag(tag_sums* sums) override;
        void add_blocks(std::vector<held_block>* blocks) override;
        std::size_t give_back(std::size_t bytes) noexcept override;

        const driver::Driver& of_driver;
        const int device;
        // Under the lock of all.
        std::size_t held_bytes = 0;
        std::size_t peak_bytes = 0;
        std::size_t num_blocks = 0;

      private:
        block_record& all_;
    };
    on_device& holder_of(const driver::Driver& of, int device) KMM_REQUIRES(mutex_);

    const char* const name_;
    const char* const kind_;
    const bool takes_from_driver_;
    kmm::locks::ShortLock mutex_;
    heap::address_map<block> blocks_ KMM_GUARDED_BY(mutex_);
    std::vector<on_device*> holders_ KMM_GUARDED_BY(mutex_);  // one for each device of each driver; never freed
};

class block_record::going {
  public:
    going(block_record& all, on_device* where, std::size_t size_bytes) noexcept
        : all_(all), where_(where), size_bytes_(size_bytes) {}
    ~going() {
        if (where_ == nullptr) return;
        const kmm::locks::Guard in(all_.mutex_);
        where_->held_bytes -= size_bytes_;
        --where_->num_blocks;
    }
    going(const going&) = delete;
    going& operator=(const going&) = delete;

  private:
    block_record& all_;
    on_device* const where_;
    const std::size_t size_bytes_;
};

}  // namespace detail
}  // namespace kmm_v0
}  // namespace rmm
