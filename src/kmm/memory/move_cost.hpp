// Bytes over links for the sake of one task: what is fetched before it runs, and what must be saved since it runs.
//
// Owns: the sum. Must not know: chunks, tasks. Pure; any thread.
#pragma once

#include <cstddef>

namespace kmm::memory {

class MoveCost {
  public:
    /// Once for each chunk, or part of one, that the task uses.
    constexpr void add(std::size_t bytes, bool is_fetched, bool is_saved) noexcept {
        used_ += bytes;
        if (is_fetched) fetched_ += bytes;
        if (is_saved) saved_ += bytes;
    }
    /// A task that fetches little beside what it uses does not wait behind those that fetch nothing: 0.
    constexpr std::size_t bytes() const noexcept { return fetched_ <= used_ / little ? 0 : fetched_ + saved_; }

  private:
    static constexpr std::size_t little = 16;
    std::size_t used_ = 0;
    std::size_t fetched_ = 0;
    std::size_t saved_ = 0;
};

}  // namespace kmm::memory
