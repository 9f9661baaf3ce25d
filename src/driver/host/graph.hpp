// Graphs of work: building, capturing, and what an instantiated graph does when it is launched.
//
// Owns: nodes, captures, executable graphs. Must not know: the driver's API, memory. A graph and an executable graph
// have a lock each; captures share one (the driver's). Lock order: captures, graph; executable graph, stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "driver/driver.hpp"
#include "driver/host/stream.hpp"
#include "driver/host/work.hpp"
#include "driver/locks.hpp"

namespace kmm::driver::host {

/// What lives as long as a graph, and whatever is made of it: calls back at its end.
struct Keep {
    HostCallback on_end = nullptr;
    void* user = nullptr;
    Keep(HostCallback f, void* u) noexcept : on_end(f), user(u) {}
    ~Keep() {
        if (on_end != nullptr) on_end(user);
    }
    Keep(const Keep&) = delete;
    Keep& operator=(const Keep&) = delete;
};
using Keeps = std::vector<std::shared_ptr<Keep>>;

/// One piece of work (none: an empty node) after others.
struct Node {
    Work work;
    std::vector<Node*> after;
};

struct Graph {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;

    locks::Mutex mutex;
    std::vector<std::unique_ptr<Node>> nodes KMM_GUARDED_BY(mutex);  ///< each after all that it depends on
    std::unordered_map<const Node*, std::size_t> index KMM_GUARDED_BY(mutex);
    Keeps keeps KMM_GUARDED_BY(mutex);

    /// A new node whose work the caller fills. Null if one of `after` is no node of this graph. Throws std::bad_alloc.
    Node* add(const GraphNodeHandle* after, std::size_t num_after) KMM_REQUIRES(mutex);
    Node* add(const std::vector<Node*>& after) KMM_REQUIRES(mutex);
    void clear() noexcept KMM_REQUIRES(mutex);
};

/// A graph that can be launched. Its nodes are spread over lanes, which run in order each; lane 0 is the stream of the
/// launch, the others are streams of its own. Independent nodes run at the same time.
struct Exec {
    std::atomic<std::uint32_t> generation{0};
    std::uint32_t slot = 0;

    struct Item {
        Work work;
        std::size_t lane = 0;
        std::vector<std::size_t> after;  ///< all dependencies
    };

    locks::Mutex mutex;
    std::vector<std::unique_ptr<Item>> items KMM_GUARDED_BY(mutex);
    std::unordered_map<const Node*, std::size_t> index KMM_GUARDED_BY(mutex);
    std::vector<Stream*> lanes KMM_GUARDED_BY(mutex);  ///< [0] is unused
    std::vector<std::uint64_t> positions KMM_GUARDED_BY(mutex);
    std::vector<Op*> ops KMM_GUARDED_BY(mutex);
    Keeps keeps KMM_GUARDED_BY(mutex);
    Stream* last_stream KMM_GUARDED_BY(mutex) = nullptr;  ///< launches of one executable graph run one after the other
    std::uint64_t last_position KMM_GUARDED_BY(mutex) = 0;

    /// Takes over the nodes and chooses lanes; `lanes` gets that many null pointers. Throws std::bad_alloc.
    void build(const Graph& graph) KMM_REQUIRES(mutex, graph.mutex);
    /// The same nodes and dependencies with other work. False and no change if the shapes differ. Throws
    /// std::bad_alloc.
    bool update(const Graph& graph) KMM_REQUIRES(mutex, graph.mutex);
    /// Puts everything into the queues. The mutexes of all lanes are held too: unchecked, since clang cannot name them.
    /// All or nothing.
    void enqueue(Stream& stream, std::uint32_t num_slots) KMM_REQUIRES(mutex, stream.mutex) KMM_UNCHECKED_LOCKS;
    void clear() noexcept KMM_REQUIRES(mutex);

  private:
    std::size_t choose_lane(const Item& item, std::vector<std::size_t>& last_of_lane, std::size_t self) const
        KMM_REQUIRES(mutex);
};

/// A capture in progress. With the captures' lock held.
class Capture {
  public:
    Capture(std::uint64_t id, CaptureMode mode, Stream& origin, Graph& graph);

    std::uint64_t id() const noexcept { return id_; }
    CaptureMode mode() const noexcept { return mode_; }
    Stream& origin() const noexcept { return origin_; }
    Graph& graph() const noexcept { return graph_; }
    std::thread::id thread() const noexcept { return thread_; }
    bool invalidated() const noexcept { return invalidated_; }
    void invalidate() noexcept { invalidated_ = true; }

    /// Whether a stream of this device which synchronises with the legacy stream takes part.
    bool holds_blocking_stream(int device) const noexcept;
    /// The stream's next work comes after these nodes too; a stream that does not take part joins. Throws
    /// std::bad_alloc.
    void join(Stream& stream, const std::vector<Node*>& nodes);
    const std::vector<Node*>& tail(Stream& stream) { return tails_[&stream]; }
    /// A new node at the end of the stream. Throws std::bad_alloc.
    Node& add(Stream& stream);
    /// Whether everything captured happens before the end of the origin stream.
    bool all_joined() const;
    /// Streams go back to running their work.
    void detach() noexcept;

  private:
    const std::uint64_t id_;
    const CaptureMode mode_;
    Stream& origin_;
    Graph& graph_;
    const std::thread::id thread_;
    bool invalidated_ = false;
    std::unordered_map<Stream*, std::vector<Node*>> tails_;
};

}  // namespace kmm::driver::host
