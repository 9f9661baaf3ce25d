// Arrays and requests for tests of what submits need.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "../boxes/boxes.hpp"
#include "kmm/base/block_bytes.hpp"
#include "kmm/plan/planner.hpp"

namespace kmm::plan_test {

using kmm::DeviceId;
using kmm::MemoryId;
using kmm::detail::AccessKind;
using kmm::detail::Box;
using kmm::detail::ChunkGeometry;
using kmm::memory::MemoryIndex;
using kmm::plan::Form;
using kmm::plan::Layout;
using kmm::plan::Need;
using kmm::plan::Refusal;
using kmm::plan::Piece;
using kmm::plan::Temporary;
using kmm_test::box;
using kmm_test::line;
using Reason = Refusal::Reason;

inline constexpr MemoryIndex host = MemoryIndex::host();
inline constexpr MemoryIndex gpu = MemoryIndex::of_device(0);
inline constexpr MemoryIndex gpu_1 = MemoryIndex::of_device(1);
inline constexpr AccessKind read = AccessKind::read;
inline constexpr AccessKind write = AccessKind::write;
inline constexpr AccessKind overwrite = AccessKind::overwrite;

/// An array as a plan sees it, of elements of 4 bytes.
struct TestArray final : kmm::plan::Written {
    TestArray(std::size_t rank, const Box& all, const std::vector<Box>& boxes)
        : layout(rank, all, geometry(boxes)), boxes_written(boxes.size()) {}
    /// A line of chunks of one size.
    TestArray(std::int64_t size, std::int64_t chunk) : TestArray(1, line(0, size), cut(size, chunk)) {}

    TestArray(const TestArray&) = delete;
    TestArray& operator=(const TestArray&) = delete;

    static std::vector<ChunkGeometry> geometry(const std::vector<Box>& boxes) {
        std::vector<ChunkGeometry> chunks;
        for (const Box& b : boxes) chunks.push_back({MemoryId::host(), b});
        return chunks;
    }
    static std::vector<Box> cut(std::int64_t size, std::int64_t chunk) {
        std::vector<Box> boxes;
        for (std::int64_t i = 0; i < size; i += chunk) boxes.push_back(line(i, std::min(i + chunk, size)));
        return boxes;
    }
    void written(const Box& region) { boxes_written[layout.find(region)].push_back(region); }
    TestArray& all_written() {
        for (const ChunkGeometry& c : layout.list()) written(c.box);
        return *this;
    }
    // ---- plan::Written
    State state_of(std::uint32_t chunk) const noexcept override {
        Box missing;
        return {nullptr, !boxes_written[chunk].empty(), covers(chunk, layout.box(chunk), &missing)};
    }
    bool covers(std::uint32_t chunk, const Box& region, Box* missing) const override {
        std::vector<Box> open{region};
        for (const Box& b : boxes_written[chunk]) {
            std::vector<Box> rest;
            for (const Box& o : open) {
                if (kmm::boxes::overlaps(o, b))
                    kmm::boxes::subtract(o, b, [&](const Box& piece) { rest.push_back(piece); });
                else
                    rest.push_back(o);
            }
            open = std::move(rest);
        }
        if (!open.empty()) *missing = open.front();
        return open.empty();
    }

    Layout layout;
    std::vector<std::vector<Box>> boxes_written;  ///< by chunk
    kmm::plan::PlannedArray planned{&layout, this, 4, kmm::memory::heap_alignment, true};
};

/// A request that names its array.
struct Request : kmm::plan::Request {
    const TestArray* of = nullptr;
};

/// Numbers the arrays of a submit as they come.
class Planner : public kmm::plan::Planner {
  public:
    bool make(const std::vector<Request>& requests) {
        plain_.assign(requests.begin(), requests.end());
        arrays_.clear();
        std::map<const void*, std::uint32_t> numbers;
        for (std::size_t i = 0; i < requests.size(); i++) {
            const TestArray& a = *requests[i].of;
            const auto [at, is_new] = numbers.try_emplace(&a, static_cast<std::uint32_t>(arrays_.size()));
            if (is_new) arrays_.push_back(&a.planned);
            plain_[i].array = at->second;
        }
        return kmm::plan::Planner::make(plain_, arrays_, limits);
    }
    bool first_write(const Box& array, const std::vector<Request>& requests,
                     const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks) {
        plain_.assign(requests.begin(), requests.end());
        return kmm::plan::Planner::first_write(array, plain_, positions, chunks);
    }
    const std::vector<Need>& needs() const { return plan().needs; }
    const std::vector<Temporary>& temporaries() const { return plan().temporaries; }
    std::span<const Piece> pieces(const Temporary& t) const { return plan().pieces_of(t); }

    kmm::plan::Limits limits{std::vector<std::size_t>(3, SIZE_MAX)};

  private:
    std::vector<kmm::plan::Request> plain_;
    std::vector<const kmm::plan::PlannedArray*> arrays_;
};

inline Request request(const TestArray& array, AccessKind kind, const Box& region, std::uint32_t task = 0,
                       MemoryIndex memory = host) {
    Request r;
    r.region = region;
    r.of = &array;
    r.kind = kind;
    r.empty = kmm::boxes::is_empty(region, array.layout.rank());
    r.task = task;
    r.memory = memory;
    return r;
}

inline void expect_refused(const Planner& plan, Reason reason, std::uint32_t first, std::uint32_t second = 0) {
    EXPECT_EQ(plan.refusal().reason, reason);
    EXPECT_EQ(plan.refusal().first, first);
    EXPECT_EQ(plan.refusal().second, second);
}
inline void expect_region(const Planner& plan, std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(plan.refusal().region.begin[0], begin);
    EXPECT_EQ(plan.refusal().region.end[0], end);
}

}  // namespace kmm::plan_test
