// Arrays and requests for tests of what submits need.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "../graph/boxes.hpp"
#include "kmm/plan/needs.hpp"

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

/// An array as a plan sees it.
struct TestArray {
    TestArray(std::size_t rank, const Box& all, const std::vector<Box>& boxes)
        : layout(rank, all, geometry(boxes)), histories(boxes.size()) {}
    /// A line of chunks of one size.
    TestArray(std::int64_t size, std::int64_t chunk) : TestArray(1, line(0, size), cut(size, chunk)) {}

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
    void written(const Box& region) {
        struct : kmm::graph::Past {
            kmm::graph::TaskNumber join(const kmm::graph::TaskNumbers&, bool) override { return 0; }
        } past;
        kmm::graph::Predecessors predecessors;
        const std::size_t chunk = layout.find(region);
        const auto box = [&] { return layout.box(chunk); };
        histories.touch(chunk, [&] { return kmm::graph::CompactHistory(layout.rank()); })
            .write(region, kmm::graph::equal(region, box()), box, 1, false, predecessors, past);
    }
    TestArray& all_written() {
        for (const ChunkGeometry& c : layout.list()) written(c.box);
        return *this;
    }

    Layout layout;
    kmm::graph::ChunkHistories histories;
};

/// A request that names its array by what belongs to it.
struct Request : kmm::plan::Request {
    const Layout* layout = nullptr;
    const kmm::graph::ChunkHistories* histories = nullptr;
};

/// Numbers the arrays of a submit as they come.
class SubmitPlan : public kmm::plan::SubmitPlan {
  public:
    bool make(const std::vector<Request>& requests) {
        plain_.assign(requests.begin(), requests.end());
        arrays_.clear();
        std::map<const void*, std::uint32_t> numbers;
        for (std::size_t i = 0; i < requests.size(); i++) {
            const Request& r = requests[i];
            const auto [at, is_new] = numbers.try_emplace(r.histories, static_cast<std::uint32_t>(arrays_.size()));
            if (is_new) arrays_.push_back({r.layout, r.histories});
            plain_[i].array = at->second;
        }
        return kmm::plan::SubmitPlan::make(plain_, arrays_);
    }
    bool first_write(const Box& array, const std::vector<Request>& requests,
                     const std::vector<std::uint32_t>& positions, std::vector<ChunkGeometry>& chunks) {
        plain_.assign(requests.begin(), requests.end());
        return kmm::plan::SubmitPlan::first_write(array, plain_, positions, chunks);
    }

  private:
    std::vector<kmm::plan::Request> plain_;
    std::vector<kmm::plan::PlannedArray> arrays_;
};

inline Request request(TestArray& array, AccessKind kind, const Box& region, std::uint32_t task = 0,
                       MemoryIndex memory = host) {
    Request r;
    r.region = region;
    r.layout = &array.layout;
    r.histories = &array.histories;
    r.kind = kind;
    r.empty = kmm::graph::is_empty(region, array.layout.rank());
    r.task = task;
    r.memory = memory;
    return r;
}

inline void expect_refused(const SubmitPlan& plan, Reason reason, std::uint32_t first, std::uint32_t second = 0) {
    EXPECT_EQ(plan.refusal().reason, reason);
    EXPECT_EQ(plan.refusal().first, first);
    EXPECT_EQ(plan.refusal().second, second);
}
inline void expect_region(const SubmitPlan& plan, std::int64_t begin, std::int64_t end) {
    EXPECT_EQ(plan.refusal().region.begin[0], begin);
    EXPECT_EQ(plan.refusal().region.end[0], end);
}

}  // namespace kmm::plan_test
