#include "simulate/fitting_plays.hpp"

#include <algorithm>

#include "simulate/generators.hpp"

namespace kmm::simulate {

namespace {

// Chunks of up to 32 MiB: smaller ones would be a matter of the time that a copy takes before its bytes.
constexpr std::size_t scale = 8192;

}  // namespace

bool FittingPlay::moves_few() const noexcept {
    return static_cast<double>(ours.bytes_moved()) <=
           1.2 * static_cast<double>(in_order.bytes_moved()) + 0.25 * static_cast<double>(all_bytes);
}

FittingPlay play_fitting(std::uint64_t seed, const Rates& rates) {
    static constexpr std::int64_t submit_ns[] = {1'000, 10'000, 100'000};
    const fitting::Program made = fitting::make_program(seed);
    const Program program = fitting_program(made, scale);
    Policies ours, in_order;
    in_order.order_policy = schedule::OrderPolicy::as_submitted;
    FittingPlay p;
    p.seed = seed;
    p.fits = made.fits;
    p.all_bytes = made.machine.all_bytes() * scale;
    const std::int64_t between = submit_ns[seed / fitting::num_machines % 3];
    p.ours = play(program, ours, rates, nullptr, between);
    p.in_order = play(program, in_order, rates, nullptr, between);
    return p;
}

void FittingSums::add(const FittingPlay& p) {
    ++num_programs_;
    num_fit_ += p.fits ? 1 : 0;
    if (p.failed()) failed_seeds_.push_back(p.seed);
    if (p.fits && (!p.in_order.ended || p.in_order.failed_tasks != 0)) ++num_failed_in_order_;
    if (!p.is_compared()) return;
    ++num_compared_;
    const auto ours = static_cast<double>(p.ours.bytes_moved()), other = static_cast<double>(p.in_order.bytes_moved());
    ours_ += ours;
    in_order_ += other;
    if (!p.moves_few()) many_bytes_.push_back(p.seed);
    const double worst = ours / std::max(other, 0.25 * static_cast<double>(p.all_bytes));
    if (worst <= worst_ratio_) return;
    worst_ratio_ = worst;
    worst_seed_ = p.seed;
}

}  // namespace kmm::simulate
