#include "kmm/graph/compact_history.hpp"

#include <algorithm>

namespace kmm::graph {

namespace {

/// Nothing is forgotten, and few readers need no join.
class NoPast final : public Past {
  public:
    TaskNumber join(const TaskNumbers&, bool) override { return 0; }
};

}  // namespace

template<typename Edges> bool CompactHistory::read_whole(TaskNumber task, Edges& predecessors, Past& past) {
    const auto end = readers_.begin() + num_readers_;
    if (num_readers_ != 0 && end[-1] == task) {
        // It has come after the writer already.
    } else {
        if (num_readers_ == most_readers) {
            const auto kept = std::remove_if(readers_.begin(), end, [&](TaskNumber r) { return past.is_forgotten(r); });
            num_readers_ = static_cast<std::uint8_t>(kept - readers_.begin());
            if (num_readers_ == most_readers) return false;
        }
        readers_[num_readers_++] = task;
    }
    if (!past.is_forgotten(writer_)) add_predecessor(predecessors, writer_, true);
    return true;
}

template<typename Edges>
bool CompactHistory::read_part(const Box& region, TaskNumber task, Edges& predecessors, const Past& past) {
    if (!part_readers_) part_readers_.make(rank_);
    if (!part_readers_->was_read_last_by(region, task)) {
        if (part_readers_->size() == most_part_readers)
            part_readers_->drop_if([&](TaskNumber reader) { return past.is_forgotten(reader); });
        if (part_readers_->size() == most_part_readers) return false;
        part_readers_->add(region, task);
    }
    if (!past.is_forgotten(writer_)) add_predecessor(predecessors, writer_, true);
    return true;
}

template<typename Edges>
void CompactHistory::come_after_part_readers(TaskNumber task, Edges& predecessors, const Past& past) const {
    const auto is_before = [&](TaskNumber reader) { return reader != task && !past.is_forgotten(reader); };
    // Beyond the room that a task's record has for edges, the list grows once instead of several times.
    constexpr std::size_t few = 4;
    if (part_readers_->size() > few) {
        std::size_t count = 0;
        part_readers_->each_task([&](TaskNumber reader) { count += is_before(reader) ? 1 : 0; });
        make_room_for_more(predecessors, count);
    }
    part_readers_->each_task([&](TaskNumber reader) {
        if (is_before(reader)) add_predecessor(predecessors, reader, false);
    });
}

template<typename Edges>
bool CompactHistory::write_whole(TaskNumber task, bool keeps_content, Edges& predecessors, const Past& past) {
    if (detail_) return false;
    const auto come_after = [&](TaskNumber number, bool data) {
        if (number != task && !past.is_forgotten(number)) add_predecessor(predecessors, number, data);
    };
    if (is_whole_) come_after(writer_, keeps_content);
    for (std::size_t i = 0; i < num_readers_; ++i) come_after(readers_[i], false);
    if (part_readers_) {
        come_after_part_readers(task, predecessors, past);
        // As long as there are some between two writes their memory stays.
        if (part_readers_->size() == 0)
            part_readers_.reset();
        else
            part_readers_->clear();
    }
    writer_ = task;
    num_readers_ = 0;
    is_whole_ = true;
    return true;
}

template bool CompactHistory::read_whole(TaskNumber, Predecessors&, Past&);
template bool CompactHistory::read_whole(TaskNumber, TaskEdges&, Past&);
template bool CompactHistory::read_part(const Box&, TaskNumber, Predecessors&, const Past&);
template bool CompactHistory::read_part(const Box&, TaskNumber, TaskEdges&, const Past&);
template bool CompactHistory::write_whole(TaskNumber, bool, Predecessors&, const Past&);
template bool CompactHistory::write_whole(TaskNumber, bool, TaskEdges&, const Past&);

void CompactHistory::make_detail(const Box& box) {
    Lazy<ChunkHistory> made;
    made.make(rank_);
    if (is_whole_) {
        NoPast past;
        Predecessors none_needed;
        made->write(box, writer_, false, none_needed, past);
        for (std::size_t i = 0; i < num_readers_; ++i) made->read(box, readers_[i], none_needed, past);
        if (part_readers_)
            part_readers_->each(
                [&](TaskNumber reader, const Box& region) { made->read(region, reader, none_needed, past); });
    }
    detail_ = std::move(made);
    part_readers_.reset();
    is_whole_ = false;
    num_readers_ = 0;
}

void CompactHistory::become_whole(TaskNumber writer) noexcept {
    detail_.reset();
    writer_ = writer;
    is_whole_ = true;
}

void CompactHistory::writers(const Box& region, Predecessors& predecessors, const Past& past) const {
    if (detail_) return detail_->writers(region, predecessors, past);
    if (is_whole_ && !past.is_forgotten(writer_)) add_predecessor(predecessors, writer_, true);
}

void CompactHistory::users(Predecessors& tasks, const Past& past) const {
    if (detail_) return detail_->users(tasks, past);
    const auto add = [&](TaskNumber number, bool data) {
        if (!past.is_forgotten(number)) tasks.push_back({number, data});
    };
    if (is_whole_) add(writer_, true);
    for (std::size_t i = 0; i < num_readers_; ++i) add(readers_[i], false);
    if (part_readers_) part_readers_->each_task([&](TaskNumber reader) { add(reader, false); });
}

}  // namespace kmm::graph
