// The fields of a kernel's parameters: addresses and strides, in each form in which a region is met. Single-threaded.
#include "kmm/memory/places.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

namespace {

using kmm::detail::ParameterField;
using kmm::graph::Across;
using kmm::graph::Use;
using kmm::graph::View;
using kmm::memory::write_fields;

const auto gpu = kmm::memory::MemoryIndex::of_device(0);
constexpr std::int64_t rows = 4, columns = 10;

/// A kernel that reads rows 2 to 6 and columns 1 to 9 of an array that is cut after its fourth row.
class Fields : public ::testing::Test {
  protected:
    Fields() {
        array_.rank = 2;
        array_.element_bytes = 4;
        kmm::detail::Box all;
        all.end[0] = 2 * rows, all.end[1] = columns;
        const std::int64_t chunk[] = {rows, columns};
        array_.set_layout(std::make_shared<kmm::plan::Layout>(2, all, chunk, kmm::plan::ChunkHomes()), 1);
        for (std::size_t i = 0; i < 2; i++) lay(array_.touch(i), 0x10000 + i * rows * columns * 4);
        region_.begin[0] = 2, region_.end[0] = 6, region_.begin[1] = 1, region_.end[1] = 9;
        temporary_ = std::make_unique<kmm::memory::Temporary>(region_, 2, 4, kmm::memory::heap_alignment, 2);
        lay(temporary_->chunk, 0x20000);

        task_.kind = kmm::graph::TaskKind::kernel;
        task_.set_kernel({});
        task_.memory = gpu;
        task_.kernel.parameters = bytes_;
        use(temporary_->chunk).role = Use::Role::region;
        Across& across = task_.cold_part(kmm::graph::UseOfReserve::no).across.emplace_back();
        across.num_parts = 2;
        across.may_be_in_place = true;
        across.offset_from_first_part = (2 * columns + 1) * 4;
        for (std::uint32_t i = 0; i < 2; i++) {
            use(array_.touch(i)).role = Use::Role::part;
            task_.cold->parts.emplace_back() = 1 + i;
        }
        task_.views.emplace_back().use = 0;
    }
    void lay(kmm::memory::Chunk& chunk, std::uintptr_t at) {
        kmm::memory::Replica& r = *replicas_.emplace_back(std::make_unique<kmm::memory::Replica>());
        r.order = kmm::memory::Replica::order_of(gpu);
        r.chunk = &chunk;
        r.set_block(at, at);
        chunk.replicas.insert(r);
    }
    Use& use(kmm::memory::Chunk& chunk) {
        Use& u = task_.uses.emplace_back();
        u.chunk = &chunk;
        u.memory = gpu;
        return u;
    }
    template<typename T> T at(std::size_t offset) const {
        T value;
        std::memcpy(&value, bytes_ + offset, sizeof(T));
        return value;
    }

    std::vector<std::unique_ptr<kmm::memory::Replica>> replicas_;
    kmm::memory::Array array_;
    kmm::detail::Box region_;
    std::unique_ptr<kmm::memory::Temporary> temporary_;
    kmm::graph::Task task_;
    std::byte bytes_[64] = {};
};

TEST_F(Fields, are_the_strides_of_the_chunks_where_these_are_read_and_of_the_region_where_it_is_gathered) {
    task_.fields.push_back(ParameterField::address(8, 0));
    task_.fields.push_back(ParameterField::stride(16, 0, 0, 8));
    task_.fields.push_back(ParameterField::stride(28, 0, 0, 4));
    task_.fields.push_back(ParameterField::stride(32, 0, 1, 8));
    write_fields(task_);
    EXPECT_EQ(at<std::uintptr_t>(8), 0x20000u);
    EXPECT_EQ(at<std::int64_t>(16), 8);
    EXPECT_EQ(at<std::int32_t>(28), 8);
    EXPECT_EQ(at<std::int32_t>(24), 0) << "four bytes are written, and no more";
    EXPECT_EQ(at<std::int64_t>(32), 1);

    task_.across()[0].form = Across::Form::in_place;
    task_.uses[0].place = Use::Place::none;
    write_fields(task_);
    EXPECT_EQ(at<std::uintptr_t>(8), 0x10000u + (2 * columns + 1) * 4);
    EXPECT_EQ(at<std::int64_t>(16), columns);
    EXPECT_EQ(at<std::int32_t>(28), columns);
    EXPECT_EQ(at<std::int64_t>(32), 1);
}

TEST_F(Fields, of_several_views_each_see_their_own) {
    View& of_chunk = task_.views.emplace_back();
    of_chunk.use = 1;
    of_chunk.offset_bytes = 12;
    (void)task_.views.emplace_back();  // of nothing
    for (std::uint32_t i = 0; i < 3; i++) {
        task_.fields.push_back(ParameterField::address(i * 16, i));
        task_.fields.push_back(ParameterField::stride(i * 16 + 8, i, 0, 8));
    }
    bytes_[32] = bytes_[40] = std::byte{7};
    write_fields(task_);
    EXPECT_EQ(at<std::uintptr_t>(0), 0x20000u);
    EXPECT_EQ(at<std::int64_t>(8), 8);
    EXPECT_EQ(at<std::uintptr_t>(16), 0x10000u + 12);
    EXPECT_EQ(at<std::int64_t>(24), columns);
    EXPECT_EQ(at<std::uintptr_t>(32), 0u) << "an empty region";
    EXPECT_EQ(at<std::int64_t>(40), 0);
}

}  // namespace
