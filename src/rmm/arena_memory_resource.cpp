// Implements the compiled part of <rmm/mr/arena_memory_resource.hpp>: which configuration of the pool's engine it is,
// and its dump. Any thread.
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/detail/error.hpp"
#include "rmm/detail/format.hpp"
#include "rmm/mr/detail/pool.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace mr {
namespace detail {
namespace {

constexpr std::size_t unit = CUDA_ALLOCATION_ALIGNMENT;
constexpr std::size_t min_arena_size = std::size_t{1} << 20;
constexpr char const* dump_file = "rmm_arena_memory_dump.log";

/// Closed whichever way a scope ends.
class open_file {
  public:
    explicit open_file(char const* mode) : file_{std::fopen(dump_file, mode)} {}
    ~open_file() {
        if (file_ != nullptr) std::fclose(file_);
    }
    open_file(open_file const&) = delete;
    open_file& operator=(open_file const&) = delete;
    std::FILE* get() const noexcept { return file_; }

  private:
    std::FILE* file_;
};

void report_no_dump() noexcept {
    rmm::detail::report_misuse("could not write ", dump_file, "; is the working directory writable?");
}

}  // namespace

pool_options arena_options(std::optional<std::size_t> arena_size) {
    pool_options options;
    options.name = "arena_memory_resource";
    options.initial_bytes = align_down(arena_size ? *arena_size : available_device_memory().first / 2, unit);
    options.maximum_bytes = options.initial_bytes;
    options.grows = false;
    RMM_EXPECTS(options.initial_bytes >= min_arena_size,
                kmm::driver::format("Arena size required to be at least 1 MiB; it is {} bytes", options.initial_bytes));
    return options;
}

void begin_arena_dump() noexcept {
    const open_file file{"w"};
    if (file.get() == nullptr) report_no_dump();
}

void dump_arena(pool const& arena, std::size_t bytes) noexcept {
    try {
        const pool_statistics s = arena.statistics();
        const std::string stars(50, '*');
        const open_file file{"a"};
        if (file.get() == nullptr) return report_no_dump();
        using rmm::detail::format_bytes;
        using rmm::detail::format_size;
        std::fprintf(file.get(), "%s\nRan out of memory trying to allocate %s.\n%s\n", stars.c_str(),
                     format_bytes(bytes).c_str(), stars.c_str());
        std::fprintf(file.get(), "Arena size: %s\nIn use: %s in %zu blocks\nFree: %s\nLargest free piece: %s\n",
                     format_size(s.held_bytes).c_str(), format_size(s.in_use_bytes).c_str(), s.num_blocks,
                     format_size(s.free_bytes).c_str(), format_size(s.largest_free_bytes).c_str());
    } catch (const std::exception& e) {
        rmm::detail::report_misuse("could not write the report of an arena: ", e.what());
    }
}

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace rmm
