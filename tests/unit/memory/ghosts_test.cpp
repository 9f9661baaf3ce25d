// Ghosts: parts of chunks whose home is another device, in their places beside chunks that tasks here write.
#include <gtest/gtest.h>

#include "across_script.hpp"

namespace {

using namespace kmm::residency_test;

/// Four chunks, half of them on each of two devices; tasks of the first read the edge of the second's.
class GhostsTest : public AcrossTest {
  protected:
    void start_halves(std::size_t device_units = 64) {
        start({64 * unit, device_units * unit, 64 * unit});
        script_.all_linked = true;
        residency_->space(gpu).given_again(base_[gpu], device_units * unit, false);
        a_ = make_stack(4);
        for (std::size_t i = 0; i < 4; i++) overwrite_on(i < 2 ? gpu : gpu_1, a_->chunks[i]);
    }
    /// Three chunks, the middle one on the second device.
    void start_around() {
        start({64 * unit, 64 * unit, 64 * unit});
        script_.all_linked = true;
        a_ = make_stack(3);
        for (std::size_t i = 0; i < 3; i++) overwrite_on(i == 1 ? gpu_1 : gpu, a_->chunks[i]);
    }
    template<typename Fences> static bool waits_for(const Fences& waits, Fence fence) {
        return std::any_of(waits.begin(), waits.end(),
                           [&](Fence f) { return f.lane == fence.lane && f.position >= fence.position; });
    }
    Task& read_edge() { return read_across(gpu, *a_, unit - 10, 2 * unit + 10); }
    bool hold(MemoryIndex m, std::size_t chunk, std::size_t begin, std::size_t end) const {
        const auto& r = a_->chunks[chunk].replicas[m];
        return r.has_ghosts() && r.version == a_->chunks[chunk].version &&
               kmm::memory::Ghosts::of(r).hold(box(begin, end));
    }
    std::unique_ptr<Array> a_;
};

TEST_F(GhostsTest, of_a_chunk_that_another_device_has_come_beside_those_that_are_here) {
    start_halves();
    Task& t = read_edge();
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::in_place);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.addresses[0]), a_->chunks[0].replicas[gpu].address + unit - 10);
    EXPECT_TRUE(lie_side_by_side(*a_, 0, 2, gpu));
    ASSERT_EQ(script_.ghosts.size(), 1u);
    EXPECT_EQ(script_.ghosts[0].chunk, &a_->chunks[2]);
    EXPECT_TRUE(script_.ghosts[0].from == gpu_1 && script_.ghosts[0].to == gpu);
    EXPECT_TRUE(kmm::boxes::equal(script_.ghosts[0].box, box(2 * unit, 2 * unit + 10)));
    EXPECT_TRUE(script_.gathers.empty());
    for (const Script::Copy& copy : script_.copies)
        EXPECT_TRUE(copy.from == gpu && copy.to == gpu) << "chunks move once";
    EXPECT_TRUE(waits_for(t.fences, script_.ghosts[0].fence));
    EXPECT_EQ(residency_->missing_bytes(t), 0u);
    EXPECT_EQ(temporaries_[0]->chunk.replicas[gpu].address, 0u) << "no memory is taken for a copy";
}

TEST_F(GhostsTest, serve_every_task_until_the_chunk_is_written_and_then_come_to_the_same_place) {
    start_halves();
    const Fence first = run(read_edge());
    const std::size_t moves = script_.copies.size();
    const Fence second = run(read_edge());
    EXPECT_EQ(script_.ghosts.size(), 1u) << "they are there";
    const std::uintptr_t place = a_->chunks[2].replicas[gpu].address;
    const Fence written = write_on(gpu_1, a_->chunks[2]);
    EXPECT_FALSE(hold(gpu, 2, 2 * unit, 2 * unit + 10));
    EXPECT_EQ(a_->chunks[2].replicas[gpu].address, place) << "the place is kept";
    Task& t = read_edge();
    EXPECT_EQ(residency_->missing_bytes(t), 10u);
    run(t);
    ASSERT_EQ(script_.ghosts.size(), 2u);
    EXPECT_EQ(a_->chunks[2].replicas[gpu].address, place);
    const std::vector<Fence>& waits = script_.ghosts[1].waits;
    EXPECT_TRUE(waits_for(waits, first) && waits_for(waits, second)) << "those that read what was there";
    EXPECT_TRUE(waits_for(waits, written));
    EXPECT_EQ(script_.copies.size(), moves);
}

TEST_F(GhostsTest, of_both_edges_of_a_chunk_stand_in_one_place) {
    start_around();
    std::vector<Task*> readers;
    for (int i = 0; i < 2; i++) {
        readers.push_back(&read_across(gpu, *a_, 0, unit + 10));
        readers.push_back(&read_across(gpu, *a_, 2 * unit - 10, 3 * unit));
    }
    for (Task* t : readers) run(*t);
    EXPECT_EQ(script_.ghosts.size(), 2u);
    EXPECT_TRUE(hold(gpu, 1, unit, unit + 10) && hold(gpu, 1, 2 * unit - 10, 2 * unit));
    EXPECT_FALSE(hold(gpu, 1, unit, unit + 11));
    EXPECT_TRUE(script_.gathers.empty());
    for (std::size_t begin = 20; begin < 60; begin += 10) run(read_across(gpu, *a_, 0, unit + begin));
    EXPECT_TRUE(hold(gpu, 1, unit, unit + 50)) << "of more than there is room for the latest are known";
    EXPECT_FALSE(hold(gpu, 1, 2 * unit - 10, 2 * unit));
}

TEST_F(GhostsTest, give_way_to_the_whole_chunk_and_then_nothing_is_missing) {
    start_halves();
    run(read_edge());
    const std::uintptr_t place = a_->chunks[2].replicas[gpu].address;
    const std::size_t copies = script_.copies.size();
    read_on(gpu, a_->chunks[2]);
    ASSERT_EQ(script_.copies.size(), copies + 1);
    EXPECT_EQ(script_.copies.back().chunk, &a_->chunks[2]);
    EXPECT_EQ(a_->chunks[2].replicas[gpu].address, place);
    EXPECT_FALSE(a_->chunks[2].replicas[gpu].has_ghosts());
    run(read_edge());
    EXPECT_EQ(script_.ghosts.size(), 1u);
    write_on(gpu, a_->chunks[2]);
    run(read_edge());
    EXPECT_EQ(script_.ghosts.size(), 1u) << "it is here";
}

TEST_F(GhostsTest, leave_first_and_are_gathered_from_where_the_chunk_is_while_there_is_no_room) {
    start_halves(6);
    run(read_edge());
    ASSERT_EQ(script_.ghosts.size(), 1u);
    const std::size_t evicted = residency_->space(gpu).counters.evicted_bytes;
    for (int i = 0; a_->chunks[2].replicas[gpu].address != 0 && i < 6; i++) {
        kept_.push_back(make_array(1));
        overwrite_on(gpu, kept_.back()->chunks[0]);
    }
    EXPECT_EQ(a_->chunks[2].replicas[gpu].address, 0u);
    EXPECT_EQ(residency_->space(gpu).counters.evicted_bytes, evicted) << "nothing was saved before they had left";
    Task& t = read_edge();
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::gather);
}

TEST_F(GhostsTest, come_from_the_host_as_well_where_other_devices_write_the_chunk) {
    start_halves();
    for (const std::size_t i : {2, 3}) a_->written_by[gpu_1].add(static_cast<std::uint32_t>(i));
    // The host has the only copy.
    write_on(host, a_->chunks[2]);
    ASSERT_EQ(a_->chunks[2].replicas[gpu_1].address, 0u);
    const std::size_t copies = script_.copies.size();
    run(read_edge());
    ASSERT_EQ(script_.ghosts.size(), 1u);
    EXPECT_TRUE(script_.ghosts[0].from == host);
    for (std::size_t i = copies; i < script_.copies.size(); i++) EXPECT_TRUE(script_.copies[i].from == gpu);
}

TEST_F(GhostsTest, that_were_lost_on_their_way_are_fetched_again_and_cost_nobody_else_anything) {
    start_halves();
    Task& t = read_edge();
    run(t);
    Chunk& c = a_->chunks[2];
    const std::uint64_t copied_at = c.copied_at;
    // The chunk itself moves meanwhile, as its device lays its chunks side by side.
    const auto between = make_array(1);
    overwrite_on(gpu_1, between->chunks[0]);
    Task& other = read_across(gpu_1, *a_, 2 * unit, 3 * unit + 10);
    run(other);
    residency_->part_failed(c, gpu, copied_at);
    EXPECT_EQ(c.lost, nullptr) << "the other device has it";
    const auto concerned = [&](const Task& task, MemoryIndex m) {
        return std::any_of(task.uses.begin(), task.uses.end(), [&](const Use& u) {
            return u.chunk == &c && kmm::memory::may_have_taken_part(u, m, copied_at);
        });
    };
    EXPECT_TRUE(concerned(t, gpu));
    EXPECT_FALSE(concerned(other, gpu));
    EXPECT_FALSE(hold(gpu, 2, 2 * unit, 2 * unit + 10));
    run(read_edge());
    EXPECT_EQ(script_.ghosts.size(), 2u);
}

TEST_F(GhostsTest, of_one_version_come_beside_each_other_and_wait_for_no_reader) {
    start_around();
    Task &left = read_across(gpu, *a_, 0, unit + 10), &right = read_across(gpu, *a_, 2 * unit - 10, 3 * unit);
    const Fence read = run(left);
    run(right);
    ASSERT_EQ(script_.ghosts.size(), 2u);
    const std::vector<Fence>& waits = script_.ghosts[1].waits;
    EXPECT_FALSE(waits_for(waits, read));
    EXPECT_TRUE(waits_for(waits, script_.ghosts[0].fence)) << "and what was there before it";
}

TEST_F(GhostsTest, come_while_a_function_reads_another_part_of_the_chunk) {
    start_around();
    Task &left = read_across(gpu, *a_, 0, unit + 10), &right = read_across(gpu, *a_, 2 * unit - 10, 3 * unit),
         &wider = read_across(gpu, *a_, 0, unit + 20);
    ASSERT_EQ(place(left), Placement::granted);
    residency_->pin(left);
    EXPECT_EQ(place(right), Placement::granted);
    EXPECT_EQ(right.across()[0].form, Across::Form::in_place);
    EXPECT_EQ(script_.ghosts.size(), 2u);
    EXPECT_EQ(residency_->place(wider), Placement::busy_chunk) << "it would be copied over what is read";
    residency_->unpin(left, nullptr);
    EXPECT_EQ(place(wider), Placement::granted);
}

TEST_F(GhostsTest, have_places_where_they_are_read_and_nowhere_else) {
    start({64 * unit, 64 * unit, 64 * unit});
    script_.all_linked = true;
    constexpr std::size_t n = 16;
    a_ = make_stack(n);
    // Four chunks of the first device, in two rows.
    const auto is_here = [](std::size_t i) { return i == 1 || i == 2 || i == 12 || i == 13; };
    for (std::size_t i = 0; i < n; i++) overwrite_on(is_here(i) ? gpu : gpu_1, a_->chunks[i]);
    std::vector<Task*> readers;
    for (int i = 0; i < 2; i++)
        for (const std::size_t c : {1, 2, 12, 13})
            readers.push_back(&read_across(gpu, *a_, c * unit - 10, (c + 1) * unit + 10));
    for (Task* t : readers) {
        run(*t);
        EXPECT_EQ(t->across()[0].form, Across::Form::in_place);
    }
    EXPECT_LE(script_.ghosts.size(), 6u) << "one for each border, and what was there when chunks were moved";
    EXPECT_TRUE(script_.gathers.empty());
    EXPECT_EQ(residency_->space(gpu).counters.current_bytes, 8 * unit)
        << "four chunks, and one at each of four borders";
}

TEST_F(GhostsTest, take_no_room_that_the_task_itself_needs) {
    start({64 * unit, 5 * unit, 64 * unit});
    script_.all_linked = true;
    residency_->space(gpu).given_again(base_[gpu], 5 * unit, false);
    a_ = make_stack(3);
    for (std::size_t i = 0; i < 3; i++) overwrite_on(i == 0 ? gpu : gpu_1, a_->chunks[i]);
    const auto dirty = make_array(1, 2 * unit), written = make_array(1, 2 * unit);
    overwrite_on(gpu, dirty->chunks[0]);
    Task& t = read_across(gpu, *a_, 0, unit + 10);
    add_overwrite(t, written->chunks[0]);
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::gather);
}

TEST_F(GhostsTest, are_no_gain_where_less_is_here_than_their_places_take) {
    start_halves();
    Task& t = read_across(gpu, *a_, 2 * unit - 10, 2 * unit + 10);
    run(t);
    EXPECT_EQ(t.across()[0].form, Across::Form::gather) << "twenty bytes against a chunk";
    EXPECT_TRUE(script_.ghosts.empty());
}

TEST_F(GhostsTest, wait_while_a_function_reads_what_they_replace) {
    start_halves();
    Task& reader = read_edge();
    ASSERT_EQ(place(reader), Placement::granted);
    residency_->pin(reader);
    write_on(gpu_1, a_->chunks[2]);
    Task& next = read_edge();
    EXPECT_EQ(residency_->place(next), Placement::busy_chunk);
    residency_->unpin(reader, nullptr);
    EXPECT_EQ(script_.woken, std::vector<Task*>{&next});
    EXPECT_NE(a_->chunks[2].replicas[gpu].address, 0u) << "the place is kept";
    run(next);
    EXPECT_EQ(script_.ghosts.size(), 2u);
}

}  // namespace
