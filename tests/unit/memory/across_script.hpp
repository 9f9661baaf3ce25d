// Regions across chunks for tests of residency: tasks that read them, and arrays whose chunks are neighbours.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "residency_script.hpp"

namespace kmm::residency_test {

/// Arrays of chunks of one unit each, cut along one axis of bytes.
class AcrossTest : public ResidencyTest {
  protected:
    std::unique_ptr<Array> make_stack(std::size_t chunks) {
        auto a = make_array(chunks);
        kmm_test::make_stack(*a);
        return a;
    }
    static kmm::detail::Box box(std::size_t begin, std::size_t end) {
        kmm::detail::Box b;
        b.begin[0] = static_cast<std::int64_t>(begin);
        b.end[0] = static_cast<std::int64_t>(end);
        return b;
    }
    /// Reads the bytes from `begin` to `end` of the array in memory `m`.
    Task& read_across(MemoryIndex m, Array& a, std::size_t begin, std::size_t end) {
        temporaries_.push_back(
            std::make_unique<Temporary>(box(begin, end), 1, 1, kmm::memory::heap_alignment,
                                        static_cast<std::uint32_t>((end - 1) / unit - begin / unit + 1)));
        temporaries_.back()->is_gathered = true;
        return read_across(m, a, begin, end, *temporaries_.back());
    }
    /// The same with a temporary that other tasks share.
    Task& read_across(MemoryIndex m, Array& a, std::size_t begin, std::size_t end, Temporary& temporary) {
        Task& t = make_task(m, {{&temporary.chunk, false, false}});
        t.uses[0].role = Use::Role::region;
        Across& across = t.cold_part(kmm::graph::UseOfReserve::no).across.emplace_back();
        across.region = box(begin, end);
        across.num_parts = temporary.num_pieces;
        across.may_be_in_place = true;
        across.offset_from_first_part = begin % unit;
        for (std::uint32_t i = 0; i < across.num_parts; i++) {
            Chunk& c = a.chunks[begin / unit + i];
            Use& part = t.uses.emplace_back();
            part.chunk = &c;
            part.role = Use::Role::part;
            part.needs_content = true;
            part.is_small_part = std::min(end, (c.index + 1) * unit) - std::max(begin, c.index * unit) <= unit / 8;
            residency_->residents().add_next_use(c, kmm::memory::next_use_of(t, part));
            a.neighbours[m].chunks.add(c.index);
            t.cold->parts.emplace_back() = 1 + i;
        }
        return t;
    }
    /// The task overwrites this chunk, too.
    void add_overwrite(Task& task, Chunk& chunk) {
        Use& write = add_use(task, chunk);
        write.writes = write.replaces = true;
        residency_->residents().add_next_use(chunk, {task.number, kmm::memory::NextUses::Kind::replaces});
    }
    bool lie_side_by_side(Array& a, std::size_t first, std::size_t last, MemoryIndex m) {
        for (std::size_t i = first; i < last; i++)
            if (a.chunks[i].replicas[m].address + unit != a.chunks[i + 1].replicas[m].address) return false;
        return true;
    }

    std::vector<std::unique_ptr<Temporary>> temporaries_;
    std::vector<std::unique_ptr<Array>> kept_;
};

}  // namespace kmm::residency_test
