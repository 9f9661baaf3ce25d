// Programs that fit (fitting_programs.hpp), played as the runtime does and in the order of submission with victims by
// next use: none may fail, and what ours moves is compared with that.
//
// Owns: the sums over many programs. Must not know: how they are printed. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulate/plays.hpp"

namespace kmm::simulate {

struct FittingPlay {
    std::uint64_t seed = 0;
    bool fits = false;
    std::size_t all_bytes = 0;  ///< of all memories
    Outcome ours, in_order;
    bool failed() const noexcept { return fits && (!ours.ended || ours.failed_tasks != 0); }
    bool is_compared() const noexcept { return fits && !failed() && in_order.ended && in_order.failed_tasks == 0; }
    /// A fifth more than in order, and a quarter of all memory, are not exceeded.
    bool moves_few() const noexcept;
};

/// Both with the same time between submits, which the seed chooses: 1, 10 or 100 us.
FittingPlay play_fitting(std::uint64_t seed, const Rates& rates = {});

class FittingSums {
  public:
    void add(const FittingPlay& play);
    std::uint64_t num_programs() const noexcept { return num_programs_; }
    std::uint64_t num_fit() const noexcept { return num_fit_; }
    std::uint64_t num_compared() const noexcept { return num_compared_; }
    std::uint64_t num_failed_in_order() const noexcept { return num_failed_in_order_; }
    const std::vector<std::uint64_t>& failed_seeds() const noexcept { return failed_seeds_; }
    /// Those that move more than FittingPlay::moves_few allows.
    const std::vector<std::uint64_t>& seeds_with_many_bytes() const noexcept { return many_bytes_; }
    /// Bytes moved, ours by those in order; 1 where neither moves any.
    double ratio() const noexcept { return in_order_ > 0 ? ours_ / in_order_ : ours_ > 0 ? ours_ : 1; }
    double worst_ratio() const noexcept { return worst_ratio_; }  ///< of programs that move many bytes
    std::uint64_t worst_seed() const noexcept { return worst_seed_; }

  private:
    std::uint64_t num_programs_ = 0, num_fit_ = 0, num_compared_ = 0, num_failed_in_order_ = 0, worst_seed_ = 0;
    double ours_ = 0, in_order_ = 0, worst_ratio_ = 0;
    std::vector<std::uint64_t> failed_seeds_, many_bytes_;
};

}  // namespace kmm::simulate
