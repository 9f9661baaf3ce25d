// The type-erased face of arrays and submits: checks, then the calls that the templates make.
//
// Runs on the calling thread.
#include "kmm/dynamic.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "driver/format.hpp"
#include "kmm/api/array_record.hpp"
#include "kmm/base/text.hpp"
#include "kmm/detail/submit_checks.hpp"
#include "kmm/runtime/runtime_core.hpp"

namespace kmm::dynamic {

using detail::AccessKind;
using detail::LauncherInfo;

namespace {

detail::RuntimeCore& core_of(const RuntimeHandle& runtime) { return detail::runtime_core(runtime.worker()); }

/// Of a new array: `max_rank` sizes, 1 beyond the rank.
struct Shape {
    std::int64_t sizes[max_rank] = {1, 1, 1, 1, 1, 1, 1, 1};

    Shape(const DataType& type, const std::vector<std::int64_t>& shape) {
        if (shape.size() > max_rank)
            throw InvalidArgument(
                driver::format("an array of {} axes: at most {} are offered", shape.size(), max_rank));
        if (type.size_in_bytes() == 0)
            throw InvalidArgument("an array of elements without a type: name a scalar, or make a type with "
                                  "DataType::made");
        std::copy(shape.begin(), shape.end(), sizes);
        detail::check_shape(shape.size(), sizes, type.size_in_bytes());
    }
};

std::string axes_text(std::size_t count) { return count == 1 ? "1 axis" : driver::format("{} axes", count); }

/// Axes beyond the rank are as the rest of the library has them.
Box within(const Box& region, std::size_t rank) noexcept {
    Box result;
    std::copy_n(region.begin, rank, result.begin);
    std::copy_n(region.end, rank, result.end);
    return result;
}

std::vector<Chunk> within(std::vector<Chunk> chunks, std::size_t rank) {
    for (Chunk& c : chunks) c.box = within(c.box, std::min(rank, max_rank));
    return chunks;
}

const char* name_of(Parameter::Field field) {
    switch (field) {
    case Parameter::Field::Address: return "Address";
    case Parameter::Field::Begin: return "Begin";
    case Parameter::Field::End: return "End";
    case Parameter::Field::Size: return "Size";
    case Parameter::Field::Stride: break;
    }
    return "Stride";
}

}  // namespace

Box box(const std::vector<std::int64_t>& begin, const std::vector<std::int64_t>& end) {
    if (begin.size() != end.size() || begin.size() > max_rank)
        throw InvalidArgument(driver::format("a box from {} indices to {}: as many of both are needed, at most {}",
                                             begin.size(), end.size(), max_rank));
    Box result;
    std::copy(begin.begin(), begin.end(), result.begin);
    std::copy(end.begin(), end.end(), result.end);
    return result;
}

// -------------------------------------------------------------------------------------------------------------- arrays

Array::Array(detail::ArrayRef record, std::size_t rank, DataType type)
    : record_(std::move(record)), type_(type), rank_(rank), shape_(detail::array_shape(*record_)) {}

Array::Array(DataType type, const std::vector<std::int64_t>& shape)
    : Array(detail::make_array(shape.size(), Shape(type, shape).sizes, type, type.size_in_bytes(), type.alignment()),
            shape.size(), type) {}

Array::Array(const RuntimeHandle& runtime, DataType type, const std::vector<std::int64_t>& shape,
             const std::vector<Chunk>& chunks)
    : Array(detail::make_bound_array(core_of(runtime), shape.size(), Shape(type, shape).sizes, type,
                                     type.size_in_bytes(), type.alignment(), within(chunks, shape.size())),
            shape.size(), type) {}

Box Array::whole() const noexcept { return record_->box(); }

void Array::check_is(DataType type, std::size_t rank) const {
    if (type_ != type) detail::throw_wrong_type(*record_, type);
    if (rank_ != rank)
        throw InvalidArgument(
            driver::format("array \"{}\" has {}, and was taken for one of {}", name(), axes_text(rank_), rank));
}

void Array::check_region(const char* what, const void* memory, const Box& region) const {
    if (!is_bound()) detail::throw_unbound(*record_, what);
    detail::check_region(*record_, what, region);
    if (memory == nullptr && !boxes::is_empty(region, rank_))
        throw InvalidArgument(driver::format("{} of {}: the pointer to the program's {} elements is null", what, name(),
                                             boxes::volume(region)));
}

void Array::copy_to(void* output, const Box& box, const std::int64_t* strides) const {
    const Box region = within(box, rank_);
    check_region("copy_to", output, region);
    std::int64_t packed[max_rank];
    detail::row_major_strides(region, packed, rank_);
    detail::array_copy_out(record_, region, output, strides != nullptr ? strides : packed,
                           detail::DefaultStream::legacy);
}

void Array::copy_from(const void* input, const Box& box, const std::int64_t* strides) const {
    const Box region = within(box, rank_);
    check_region("copy_from", input, region);
    std::int64_t packed[max_rank];
    detail::row_major_strides(region, packed, rank_);
    detail::array_copy_in(record_, region, input, strides != nullptr ? strides : packed, detail::DefaultStream::legacy);
}

EventId Array::fill(const void* value) const {
    if (!is_bound()) detail::throw_unbound(*record_, "fill()");
    if (value == nullptr) throw InvalidArgument("fill: the pointer to the element is null");
    return detail::array_fill(record_, value);
}

// ------------------------------------------------------------------------------------------------------------- submits

bool would_wait(const RuntimeHandle& runtime) noexcept { return core_of(runtime).would_wait(); }

namespace {

/// What a task keeps of its function.
struct Payload {
    Function function;
    static void run(void* payload, detail::TaskContext& context) {
        const Function& f = static_cast<Payload*>(payload)->function;
        f.run(f.user, RunningTask(context));
    }
    static void destroy(void* payload) noexcept {
        const Function& f = static_cast<Payload*>(payload)->function;
        if (f.destroy != nullptr) f.destroy(f.user);
    }
};

/// Destroys what the caller has handed over, unless a task has it.
class Owned {
  public:
    explicit Owned(const Function& function) noexcept : function_(&function) {}
    ~Owned() {
        if (function_ != nullptr && function_->destroy != nullptr) function_->destroy(function_->user);
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    void give_away() noexcept { function_ = nullptr; }

  private:
    const Function* function_;
};

/// A number that is known at submit: where it goes, and whether it fits.
void put_number(const Parameter& entry, std::int64_t value, std::byte* parameters) {
    if (entry.size_bytes == 8) {
        std::memcpy(parameters + entry.offset, &value, 8);
        return;
    }
    const auto small = static_cast<std::int32_t>(value);
    std::memcpy(parameters + entry.offset, &small, 4);
}

}  // namespace

struct Submit::State {
    explicit State(const RuntimeHandle& handle, std::string text, const SourceLocation& where)
        : runtime(handle), core(core_of(handle)), name(std::move(text)), location(where) {}

    RuntimeHandle runtime;
    detail::RuntimeCore& core;
    std::string name;
    SourceLocation location;
    std::vector<detail::ArrayRef> arrays;  ///< until the commit is over; each access names one
    std::optional<detail::Submission> submission;
    LauncherInfo::Kind kind = LauncherInfo::Kind::host;  ///< of its tasks, once there is one
    bool is_over = false;

    LauncherInfo launcher_info(LauncherInfo::Kind of_task) const {
        LauncherInfo info;
        info.kind = of_task;
        info.name = name.empty() ? nullptr : name.data();
        info.name_length = name.size();
        info.location = location;
        return info;
    }
    /// What `f` throws names the task and the place of the submit.
    template<typename F>
    auto with_submit(LauncherInfo::Kind of_task, const F& f) const {
        try {
            return f();
        } catch (const Error&) {
            detail::rethrow_with_submit(launcher_info(of_task));
        }
    }
    void check_usable() const {
        if (is_over)
            throw InvalidArgument("a submit was used again after it was committed, or dropped by an error: make a new "
                                  "one");
    }
    void check_kind(LauncherInfo::Kind wanted) const {
        if (submission && wanted != kind)
            throw InvalidArgument("the tasks of a submit are all functions on the host, all functions on devices, or "
                                  "all kernels: make a submit for each kind");
    }
    void check_accesses(const Accesses& accesses) const;
    void check_function(const Function& function) const {
        if (function.run == nullptr) detail::throw_no_function();
    }
    void check_table(const Kernel& kernel, const Accesses& accesses) const;
    void check_entry(const Parameter& entry, std::uint32_t index, const Kernel& kernel, const Accesses& accesses) const;
    std::int64_t number_of(const Parameter& entry, const Accesses& accesses) const;
    static ExecutionSpace space_of(LauncherInfo::Kind kind) noexcept {
        return kind == LauncherInfo::Kind::host ? ExecutionSpace::Host : ExecutionSpace::Device;
    }
    void add_kernel(DeviceId device, const DomainChunk& chunk, const Kernel& kernel, const Accesses& accesses);
    void add_function(ResourceId where, LauncherInfo::Kind kind, const DomainChunk& chunk, const Function& function,
                      const Accesses& accesses);
    void begin(ResourceId where, LauncherInfo::Kind kind, const DomainChunk& chunk, const detail::TaskSize& size,
               const Accesses& accesses);
    /// From here on only memory can be missing; a task that is half made takes the whole submit with it.
    template<typename F> void add(F&& f) {
        try {
            f();
        } catch (...) {
            is_over = true;
            submission.reset();
            arrays.clear();
            throw;
        }
    }
};

void Submit::State::check_accesses(const Accesses& accesses) const {
    for (std::size_t i = 0; i < accesses.size(); ++i) {
        const Access& a = accesses[i];
        if (a.array == nullptr) throw InvalidArgument(driver::format("access {} of a task names no array", i));
        if (a.mode != AccessMode::Read && a.mode != AccessMode::Write && a.mode != AccessMode::Overwrite)
            throw InvalidArgument(
                driver::format("access {} of a task has mode {}: Read (0), Write (1) and Overwrite (2) "
                               "are offered",
                               i, static_cast<unsigned>(a.mode)));
        const Box whole = a.array->whole();
        for (std::size_t k = 0; k < a.array->rank(); ++k) {
            if (whole.begin[k] <= a.region.begin[k] && a.region.begin[k] <= a.region.end[k] &&
                a.region.end[k] <= whole.end[k])
                continue;
            throw InvalidArgument(driver::format("access {} of a task names region {} of {}, whose indices are {}", i,
                                                 boxes::to_text(a.region, a.array->rank()), a.array->name(),
                                                 boxes::to_text(whole, a.array->rank())));
        }
    }
}

void Submit::State::check_entry(const Parameter& entry, std::uint32_t index, const Kernel& kernel,
                                const Accesses& accesses) const {
    if (entry.field > Parameter::Field::Stride)
        throw InvalidArgument(driver::format("entry {} of the table of a kernel's parameters has field {}: Address (0) "
                                             "to Stride (4) are offered",
                                             index, static_cast<unsigned>(entry.field)));
    const char* const field = name_of(entry.field);
    const auto refuse = [&](const std::string& what) {
        throw InvalidArgument(
            driver::format("entry {} ({}) of the table of a kernel's parameters {}", index, field, what));
    };
    if (entry.access >= accesses.size())
        refuse(driver::format("names access {}, and the task has {}", entry.access, accesses.size()));
    if (entry.access >= detail::ParameterField::most_accesses)
        refuse(driver::format("names access {}: a table may name the first {}", entry.access,
                              detail::ParameterField::most_accesses));
    const std::size_t rank = accesses[entry.access].array->rank();
    if (entry.field != Parameter::Field::Address && entry.axis >= rank)
        refuse(driver::format("names axis {} of {}, which has {}", entry.axis, accesses[entry.access].array->name(),
                              axes_text(rank)));
    if (entry.size_bytes != 8 && (entry.size_bytes != 4 || entry.field == Parameter::Field::Address))
        refuse(driver::format("has {} bytes, where {}", entry.size_bytes,
                              entry.field == Parameter::Field::Address ? "an address has 8" : "4 or 8 are offered"));
    if (std::uint64_t{entry.offset} + entry.size_bytes > kernel.parameter_bytes)
        refuse(driver::format("stands at bytes {} to {} of {}", entry.offset,
                              std::uint64_t{entry.offset} + entry.size_bytes, kernel.parameter_bytes));
    if (entry.field == Parameter::Field::Address || entry.size_bytes == 8) return;
    const std::int64_t value = number_of(entry, accesses);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
        refuse(driver::format("is {} for {}, which 4 bytes do not hold: give it 8", value,
                              accesses[entry.access].array->name()));
}

/// Of a stride: the largest that the array could give it.
std::int64_t Submit::State::number_of(const Parameter& entry, const Accesses& accesses) const {
    const Access& a = accesses[entry.access];
    switch (entry.field) {
    case Parameter::Field::Begin: return a.region.begin[entry.axis];
    case Parameter::Field::End: return a.region.end[entry.axis];
    case Parameter::Field::Size: return a.region.end[entry.axis] - a.region.begin[entry.axis];
    case Parameter::Field::Address: return 0;
    case Parameter::Field::Stride: break;
    }
    std::int64_t strides[max_rank];
    detail::row_major_strides(a.array->whole(), strides, a.array->rank());
    return strides[entry.axis];
}

void Submit::State::check_table(const Kernel& kernel, const Accesses& accesses) const {
    if (kernel.handle == nullptr) detail::throw_no_function();
    if (kernel.parameter_bytes != 0 && kernel.parameters == nullptr)
        throw InvalidArgument(
            driver::format("the pointer to a kernel's {} bytes of parameters is null", kernel.parameter_bytes));
    if (kernel.table_size != 0 && kernel.table == nullptr)
        throw InvalidArgument(driver::format(
            "the pointer to the {} entries of the table of a kernel's parameters is null", kernel.table_size));
    for (std::uint32_t i = 0; i < kernel.table_size; ++i) check_entry(kernel.table[i], i, kernel, accesses);
}

void Submit::State::begin(ResourceId where, LauncherInfo::Kind of_task, const DomainChunk& chunk,
                          const detail::TaskSize& size, const Accesses& accesses) {
    if (!submission) {
        kind = of_task;
        submission.emplace(core, launcher_info(of_task), true);
    }
    DomainChunk owned = chunk;
    owned.owner_id = where;
    submission->begin_task(where, owned, of_task, size);
    for (std::size_t i = 0; i < accesses.size(); ++i) {
        const Access& a = accesses[i];
        arrays.push_back(a.array->record());
        const Box region = within(a.region, a.array->rank());
        const AccessKind mode = a.mode == AccessMode::Read    ? AccessKind::read
                                : a.mode == AccessMode::Write ? AccessKind::write
                                                              : AccessKind::overwrite;
        submission->add_access(a.array->record(), mode, static_cast<std::uint32_t>(i), &region);
    }
}

void Submit::State::add_function(ResourceId where, LauncherInfo::Kind of_task, const DomainChunk& chunk,
                                 const Function& function, const Accesses& accesses) {
    Owned owned(function);
    with_submit(of_task, [&] {
        check_usable();
        check_kind(of_task);
        check_function(function);
        check_accesses(accesses);
        const ResourceId resource = detail::task_resource(where, space_of(of_task), core.platform().info());
        add([&] {
            begin(resource, of_task, chunk, {accesses.size(), sizeof(Payload)}, accesses);
            void* const memory = submission->allocate_payload(sizeof(Payload), alignof(Payload));
            auto* const payload = new (memory) Payload{function};
            owned.give_away();
            submission->set_body(payload, {&Payload::run, &Payload::destroy});
        });
    });
}

Submit::Submit(const RuntimeHandle& runtime, std::string name, const SourceLocation& location)
    : state_(std::make_unique<State>(runtime, std::move(name), location)) {}

Submit::~Submit() = default;

void Submit::host_function(const DomainChunk& chunk, const Function& function, const Accesses& accesses) {
    state_->add_function(ResourceId::host(), LauncherInfo::Kind::host, chunk, function, accesses);
}

void Submit::device_function(DeviceId device, const DomainChunk& chunk, const Function& function,
                             const Accesses& accesses) {
    state_->add_function(ResourceId(device), LauncherInfo::Kind::device_function, chunk, function, accesses);
}

void Submit::kernel(DeviceId device, const DomainChunk& chunk, const Kernel& kernel, const Accesses& accesses) {
    state_->with_submit(LauncherInfo::Kind::kernel, [&] { state_->add_kernel(device, chunk, kernel, accesses); });
}

void Submit::State::add_kernel(DeviceId device, const DomainChunk& chunk, const Kernel& kernel,
                               const Accesses& accesses) {
    check_usable();
    check_kind(LauncherInfo::Kind::kernel);
    check_accesses(accesses);
    check_table(kernel, accesses);
    const ResourceId where = detail::task_resource(ResourceId(device), ExecutionSpace::Device, core.platform().info());
    detail::KernelGeometry geometry;
    std::copy_n(kernel.grid, 3, geometry.grid);
    std::copy_n(kernel.block, 3, geometry.block);
    geometry.has_grid = true;
    geometry.shared_bytes = kernel.shared_bytes;
    DomainChunk launched = chunk;
    for (std::size_t k = 0; k < DOMAIN_DIMS; ++k) launched.size[k] = 1;  // the grid says how much there is
    detail::KernelDraft draft;
    detail::set_launch_dimensions(geometry, launched, core.platform().info().device(device), draft);
    draft.function = kernel.handle;
    draft.parameter_bytes = kernel.parameter_bytes;
    add([&] {
        begin(where, LauncherInfo::Kind::kernel, chunk, {accesses.size(), kernel.parameter_bytes, kernel.table_size},
              accesses);
        auto* const parameters = static_cast<std::byte*>(submission->set_kernel(draft));
        if (kernel.parameter_bytes != 0) std::memcpy(parameters, kernel.parameters, kernel.parameter_bytes);
        for (std::uint32_t i = 0; i < kernel.table_size; ++i) {
            const Parameter& entry = kernel.table[i];
            if (entry.field == Parameter::Field::Address)
                submission->add_field(detail::ParameterField::address(entry.offset, entry.access));
            else if (entry.field == Parameter::Field::Stride)
                submission->add_field(
                    detail::ParameterField::stride(entry.offset, entry.access, entry.axis, entry.size_bytes));
            else
                put_number(entry, number_of(entry, accesses), parameters);
        }
    });
}

EventId Submit::commit() {
    State& s = *state_;
    s.with_submit(s.kind, [&] { s.check_usable(); });
    s.is_over = true;
    if (!s.submission) {
        s.core.books().check_open();
        return EventId();
    }
    // Whatever becomes of it, functions that no task has are destroyed now.
    struct End {
        State& state;
        ~End() {
            state.submission.reset();
            state.arrays.clear();
        }
    } end{s};
    return s.with_submit(s.kind, [&] { return s.submission->commit(); });
}

}  // namespace kmm::dynamic
