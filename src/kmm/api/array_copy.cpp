// Copies between arrays and memory of the program: tasks of the library's own, one for each chunk concerned, or for
// several small ones where there are very many.
//
// Runs on the calling thread, which waits for the tasks of a copy unless it is asynchronous: they run on the host pool,
// the first one on the calling thread itself where the runtime is idle. A copy out reads chunks wherever they are, and
// begins to write only when every chunk that it reads is known to be good and the call has all the memory that it
// needs. Copies with device memory of the program are ordered after the caller's stream.
#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "driver/check.hpp"
#include "driver/format.hpp"
#include "kmm/api/caller_stream.hpp"
#include "kmm/api/chunk_batch.hpp"
#include "kmm/api/chunk_groups.hpp"
#include "kmm/api/device_reader.hpp"
#include "kmm/detail/strided_box.hpp"
#include "kmm/engine/device_error.hpp"
#include "kmm/plan/submit_plan.hpp"

namespace kmm::detail {

namespace {

using graph::Task;

// A copy out needs no room for its chunks, but each of its tasks waits for a device at least once: tasks are larger,
// for any number of chunks, as long as each thread has some.
constexpr std::size_t most_group_bytes_out = std::size_t{2} << 20;
constexpr std::size_t groups_per_thread = 4;

/// What a copy needs until its tasks have ended: those of an asynchronous one keep it.
class CopyKept {
  public:
    std::optional<CallerStream> after;         ///< with device memory, unless that has passed
    std::optional<CopyBuffers::Hold> buffers;  ///< of a copy out of devices to the host
    std::shared_ptr<const void> source;        ///< that the program gave away

    /// For copies with device memory on that device, after the caller's stream. One for all tasks: where it cannot be
    /// made, all of them fail, before anything is written. DE.
    driver::StreamHandle stream(RuntimeCore& core, int ordinal) {
        std::call_once(is_taken_, [&] {
            try {
                lease_.emplace(core.copy_streams(), ordinal);
                if (after)
                    check_device(core.platform().driver(), ordinal, after->order(lease_->handle()),
                                 "ordering a copy after the calling thread's stream");
            } catch (...) {
                failed_ = std::current_exception();
            }
        });
        if (failed_ != nullptr) std::rethrow_exception(failed_);
        return lease_->handle();
    }

  private:
    std::once_flag is_taken_;
    std::optional<CopyStreams::Lease> lease_;
    std::exception_ptr failed_;
};

/// What all parts of a copy share. Axes beyond the rank have one element and come first: the last one is the row that
/// copies run along.
struct CopyShared {
    RuntimeCore* core = nullptr;
    std::int64_t user_strides[max_rank] = {};  ///< elements
    std::size_t element_bytes = 0;
    bool to_user = false;
    bool user_on_device = false;
    int user_ordinal = 0;  ///< of the device that the program's memory is on
    CopyKept* kept = nullptr;
    std::shared_ptr<CopyKept> owner;  ///< null: the caller has it, and waits

    bool is_passed() const noexcept { return !kept->after || kept->after->passed(); }
};

/// One chunk's part of a copy. Those of a task follow each other, in the memory of its record.
struct CopyPart {
    std::byte* user;  ///< element at the part's first index
    std::int64_t chunk_strides[max_rank];
    std::int64_t sizes[max_rank];
    std::byte* owned;  ///< a copy of the source, packed, where the caller cannot wait; `user` is there
};

void set_packed_strides(const std::int64_t* sizes, std::int64_t* strides) noexcept {
    std::int64_t count = 1;
    for (std::size_t k = max_rank; k-- > 0;) {
        strides[k] = count;
        count *= sizes[k];
    }
}

std::size_t bytes_of(const CopyPart& part, std::size_t element_bytes) noexcept {
    std::size_t bytes = element_bytes;
    for (const std::int64_t size : part.sizes) bytes *= static_cast<std::size_t>(size);
    return bytes;
}

/// With device memory of the program on one side at least.
void copy_with_device(const CopyShared& shared, const StridedCopy& copy) {
    driver::Driver& driver = shared.core->platform().driver();
    const driver::StreamHandle stream = shared.kept->stream(*shared.core, shared.user_ordinal);
    const driver::Status put = put_on_stream(copy, shared.element_bytes, driver, stream);
    // What the program has put on its stream may take long, or wait for tasks that stand behind this one.
    std::optional<engine::Workers::Wait> wait;
    if (!shared.is_passed()) wait.emplace();
    // Whatever happens, nothing touches the program's memory when this returns.
    const driver::Status done = driver.synchronize_stream(stream);
    for (const driver::Status& status : {put, done})
        driver::check(driver, status, "copy between an array and device memory");
}

/// The parts of a task, one for each view; they follow behind.
struct CopyGroup {
    CopyShared shared;
    const Task* task;  ///< whose memory this is
    std::size_t num_parts = 0;

    CopyGroup(const CopyShared& of_all, const Task& record) noexcept : shared(of_all), task(&record) {}
    static std::size_t size_bytes(std::size_t num_parts) noexcept {
        static_assert(sizeof(CopyGroup) % alignof(CopyPart) == 0);
        return sizeof(CopyGroup) + num_parts * sizeof(CopyPart);
    }
    std::byte* place(std::size_t i) noexcept {
        return reinterpret_cast<std::byte*>(this) + sizeof(CopyGroup) + i * sizeof(CopyPart);
    }
    /// Where the task uses the chunk of a part.
    memory::MemoryIndex memory_of(std::size_t i) const noexcept { return task->uses[task->views[i].use].memory; }
    CopyPart& part(std::size_t i) noexcept { return *std::launder(reinterpret_cast<CopyPart*>(place(i))); }
};

void destroy_copy_group(void* payload) noexcept {
    CopyGroup& group = *static_cast<CopyGroup*>(payload);
    for (std::size_t i = 0; i < group.num_parts; ++i) delete[] group.part(i).owned;
    group.shared.owner.reset();
}

/// For a copy called inside a task, which must not wait for other tasks: copies the source into `part.owned` at once,
/// where the copy's own task reads it.
void read_source_now(const CopyShared& shared, CopyPart& part) {
    std::int64_t packed[max_rank];
    set_packed_strides(part.sizes, packed);
    const std::size_t bytes = bytes_of(part, shared.element_bytes);
    part.owned = new std::byte[bytes];
    if (shared.user_on_device) {
        const std::int64_t begin = engine::now_ns();
        copy_with_device(shared, {part.owned, packed, part.user, shared.user_strides, part.sizes});
        shared.core->user_copies().count(UserCopies::Kind::device_to_host, bytes, 1, engine::now_ns() - begin);
    } else {
        if (shared.kept->after) shared.kept->after->wait();
        copy_box_on_host(part.owned, packed, part.user, shared.user_strides, part.sizes, shared.element_bytes);
    }
    part.user = part.owned;
}

void run_copy_part(const CopyShared& shared, const CopyPart& part, std::byte* chunk) {
    std::int64_t packed[max_rank];
    const std::int64_t* user_strides = shared.user_strides;
    if (part.owned != nullptr) {
        set_packed_strides(part.sizes, packed);
        user_strides = packed;
    }
    if (shared.user_on_device && part.owned == nullptr) {
        const StridedCopy out{part.user, user_strides, chunk, part.chunk_strides, part.sizes};
        const StridedCopy in{chunk, part.chunk_strides, part.user, user_strides, part.sizes};
        copy_with_device(shared, shared.to_user ? out : in);
    } else if (shared.to_user) {
        copy_box_on_host(part.user, user_strides, chunk, part.chunk_strides, part.sizes, shared.element_bytes);
    } else {
        copy_box_on_host(chunk, part.chunk_strides, part.user, user_strides, part.sizes, shared.element_bytes);
    }
}

/// Counts the copies of one task by kind. At its end adds them to the counters that all threads share.
class CountedCopies {
  public:
    using Kind = UserCopies::Kind;
    explicit CountedCopies(UserCopies& copies) noexcept : copies_(copies) {}
    ~CountedCopies() {
        const std::int64_t time = engine::now_ns() - begin_;
        for (std::size_t kind = 0; kind < num_kinds; ++kind)
            if (counts_[kind].copies != 0)
                copies_.count(static_cast<Kind>(kind), counts_[kind].bytes, counts_[kind].copies, time);
    }
    CountedCopies(const CountedCopies&) = delete;
    CountedCopies& operator=(const CountedCopies&) = delete;
    void add(Kind kind, std::size_t bytes) noexcept {
        counts_[static_cast<std::size_t>(kind)].bytes += bytes;
        ++counts_[static_cast<std::size_t>(kind)].copies;
    }

  private:
    static constexpr std::size_t num_kinds = UserCopies::num_kinds;
    UserCopies& copies_;
    const std::int64_t begin_ = engine::now_ns();
    UserCopies::Count counts_[num_kinds];
};

/// To memory of the host from chunks on devices, device by device, so that one call of the driver moves many boxes.
void read_from_devices(CopyGroup& group, const TaskContext& context) {
    const CopyShared& shared = group.shared;
    const Platform& platform = shared.core->platform();
    DeviceReader reader(platform, shared.core->copy_buffers(), shared.element_bytes);
    for (std::uint32_t d = 0; d < platform.num_devices(); ++d) {
        for (std::size_t i = 0; i < group.num_parts; ++i) {
            const auto* const chunk = static_cast<const std::byte*>(context.addresses[i]);
            if (chunk == nullptr || group.memory_of(i) != memory::MemoryIndex::of_device(d)) continue;
            const CopyPart& part = group.part(i);
            reader.add(d, {part.user, shared.user_strides, chunk, part.chunk_strides, part.sizes});
        }
    }
    reader.finish();
}

/// Each part is a copy. Of a copy out the chunks are where they were when the task was placed.
void run_copy_group(void* payload, TaskContext& context) {
    using Kind = UserCopies::Kind;
    CopyGroup& group = *static_cast<CopyGroup*>(payload);
    const CopyShared& shared = group.shared;
    // What was read when the task was submitted is memory of the host, and the caller does not wait for the rest.
    const bool is_read = group.part(0).owned != nullptr;
    const bool with_device = shared.user_on_device && !is_read;
    // Memory of another host driver: the host copies, after that driver's stream.
    if (!with_device && !is_read && shared.kept->after) shared.kept->after->wait();
    CountedCopies counted(shared.core->user_copies());
    bool any_on_device = false;
    for (std::size_t i = 0; i < group.num_parts; ++i) {
        const CopyPart& part = group.part(i);
        auto* const chunk = static_cast<std::byte*>(context.addresses[i]);
        if (chunk == nullptr) continue;  // nothing was ever there
        const bool on_device = group.memory_of(i).is_device();
        if (on_device && !with_device)
            any_on_device = true;
        else
            run_copy_part(shared, part, chunk);
        const bool from_device = shared.to_user ? on_device : with_device;
        const bool to_device = shared.to_user ? with_device : on_device;
        const Kind kind = from_device ? (to_device ? Kind::device_to_device : Kind::device_to_host)
                                      : (to_device ? Kind::host_to_device : Kind::host_to_host);
        counted.add(kind, bytes_of(part, shared.element_bytes));
    }
    if (any_on_device) read_from_devices(group, context);
}

/// Who had written what each part of a copy to the program reads. A bad chunk cancels all parts, and only its own names
/// it.
struct SourceWriters {
    std::vector<graph::TaskNumber> writers;
    std::vector<std::size_t> ends;  ///< of each part's in `writers`

    void add_part(const graph::Predecessors& of_part) {
        for (const graph::Predecessor& p : of_part) writers.push_back(p.number);
        ends.push_back(writers.size());
    }
    /// The first part whose chunk carries the failure that the whole copy has; as many as there are parts: none.
    std::size_t find_bad(TaskBooks& books, graph::TaskNumber whole) const {
        const auto failure = books.failure_of(whole);
        if (failure == nullptr) return ends.size();
        std::size_t w = 0;
        for (std::size_t p = 0; p < ends.size(); ++p) {
            for (; w < ends[p]; ++w) {
                const auto cause = books.failure_of(writers[w]);
                if (cause != nullptr && cause->root == failure->root) return p;
            }
        }
        return ends.size();
    }
};

Binding& require_binding(const ArrayRef& array, const Box& region, bool reads) {
    Binding* b = array->binding();
    if (b != nullptr) return *b;
    if (!reads)
        throw InvalidArgument(array->name() +
                              " is not bound to a runtime: use rt.allocate or rt.array instead of copying into it");
    Region missing;
    for (std::size_t k = 0; k < array->rank(); ++k) missing.emplace_back(region.begin[k], region.end[k]);
    throw UninitializedRead(array->name(), missing);
}

/// One call of copy_to or copy_from: tasks for the chunks concerned, and one that is done when they are. Everything
/// that takes long comes before the order lock.
class ArrayCopy final : ChunkBatch {
  public:
    ArrayCopy(const ArrayRef& array, const Box& region, std::byte* user, const std::int64_t* user_strides, bool to_user,
              CopyCall call)
        : ChunkBatch(*array, require_binding(array, region, to_user)),
          region_(region),
          user_(user),
          user_strides_(user_strides),
          to_user_(to_user),
          call_(call) {}
    ~ArrayCopy() {
        if (gate_ != nullptr) books().pool().give(gate_);
    }
    ArrayCopy(const ArrayCopy&) = delete;
    ArrayCopy& operator=(const ArrayCopy&) = delete;

    EventId run(std::shared_ptr<const void> source);

  private:
    void check_arguments() const;
    void describe_tasks();
    CopyShared describe_copy() const;
    void describe_part(CopyPart& c, const Box& box, const Box& part) const;
    void add_view(Task& task, const Box& box, const Box& part, const CopyPart& c) const;
    void throw_failure_of_part();
    DomainChunk domain_of(const Box& part) const;
    // ---- ChunkBatch
    void describe_task(Task& task, std::size_t first, std::size_t count) override;
    std::size_t payload_bytes(std::size_t count) const noexcept override { return CopyGroup::size_bytes(count); }
    std::size_t most_bytes(std::size_t num_chunks, memory::MemoryIndex place) const noexcept override {
        return to_user_ ? most_bytes_out_ : ChunkBatch::most_bytes(num_chunks, place);
    }
    /// What is written in part needs what the chunk holds: where that is lost, only its own task fails.
    bool is_alone(std::size_t chunk) const override {
        return !to_user_ && !boxes::equal(part_of(chunk), box_of(chunk));
    }
    void enter(std::size_t chunk, const Task& task, graph::Predecessors& before) override;
    // ---- Batch
    void check() override;
    void connect() override;
    const plan::Request* requests() const noexcept override { return told_.empty() ? nullptr : told_.data(); }

    [[noreturn]] void throw_unset(const Box& missing) const;
    void find_writers();

    Box part_of(std::size_t chunk) const { return boxes::intersection(box_of(chunk), region_); }

    const Box& region_;
    std::byte* const user_;
    const std::int64_t* const user_strides_;
    const bool to_user_;
    const CopyCall call_;
    /// A blocking copy in a task, which must not wait for other tasks: it reads the source at once.
    const bool reads_now_ = call_.waits && core_.inside_own_task();
    const std::shared_ptr<CopyKept> kept_ = std::make_shared<CopyKept>();
    std::string name_;
    DeviceMemory memory_;
    std::size_t most_bytes_out_ = 0;   ///< for `most_bytes`
    Task* gate_ = nullptr;             ///< of a copy out, a helper: every chunk that is read is known to be good
    CopyShared shared_;                ///< by all parts
    std::vector<plan::Request> told_;  ///< for the trace and the record
    SourceWriters writers_;
};

void ArrayCopy::check_arguments() const {
    if (user_ == nullptr)
        throw InvalidArgument(
            driver::format("{}: the pointer to the program's {} elements is null", name_, boxes::volume(region_)));
    std::int64_t sizes[max_rank];
    for (std::size_t k = 0; k < array_.rank(); ++k) sizes[k] = region_.end[k] - region_.begin[k];
    check_reach(name_.c_str(), array_.rank(), sizes, user_strides_, array_.element_bytes());
    if (reads_now_ && to_user_)
        throw DeadlockError(
            driver::format("a task of runtime {} copies {} of its own runtime, which may never end: submit a "
                           "task that reads the array instead",
                           core_.platform().number(), array_.name()));
}

EventId ArrayCopy::run(std::shared_ptr<const void> source) {
    core_.books().check_open();
    if (boxes::is_empty(region_)) return {};
    name_ = (to_user_ ? "copy_to from " : "copy_from to ") + array_.name();
    check_arguments();
    kept_->source = std::move(source);
    memory_ = device_memory_at(core_, user_);
    if (memory_.driver != nullptr) kept_->after.emplace(core_, memory_, call_.stream, name_.c_str());
    // Pending copies must not take a thread each to wait for the program.
    if (!call_.waits && kept_->after) {
        kept_->after->wait();
        kept_->after.reset();
    }
    // From here on a copy out needs no more memory: it cannot run out of it half-way.
    if (memory_.driver == &core_.platform().driver()) {
        if (call_.waits) (void)kept_->stream(core_, memory_.ordinal);
    } else if (to_user_ && core_.platform().num_devices() != 0) {
        kept_->buffers.emplace(core_.copy_buffers());
    }
    core_.admit();
    describe_tasks();
    if (core_.listeners().any())
        for (const std::size_t chunk : chunks_) told_.emplace_back().region = part_of(chunk);
    const bool runs_later = !call_.waits || reads_now_;
    // The caller's stream may take long: then a thread of the pool waits for it, and this one for the tasks.
    if (runs_later || (kept_->after && !kept_->after->passes_soon()))
        core_.commit(*this);
    else
        core_.commit_and_run(*this);
    if (runs_later) return books().event_of(last());
    core_.wait_settled(last(), nullptr, true);  // the tasks use the program's memory
    if (to_user_) throw_failure_of_part();
    // Of a copy in that fails several chunks may have found no memory: the caller is told of all of them.
    if (books().failure_of(last()) != nullptr)
        for (TaskNumber n = first(); n != last(); ++n) (void)books().deliver_failure(n);
    core_.throw_failure(last());
    return {};
}

void ArrayCopy::describe_tasks() {
    std::vector<std::size_t> chunks;
    binding_.layout->find_all(region_, chunks);
    shared_ = describe_copy();
    if (to_user_) {
        std::size_t bytes = 0;
        for (const std::size_t chunk : chunks) bytes += binding_.block_bytes(chunk);
        const std::size_t share = bytes / (groups_per_thread * core_.platform().config().host_threads);
        most_bytes_out_ = std::clamp(share, most_group_bytes, most_group_bytes_out);
    }
    if (!to_user_) writes_ = "copying";
    make_tasks(chunks, name_, false);
    if (to_user_) gate_ = books().pool().take();
}

/// Of the bad chunk, if it is one that this copy reads.
void ArrayCopy::throw_failure_of_part() {
    const std::size_t part = writers_.find_bad(books(), last());
    if (part == chunks_.size()) return;
    const auto task = std::upper_bound(ends_.begin(), ends_.end(), part) - ends_.begin();
    const std::size_t chunk = chunks_[part];
    core_.throw_failure(first() + static_cast<TaskNumber>(task), static_cast<std::uint32_t>(chunk),
                        domain_of(part_of(chunk)));
}

void ArrayCopy::describe_task(Task& task, std::size_t first, std::size_t count) {
    auto& group = *new (task.allocate_storage(payload_bytes(count), alignof(CopyGroup))) CopyGroup(shared_, task);
    task.function = {{run_copy_group, destroy_copy_group}, &group};
    Box all = part_of(chunks_[first]);  // what errors name
    for (std::size_t i = first; i < first + count; ++i) {
        const Box box = box_of(chunks_[i]);
        const Box part = boxes::intersection(box, region_);
        CopyPart& c = *new (group.place(i - first)) CopyPart;
        describe_part(c, box, part);
        ++group.num_parts;
        if (reads_now_) read_source_now(shared_, c);
        add_view(task, box, part, c);
        for (std::size_t k = 0; k < array_.rank(); ++k) {
            all.begin[k] = std::min(all.begin[k], part.begin[k]);
            all.end[k] = std::max(all.end[k], part.end[k]);
        }
    }
    task.chunk = domain_of(all);
}

DomainChunk ArrayCopy::domain_of(const Box& part) const {
    DomainChunk chunk;
    for (std::size_t k = 0; k < std::min(array_.rank(), DOMAIN_DIMS); ++k) {
        chunk.offset[k] = part.begin[k];
        chunk.size[k] = part.end[k] - part.begin[k];
    }
    return chunk;
}

void ArrayCopy::add_view(Task& task, const Box& box, const Box& part, const CopyPart& c) const {
    std::int64_t offset = 0;
    for (std::size_t k = 0; k < array_.rank(); ++k)  // a part's axes are the last ones
        offset += (part.begin[k] - box.begin[k]) * c.chunk_strides[max_rank - array_.rank() + k];
    graph::View& view = task.views.emplace_back();
    view.use = static_cast<std::uint32_t>(task.uses.size());
    view.offset_bytes = static_cast<std::size_t>(offset) * array_.element_bytes();
    graph::Use& use = task.uses.emplace_back();
    if (to_user_) {
        use.copy_from_anywhere();
    } else {
        view.kind = AccessKind::overwrite;
        use.writes = true;
        use.replaces = boxes::equal(part, box);
        use.needs_content = !use.replaces;
    }
}

CopyShared ArrayCopy::describe_copy() const {
    CopyShared shared;
    shared.core = &core_;
    std::copy_n(user_strides_, array_.rank(), shared.user_strides + (max_rank - array_.rank()));
    shared.element_bytes = array_.element_bytes();
    shared.to_user = to_user_;
    shared.user_on_device = memory_.driver == &core_.platform().driver();
    shared.user_ordinal = memory_.ordinal;
    shared.kept = kept_.get();
    if (!call_.waits) shared.owner = kept_;
    return shared;
}

void ArrayCopy::describe_part(CopyPart& c, const Box& box, const Box& part) const {
    const std::size_t rank = array_.rank(), first = max_rank - rank;
    std::int64_t user_offset = 0, stride = 1;
    for (std::size_t k = rank; k-- > 0;) {
        c.sizes[first + k] = part.end[k] - part.begin[k];
        c.chunk_strides[first + k] = stride;
        stride *= box.end[k] - box.begin[k];
        user_offset += (part.begin[k] - region_.begin[k]) * user_strides_[k];
    }
    std::fill_n(c.sizes, first, 1);
    std::fill_n(c.chunk_strides, first, 0);
    c.user = user_ + user_offset * static_cast<std::int64_t>(shared_.element_bytes);
    c.owned = nullptr;
}

void ArrayCopy::throw_unset(const Box& missing) const {
    Region region;
    for (std::size_t k = 0; k < array_.rank(); ++k) region.emplace_back(missing.begin[k], missing.end[k]);
    throw UninitializedRead(array_.name(), region);
}

/// Of a copy out: every part was written, and by whom.
// Of each chunk on its own: looking all of them through for one that wrote two chunks would take a time that grows with
// the square of their number, and coming after it twice does no harm.
void ArrayCopy::find_writers() {
    graph::Predecessors of_part, all;
    for (const std::size_t chunk : chunks_) {
        const Box part = part_of(chunk);
        Box missing = part;
        const graph::CompactHistory* const history = binding_.histories.find(chunk);
        if (history == nullptr || !history->covers(part, &missing)) throw_unset(missing);
        of_part.clear();
        history->writers(part, of_part, *this);
        graph::drop_duplicates(of_part);
        all.insert(all.end(), of_part.begin(), of_part.end());
        writers_.add_part(of_part);
    }
    gate_->predecessors.append(all.data(), all.size());
}

void ArrayCopy::check() {
    if (to_user_) find_writers();
    touch_chunks();
    if (to_user_) reserve_helper();
}

void ArrayCopy::connect() { connect_tasks(gate_ == nullptr ? 0 : add_helper(*std::exchange(gate_, nullptr), first())); }

void ArrayCopy::enter(std::size_t chunk, const Task& task, graph::Predecessors& before) {
    const Box whole = box_of(chunk), part = boxes::intersection(whole, region_);
    const bool is_whole = boxes::equal(part, whole);
    const auto box = [&whole] { return whole; };
    graph::CompactHistory& history = binding_.histories[chunk];
    if (to_user_) return history.read(part, is_whole, box, task.number, before, *this);
    if (!history.any_content()) binding_.count_made(binding_.layout->num_elements(chunk));
    // By the whole copy: if one chunk fails, all of the region is poisoned.
    history.write(part, is_whole, box, last(), false, before, *this);
}

}  // namespace

EventId array_copy_out(const ArrayRef& array, const Box& region, void* destination, const std::int64_t* strides,
                       CopyCall call) {
    return ArrayCopy(array, region, static_cast<std::byte*>(destination), strides, true, call).run(nullptr);
}

EventId array_copy_in(const ArrayRef& array, const Box& region, const void* source, const std::int64_t* strides,
                      CopyCall call, std::shared_ptr<const void> owned) {
    auto* const from = const_cast<std::byte*>(static_cast<const std::byte*>(source));  // only read
    return ArrayCopy(array, region, from, strides, false, call).run(std::move(owned));
}

namespace {

/// A task that does nothing, after everything that uses an array.
class ArrayUsers final : public Batch {
  public:
    explicit ArrayUsers(Binding& binding) : Batch(&binding.runtime->books()), binding_(binding) { add_task(); }
    void check() override {
        graph::Predecessors users;
        // A chunk without a history has no users.
        for (const graph::CompactHistory& h : std::as_const(binding_.histories)) h.users(users, *this);
        graph::make_unique(users);
        tasks().front()->predecessors.append(users.data(), users.size());
    }
    void connect() override {}

  private:
    Binding& binding_;
};

}  // namespace

void array_synchronize(const ArrayRecord& array) {
    Binding* b = array.binding();
    if (b == nullptr) return;
    RuntimeCore& core = *b->runtime;
    ArrayUsers users(*b);
    core.commit(users);
    core.wait_settled(users.last(), nullptr);
    core.throw_failure(users.last());
}

}  // namespace kmm::detail
