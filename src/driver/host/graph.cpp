// Owns: building, capturing and expanding graphs (graph.hpp). Runs on users' threads.
#include "driver/host/graph.hpp"

#include <algorithm>
#include <unordered_set>

namespace kmm::driver::host {
namespace {

// Wide graphs share lanes beyond this: more than the workers of most machines can run at once.
constexpr std::size_t max_lanes = 16;

}  // namespace

Node* Graph::add(const GraphNodeHandle* after, std::size_t num_after) {
    std::vector<Node*> nodes_after;
    nodes_after.reserve(num_after);
    for (std::size_t i = 0; i < num_after; ++i) {
        const auto at = index.find(static_cast<const Node*>(after[i].native));
        if (at == index.end()) return nullptr;
        nodes_after.push_back(nodes[at->second].get());
    }
    return add(nodes_after);
}

Node* Graph::add(const std::vector<Node*>& after) {
    auto node = std::make_unique<Node>();
    node->after = after;
    nodes.push_back(std::move(node));
    try {
        index.emplace(nodes.back().get(), nodes.size() - 1);
    } catch (...) {
        nodes.pop_back();
        throw;
    }
    return nodes.back().get();
}

void Graph::clear() noexcept {
    index.clear();
    nodes.clear();
    keeps.clear();
}

std::size_t Exec::choose_lane(const Item& item, std::vector<std::size_t>& last_of_lane, std::size_t self) const {
    // Behind a dependency that is still the last of its lane there is nothing to wait for.
    for (const std::size_t before : item.after)
        if (last_of_lane[items[before]->lane] == before) return items[before]->lane;
    if (last_of_lane.size() < max_lanes) {
        last_of_lane.push_back(self);
        return last_of_lane.size() - 1;
    }
    return self % max_lanes;
}

void Exec::build(const Graph& graph) {
    std::vector<std::size_t> last_of_lane;
    for (const auto& node : graph.nodes) {
        const std::size_t self = items.size();
        auto item = std::make_unique<Item>();
        item->work.copy_from(node->work);
        for (const Node* before : node->after) item->after.push_back(graph.index.at(before));
        item->lane = choose_lane(*item, last_of_lane, self);
        last_of_lane[item->lane] = self;
        index.emplace(node.get(), self);
        items.push_back(std::move(item));
    }
    keeps = graph.keeps;
    lanes.assign(last_of_lane.size(), nullptr);
    positions.assign(items.size(), 0);
    ops.assign(items.size(), nullptr);
}

bool Exec::update(const Graph& graph) {
    if (graph.nodes.size() != items.size()) return false;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const Node& node = *graph.nodes[i];
        if (node.work.kind != items[i]->work.kind || node.after.size() != items[i]->after.size()) return false;
        for (std::size_t k = 0; k < node.after.size(); ++k)
            if (graph.index.at(node.after[k]) != items[i]->after[k]) return false;
    }
    std::vector<std::unique_ptr<Item>> updated;
    std::unordered_map<const Node*, std::size_t> updated_index;
    for (std::size_t i = 0; i < items.size(); ++i) {
        auto item = std::make_unique<Item>();
        item->work.copy_from(graph.nodes[i]->work);
        item->lane = items[i]->lane;
        item->after = items[i]->after;
        updated.push_back(std::move(item));
        updated_index.emplace(graph.nodes[i].get(), i);
    }
    // Nodes of the graph that this was made from stay valid names, beside those of the new one.
    for (const auto& [node, at] : index) updated_index.emplace(node, at);
    items.swap(updated);
    index.swap(updated_index);
    keeps = graph.keeps;
    return true;
}

void Exec::enqueue(Stream& stream, std::uint32_t num_slots) {
    const auto stream_of = [&](std::size_t lane)
                               KMM_REQUIRES(mutex) -> Stream& { return lane == 0 ? stream : *lanes[lane]; };

    // Everything that can fail comes first, so that no half of a graph ever runs.
    std::vector<std::size_t> needed(std::max<std::size_t>(lanes.size(), 1), 2);
    needed[0] += lanes.size();
    for (const auto& item : items) needed[item->lane] += 1 + item->after.size();
    for (std::size_t lane = 0; lane < needed.size(); ++lane) stream_of(lane).reserve(needed[lane], num_slots);
    std::size_t filled = 0;
    try {
        for (; filled < items.size(); ++filled) {
            ops[filled] = stream_of(items[filled]->lane).new_op();
            ops[filled]->work.copy_from(items[filled]->work);
        }
    } catch (...) {
        for (std::size_t i = 0; i <= filled; ++i) stream_of(items[i]->lane).unused(ops[i]);
        throw;
    }

    if (last_stream != nullptr) stream.append_wait(*last_stream, last_position);
    const std::uint64_t start = stream.enqueued();
    for (std::size_t lane = 1; lane < lanes.size(); ++lane) lanes[lane]->append_wait(stream, start);
    for (std::size_t i = 0; i < items.size(); ++i) {
        Stream& own = stream_of(items[i]->lane);
        for (const std::size_t before : items[i]->after)
            own.append_wait(stream_of(items[before]->lane), positions[before]);
        ops[i]->blamed = &stream;
        ops[i]->blamed_position = start + 1;
        positions[i] = own.append(ops[i]);
    }
    for (std::size_t lane = 1; lane < lanes.size(); ++lane) stream.append_wait(*lanes[lane], lanes[lane]->enqueued());
    last_stream = &stream;
    last_position = stream.enqueued();
}

void Exec::clear() noexcept {
    items.clear();
    index.clear();
    lanes.clear();
    keeps.clear();
    last_stream = nullptr;
    last_position = 0;
}

Capture::Capture(std::uint64_t id, CaptureMode mode, Stream& origin, Graph& graph)
    : id_(id), mode_(mode), origin_(origin), graph_(graph), thread_(std::this_thread::get_id()) {
    join(origin, {});
}

bool Capture::holds_blocking_stream(int device) const noexcept {
    return std::any_of(tails_.begin(), tails_.end(),
                       [&](const auto& entry) { return entry.first->blocking && entry.first->device == device; });
}

void Capture::join(Stream& stream, const std::vector<Node*>& nodes) {
    std::vector<Node*>& tail = tails_[&stream];
    for (Node* node : nodes)
        if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
    stream.capture.store(this, std::memory_order_release);
}

Node& Capture::add(Stream& stream) {
    std::vector<Node*>& tail = tails_[&stream];
    tail.reserve(std::max<std::size_t>(tail.size(), 1));
    const locks::Guard lock(graph_.mutex);
    Node* node = graph_.add(tail);
    tail.assign(1, node);
    return *node;
}

bool Capture::all_joined() const {
    std::unordered_set<const Node*> reached;
    std::vector<const Node*> todo(tails_.at(&origin_).begin(), tails_.at(&origin_).end());
    while (!todo.empty()) {
        const Node* node = todo.back();
        todo.pop_back();
        if (reached.insert(node).second) todo.insert(todo.end(), node->after.begin(), node->after.end());
    }
    return std::all_of(tails_.begin(), tails_.end(), [&](const auto& entry) {
        return std::all_of(entry.second.begin(), entry.second.end(),
                           [&](const Node* n) { return reached.count(n) != 0; });
    });
}

void Capture::detach() noexcept {
    for (const auto& [stream, tail] : tails_) stream->capture.store(nullptr, std::memory_order_release);
}

}  // namespace kmm::driver::host
