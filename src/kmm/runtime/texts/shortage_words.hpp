// The texts of out-of-memory errors: bytes that were asked for, sizes of memories, their holders, and remedies.
//
// Owns: nothing. Any thread: a refusal at submit is worded on the submitting thread, one at run time on the thread that
// first asks for its error, with neither the baton nor a lock. Must not look at the scheduler's state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/locks.hpp"
#include "kmm/error.hpp"
#include "kmm/graph/task.hpp"
#include "kmm/runtime/platform.hpp"
#include "kmm/runtime/texts/failure_words.hpp"
#include "kmm/runtime/texts/holders.hpp"

namespace kmm::detail {

class ShortageWords;

/// All that the text of an error needs of a moment. What the driver and the system say is asked when the words are
/// made.
class Shortage final : public graph::Unworded {
  public:
    Shortage(const ShortageWords& words, const Platform& platform, const graph::Task& task);
    /// Made once, at the first request.
    std::exception_ptr words() const override;
    std::string as_cause(const std::exception_ptr& words) const override;
    bool is_logged() const noexcept override { return true; }

    /// A need that is counted alone.
    void leave_out(std::size_t bytes) noexcept;

    struct Need {
        graph::AccessKind kind;
        std::string array;
        std::uint32_t chunk;
        boxes::Box box;
        std::size_t rank;
        std::size_t size_bytes;    ///< rounded as allocated
        std::uint32_t num_pieces;  ///< of a temporary
    };
    struct Running {
        graph::TaskTrace task;
        std::size_t size_bytes = 0;
    };
    static constexpr std::size_t most_running = 5;
    static constexpr std::size_t most_needs = 20;

    graph::TaskTrace task;
    memory::MemoryIndex memory;
    std::size_t needed_bytes = 0;
    std::size_t usable_bytes = 0;
    std::vector<Need> needs;
    std::size_t more_needs = 0;
    std::size_t more_needs_bytes = 0;
    // At run time only:
    std::size_t in_use_bytes = 0;
    std::size_t capacity_bytes = 0;
    std::size_t largest_free_bytes = 0;
    std::size_t taken_bytes = 0;  ///< of the device, from the driver
    std::size_t host_in_use_bytes = 0;
    bool refused = false;       ///< by the driver
    bool host_refused = false;  ///< by the system
    std::vector<std::unique_ptr<Running>> running;
    std::size_t more_running = 0;
    std::shared_ptr<const Holders> holders;

  private:
    const ShortageWords& words_;
    mutable locks::Mutex mutex_;  ///< never held while words are made
    mutable std::exception_ptr words_made_ KMM_GUARDED_BY(mutex_);
};

/// Of a later task that found no memory, while none was freed since `first`: its text is one line that refers to the
/// report of `first`, which both errors share.
class SharedShortage final : public graph::Unworded {
  public:
    SharedShortage(const ShortageWords& words, const graph::Task& task, std::shared_ptr<const Shortage> first);
    std::exception_ptr words() const override;
    std::string as_cause(const std::exception_ptr& words) const override;

  private:
    friend class ShortageWords;
    const ShortageWords& words_;
    std::shared_ptr<const Shortage> first_;
    graph::TaskTrace task_;
    std::size_t needed_bytes_;
};

/// Bytes that a task needs in its memory, rounded as they are taken.
std::size_t needed_bytes(const graph::Task& task);

class ShortageWords {
  public:
    ShortageWords(const Platform& platform, const FailureWords& failures) noexcept
        : platform_(platform), failures_(failures) {}

    /// What a task lacks that can never run, before it is submitted and has uses.
    OutOfMemory never_fits(const graph::Task& task, std::size_t needed_bytes, std::vector<Shortage::Need> needs) const;
    OutOfMemory error_of(const Shortage& shortage) const;
    /// `first`: the error of the shortage that is shared.
    OutOfMemory error_of(const SharedShortage& shortage, const OutOfMemory& first) const;
    /// `text` of an error of the task, without its name at the start and the place of its submit at the end.
    std::string without_task(const graph::TaskTrace& task, const std::string& text) const;
    /// What could be done so that `wanted` bytes of this memory can be used. Only settings that would help are named.
    std::string memory_remedy(memory::MemoryIndex m, std::size_t wanted_bytes) const;

  private:
    std::string setting_for(memory::MemoryIndex m, std::size_t wanted_bytes) const;  ///< empty: none helps
    std::string setting_on_host_driver(memory::MemoryIndex m, std::size_t wanted_bytes) const;
    std::string shortage_text(const Shortage& shortage, bool at_submit) const;
    static std::string needs_text(const Shortage& shortage);
    std::string running_text(const Shortage& shortage) const;
    std::string remedies_text(const Shortage& shortage, const std::string& place) const;
    std::string memory_text(const Shortage& shortage) const;
    std::string limit_text(memory::MemoryIndex m) const;

    const Platform& platform_;
    const FailureWords& failures_;
};

}  // namespace kmm::detail
