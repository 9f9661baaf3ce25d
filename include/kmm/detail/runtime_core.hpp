// The border between the templates of the public API and the compiled runtime: plain data and opaque classes.
//
// Owns: nothing. Everything here is for the headers of kmm/api; programs do not use it. C++17.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kmm/core/config.hpp"
#include "kmm/core/data_type.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/identifiers.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/error.hpp"
#include "kmm/utils/macros.hpp"

namespace kmm {

class IndexMap;
class Resource;
class DeviceResource;
struct RuntimeStats;
enum struct EventStatus { Pending, Succeeded, Failed };
enum struct ReportFormat { Text, Json };
enum struct PlanFormat { Text, Dot };

namespace plan {
class Layout;
}  // namespace plan

namespace detail {

/// A running runtime (src/kmm/runtime/runtime_core.hpp). It derives from `kmm::Runtime`, its public face, and from
/// `std::enable_shared_from_this<RuntimeCore>`; src/kmm/api/runtime_handle.cpp relies on both.
class RuntimeCore;

inline constexpr std::size_t max_rank = 8;
inline constexpr std::size_t max_element_alignment = 4096;  // a page

/// A box of array indices without its rank: axes beyond the rank are [0, 1).
struct Box {
    std::int64_t begin[max_rank] = {0, 0, 0, 0, 0, 0, 0, 0};
    std::int64_t end[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};
};

/// One chunk of a distribution without its rank.
struct ChunkGeometry {
    MemoryId home = MemoryId::host();
    Box box;
};

/// What all copies of one `Array` share: unbound (shape only) or bound to a runtime. Compiled in
/// src/kmm/api/array_record.cpp. Thread-safe. The destructor hands the data to the runtime, which frees it when its
/// tasks are done.
class ArrayRecord;
using ArrayRef = std::shared_ptr<ArrayRecord>;

/// The shape is one that `check_shape` (detail/array_checks.hpp) found good, here and below.
ArrayRef make_array(std::size_t rank, const std::int64_t* shape, DataType type, std::size_t element_bytes,
                    std::size_t element_alignment);
/// How an array is cut into chunks (src/kmm/plan/layout.hpp): shared, never changed.
using LayoutRef = std::shared_ptr<const plan::Layout>;
/// Makes a bound array with a distribution of its shape. O(1) where homes follow a rule, else O(chunks). IA for a home
/// on a device that the runtime does not have.
ArrayRef make_bound_array(RuntimeCore&, std::size_t rank, const std::int64_t* shape, DataType type,
                          std::size_t element_bytes, std::size_t element_alignment, LayoutRef layout);
/// The same: `chunks` must cover the shape exactly (IA otherwise).
ArrayRef make_bound_array(RuntimeCore&, std::size_t rank, const std::int64_t* shape, DataType type,
                          std::size_t element_bytes, std::size_t element_alignment,
                          const std::vector<ChunkGeometry>& chunks);
bool array_is_bound(const ArrayRecord&) noexcept;
const std::int64_t* array_shape(const ArrayRecord&) noexcept;  ///< max_rank values, 1 beyond the rank
void array_set_name(ArrayRecord&, std::string name);
std::string array_name(const ArrayRecord&);
LayoutRef array_layout(const ArrayRecord&);  ///< IA when unbound
/// Chunks in the order of the distribution. IA when unbound. O(chunks).
std::vector<ChunkGeometry> array_chunks(const ArrayRecord&);
std::shared_ptr<RuntimeCore> array_runtime(const ArrayRecord&);  ///< IA when unbound
/// Waits for all work on the array; nothing when unbound. TE, DL.
void array_synchronize(const ArrayRecord&);
/// What a unit of the program means by its default stream.
enum class DefaultStream : std::uint8_t { legacy, per_thread };
/// Of the unit that this is compiled in. It and all that calls it must be inlined: units of both kinds meet in one
/// program.
KMM_INLINE DefaultStream default_stream() noexcept {
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(HIP_API_PER_THREAD_DEFAULT_STREAM)
    return DefaultStream::per_thread;
#else
    return DefaultStream::legacy;
#endif
}

/// A copy comes after what the calling thread has put on this stream, where it is one with device memory.
struct CopyCall {
    constexpr CopyCall(DefaultStream after, bool blocks = true) noexcept : stream(after), waits(blocks) {}
    DefaultStream stream;
    bool waits;  ///< until the program's memory is not needed any more
};

/// Copies of a region between the array and memory of the program (host or device) with these strides, in elements.
/// `region` must lie inside the array. With device memory they come after what the thread has put on its default
/// stream, or its task's stream. `owned`: kept until the copy has ended. The event is done if the copy was waited for.
/// TE UR IA OM DL DE.
EventId array_copy_out(const ArrayRef&, const Box& region, void* destination, const std::int64_t* strides, CopyCall);
EventId array_copy_in(const ArrayRef&, const Box& region, const void* source, const std::int64_t* strides, CopyCall,
                      std::shared_ptr<const void> owned = nullptr);
EventId array_fill(const ArrayRef&, const void* value);

/// How a task uses a region.
enum class AccessKind : std::uint8_t { read, write, overwrite };

/// Where the memory behind one access lies, once the submit has found its chunk: strides in elements, row-major.
struct AccessLayout {
    std::int64_t strides[max_rank] = {0, 0, 0, 0, 0, 0, 0, 0};
};

/// What running user code gets: addresses of the first element of each accessed region (null for an empty one).
struct TaskContext {
    void* const* addresses = nullptr;
    const AccessLayout* layouts = nullptr;
    Resource* resource = nullptr;  ///< a DeviceResource in device functions
    const DomainChunk* chunk = nullptr;
};

/// The user's function with its stored arguments. `run` may throw; it is called at most once, on a thread of the
/// library.
struct TaskBody {
    void (*run)(void* payload, TaskContext& context) = nullptr;
    void (*destroy)(void* payload) noexcept = nullptr;
};

/// One line of the table of a kernel's parameters: at byte `offset` stands the address of an access, or its stride
/// along `axis`. Written when the task is placed, because only then is known which memory the kernel sees; everything
/// else about a view is known at the submit.
struct ParameterField {
    static constexpr std::uint32_t most_accesses = 1u << 24;

    std::uint32_t offset;
    std::uint32_t access : 24;
    std::uint32_t axis : 3;
    std::uint32_t is_stride : 1;
    std::uint32_t has_4_bytes : 1;  ///< of a stride; else it has 8, as an address has

    static constexpr ParameterField address(std::size_t at, std::uint32_t of_access) noexcept {
        return {static_cast<std::uint32_t>(at), of_access & (most_accesses - 1), 0, 0, 0};
    }
    static constexpr ParameterField stride(std::size_t at, std::uint32_t of_access, std::size_t along,
                                           std::size_t bytes) noexcept {
        return {static_cast<std::uint32_t>(at), of_access & (most_accesses - 1), static_cast<std::uint32_t>(along & 7),
                1, bytes == 4 ? 1u : 0u};
    }
};
static_assert(sizeof(ParameterField) == 8);

struct KernelDraft {
    const void* function = nullptr;  ///< handle for the driver; see driver.hpp
    std::uint32_t grid[3] = {1, 1, 1};
    std::uint32_t block[3] = {1, 1, 1};
    std::uint32_t shared_bytes = 0;
    std::uint32_t parameter_bytes = 0;
};

/// What a task will have, as far as its types tell: room that is made at once costs less. More is allowed.
struct TaskSize {
    std::size_t num_accesses = 0;
    std::size_t storage_bytes = 0;  ///< of a payload, or of parameters
    std::size_t num_fields = 0;     ///< of the table of a kernel's parameters
};

/// What stays the same for all tasks of one submit.
struct LauncherInfo {
    enum class Kind : std::uint8_t { host, device_function, kernel } kind = Kind::host;
    /// For `kernel`: which driver the kernel's file was compiled for.
    enum class Mode : std::uint8_t { host, cuda, hip } mode = Mode::host;
    const char* name = nullptr;  ///< need not be null-terminated; copied by commit
    std::size_t name_length = 0;
    SourceLocation location;
    std::size_t scratch_bytes = 0;
};

/// Valid until the next call of the submission.
struct AddedAccess {
    std::uint32_t number;  ///< within the task: 0, 1, ..
    const Box& region;     ///< clipped
};

/// One submit being built on the submitting thread. Nothing is visible to the runtime before `commit`, which takes the
/// place in the order, checks everything that a submit may throw, and queues the tasks. All user code (mappings, copies
/// of arguments) runs before `commit`, with no lock held. Not thread-safe; one per call. The destructor drops what was
/// not committed. Cost: no allocation from the system in the steady state, but for tasks of very many accesses or
/// predecessors.
class Submission {
  public:
    /// `of_any_thread`: its calls and its end may be on different threads, one after the other; it shares no lists with
    /// the thread's other submits, and grows them anew.
    Submission(RuntimeCore& runtime, const LauncherInfo& launcher, bool of_any_thread = false);
    ~Submission();
    Submission(const Submission&) = delete;
    Submission& operator=(const Submission&) = delete;

    /// Starts the next task. Calls below belong to it until the next `begin_task`.
    void begin_task(ResourceId where, const DomainChunk& chunk, const TaskSize& size = {});
    /// For submits of the library's own, whose tasks run where their chunks are: of another kind than the launcher's.
    void begin_task(ResourceId where, const DomainChunk& chunk, LauncherInfo::Kind kind, const TaskSize& size = {});
    /// One access of the current task: the part of `wanted` inside the array; null: all of it. `argument` is the
    /// argument's number for messages. An empty region is a valid access without memory.
    AddedAccess add_access(const ArrayRef& array, AccessKind kind, std::uint32_t argument, const Box* wanted);
    /// One access of what `mapping`, an index for each axis of the array, gives for a chunk. Errors: IndexMap::apply.
    AddedAccess add_access(const ArrayRef& array, AccessKind kind, std::uint32_t argument, const IndexMap* mapping,
                           const DomainChunk& chunk);
    /// Memory for a body's payload, freed after `body.destroy`. Call `set_body` once the payload is constructed. A
    /// kernel has a body in place of `set_kernel` where the program's code makes its parameters: a launcher thread runs
    /// it.
    void* allocate_payload(std::size_t bytes, std::size_t alignment);
    /// After all accesses. `sees_layouts`: it looks at TaskContext::layouts. Where it throws, the task has the payload.
    void set_body(void* payload, const TaskBody& body, bool sees_layouts = true);
    /// For kernels; a kernel task without it (an empty chunk) launches nothing. Returns the parameter buffer (zeroed,
    /// `parameter_bytes` long, 16-byte aligned) for the caller to fill.
    void* set_kernel(const KernelDraft& draft);
    /// The current task will fail with `error` instead of running.
    void fail_task(std::exception_ptr error);
    /// Once `set_kernel` was called. Those of one access best follow each other: its strides are then looked up once.
    void add_field(ParameterField field);

    /// Queues everything. IA CA UR IR OM NA; then nothing was queued and no array bound. Event of the whole submit.
    EventId commit();

    struct Draft;

  private:
    Draft* draft_;
};

// ---- the runtime, for RuntimeHandle
std::shared_ptr<RuntimeCore> start_runtime(const RuntimeConfig&);
const SystemInfo& runtime_info(const RuntimeCore&) noexcept;
bool runtime_is_done(RuntimeCore&, EventId);
EventStatus runtime_status(RuntimeCore&, EventId);
std::exception_ptr runtime_error(RuntimeCore&, EventId);
/// Waits until done or `deadline` (nullptr: no bound). True when done well. TE IA DL.
bool runtime_wait(RuntimeCore&, EventId, const std::chrono::steady_clock::time_point* deadline);
EventId runtime_join(RuntimeCore&, const EventId* events, std::size_t num_events);
EventId runtime_barrier(RuntimeCore&);
void runtime_synchronize(RuntimeCore&);
void runtime_close(RuntimeCore&);
bool runtime_is_idle(RuntimeCore&);
void runtime_trim(RuntimeCore&);
void runtime_trace(RuntimeCore&, const std::string& path);
RuntimeStats runtime_stats(RuntimeCore&);
std::string runtime_report(RuntimeCore&, ReportFormat);
std::string runtime_plan_text(RuntimeCore&, PlanFormat);
MemoryId runtime_memory_for_address(RuntimeCore&, const void* address);
/// Whether kernels compiled for `mode` can run on this runtime's driver; NA naming file, both modes and the remedy if
/// not.
void runtime_check_kernel_mode(RuntimeCore&, const LauncherInfo&);

}  // namespace detail
}  // namespace kmm
