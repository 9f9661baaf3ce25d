// The events of a runtime as plain values, and the sink that receives them.
//
// Owns: the types. A sink is attached to an Emitter, which is handed down to all code that emits events, and costs a
// load and a branch while no sink is attached. Must not know: files, records of tasks and chunks, how an event is
// shown. Times are nanoseconds of `clock_ns`; the sink stamps events without a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kmm/base/memory_index.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/graph/position.hpp"
#include "kmm/graph/task_number.hpp"

namespace kmm::trace {

using graph::Fence;
using graph::FenceSet;
using graph::LaneId;
using graph::LaneInfo;
using graph::LaneRole;
using graph::Position;

/// Zero stands for "none" wherever a number is optional: tasks and arrays are numbered from 1, positions too. Helpers
/// are tasks with numbers of their own: see graph::is_helper.
using Number = std::uint64_t;

using Memory = memory::MemoryIndex;

inline std::int64_t clock_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// What does not change while a runtime lives.
struct Machine {
    std::string driver;
    std::uint32_t runtime = 0;
    memory::PerMemory<std::string> memories;  ///< names: "host", "GPU 0: NVIDIA H200"
    memory::PerMemory<std::size_t> limits_bytes;
    std::vector<LaneInfo> lanes;  ///< by number
};

/// An array that was bound to the runtime.
struct Array {
    Number number = 0;
    std::string name;       ///< as messages call it
    bool is_named = false;  ///< by the program; else the name is a number of the process
    std::uint32_t rank = 0;
    std::size_t element_bytes = 0;
    detail::Box box;
    std::vector<detail::Box> chunks;  ///< boxes, by index
    std::uint32_t num_pieces = 0;     ///< of a temporary, which no handle names: the chunks that its region meets
};

enum class TaskKind : std::uint8_t { join, barrier, host, function, kernel, transfer };

/// One access of a task.
struct Use {
    Number array = 0;
    std::uint32_t chunk = 0;
    detail::AccessKind kind = detail::AccessKind::read;
    bool empty = false;
    std::uint32_t rank = 0;
    detail::Box region;
    // What the task needs of the chunk; said with its first use of it.
    bool first_of_chunk = false;
    bool needs_content = false;
    bool writes_chunk = false;
    bool replaces_chunk = false;
    bool anywhere = false;  ///< read wherever the chunk is
    bool gathers = false;   ///< of a temporary that the task fills from its pieces, or reads these in its place
    bool is_piece = false;  ///< a chunk that such a region lies in; those of one region follow each other
};

struct Predecessor {
    Number task = 0;
    bool data = false;  ///< a failure there cancels the task; else it is order only
};

/// A task that has its place in the order of submission.
struct Task {
    Number number = 0;
    TaskKind kind = TaskKind::join;
    Memory memory;  ///< that it runs in
    std::string name;
    std::uint32_t chunk_index = 0;  ///< of its submit's domain
    std::uint32_t num_chunks = 0;
    std::vector<std::int64_t> offset;  ///< of its chunk of the domain
    std::vector<std::int64_t> size;
    std::uint32_t grid[3] = {0, 0, 0};  ///< of kernels
    std::uint32_t block[3] = {0, 0, 0};
    std::uint32_t shared_bytes = 0;
    std::vector<Use> uses;
    std::vector<Predecessor> predecessors;
};

enum class What : std::uint8_t {
    ready,        ///< task: may be issued as soon as there is memory for it
    copy,         ///< lane, position, array, chunk, from, to, bytes, task, fences: handed to a device's thread
    move,         ///< lane, position, from, to, bytes, task, fences: a transfer was handed to a device's thread
    launch,       ///< lane, position, task, fences: a kernel was handed to a device's thread
    start,        ///< task, fences: its function was handed to a thread
    returned,     ///< lane, position, task: a device function returned; what it put on the lane ends there
    evict,        ///< array, chunk, from, bytes, flag: its content was saved (else it was dropped)
    completed,    ///< lane, position: all up to there has been seen to be done
    settled,      ///< task, flag: well; else `other` is the number of the task whose failure it is
    dropped,      ///< array: its last handle; tasks that were submitted before may use it still
    array_freed,  ///< array
    wait_begins,  ///< task, from: it finds no memory there
    wait_ends,    ///< task, from
    memory,       ///< from, bytes: in use there; `other`: taken from the driver
    // Emitted by the executing thread, with begin_ns and end_ns:
    submit,    ///< task: the first; `other`: how many
    turn,      ///< of the scheduler
    fed,       ///< lane, position: it is on the stream
    ran,       ///< lane, position: the device's own time
    function,  ///< task, from: the program's function on a thread
};

struct Event {
    What what = What::ready;
    bool flag = false;
    LaneId lane = LaneId::none;
    std::uint32_t chunk = 0;
    Memory from{};
    Memory to{};
    Position position = 0;
    Number task = 0;
    Number array = 0;
    std::size_t bytes = 0;
    std::uint64_t other = 0;
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
};

/// A receiver of events. Called on any thread; must not block for long, nor call the emitting code. Events that find no
/// host memory are lost, and counted.
class Sink {
  public:
    virtual void bound(const Array& array) noexcept = 0;
    /// The program has given the array a name.
    virtual void named(Number array, const std::string& name) noexcept = 0;
    virtual void submitted(Task&& task) noexcept = 0;
    virtual void note(const Event& event, const FenceSet* fences = nullptr) noexcept = 0;
    /// `count` calls of the above were left out: the host had no memory to make what they tell.
    virtual void lost(std::uint64_t count) noexcept = 0;

  protected:
    ~Sink() = default;
};

class Emitter {
  public:
    Emitter() = default;
    Emitter(const Emitter&) = delete;
    Emitter& operator=(const Emitter&) = delete;
    /// Any thread; O(1). A sink may still be called for a moment after it was replaced: it must live as long as the
    /// threads that emit.
    void listen(Sink* sink) noexcept { sink_.store(sink, std::memory_order_release); }
    /// Null: no sink is attached.
    Sink* sink() const noexcept { return sink_.load(std::memory_order_acquire); }

  private:
    std::atomic<Sink*> sink_{nullptr};
};

/// An emitter without a sink.
inline const Emitter nobody_listens;

}  // namespace kmm::trace
