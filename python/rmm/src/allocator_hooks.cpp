// Functions of C for CuPy's CFunctionAllocator: no Python runs between CuPy and the resource.
//
// CuPy calls both with the GIL, which guards the table of blocks; it passes no stream, and no size to the free. What a
// pool has at hand is taken with the GIL held: letting go of it and taking it again costs more than the rest.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cstdint>
#include <exception>
#include <unordered_map>
#include <utility>

#include "binding.hpp"
#include "errors.hpp"
#include "rmm/heap/address_map.hpp"

namespace rmm_python {
namespace {

/// CuPy's object of a stream that it made: it destroys the stream when its last reference goes, but blocks are freed on
/// the stream, so they keep it.
struct kept_stream {
    nb::object object;
    bool is_owner = true;  ///< false: an ExternalStream, beside which there may be the object that destroys the stream
    std::size_t num_blocks = 0;
};
using kept_streams = std::unordered_map<cudaStream_t, kept_stream>;

struct block {
    std::size_t size_bytes = 0;
    cudaStream_t stream = nullptr;
    native* from = nullptr;
    kept_streams::value_type* kept = nullptr;  ///< null for the default streams
};
/// In use. Under the GIL.
rmm::heap::address_map<block>& blocks() {
    static auto* const all = new rmm::heap::address_map<block>();  // arrays may outlive static objects
    return *all;
}

/// Those of blocks in use. Under the GIL.
kept_streams& streams() {
    static auto* const all = new kept_streams();
    return *all;
}

std::intptr_t (*current_stream_of_cupy)() = nullptr;

/// Of the calling thread's current stream. Throws what CuPy does, and std::bad_alloc.
kept_streams::value_type* keep(cudaStream_t current) {
    if (current == nullptr || current == rmm::cuda_stream_legacy.value() ||
        current == rmm::cuda_stream_per_thread.value())
        return nullptr;
    auto found = streams().find(current);
    nb::object before;
    if (found == streams().end() || !found->second.is_owner) {
        const nb::object cupy_cuda = imported("cupy", "cuda");
        nb::object object = cupy_cuda.attr("get_current_stream")();  // other threads may run meanwhile
        const int is_external = PyObject_IsInstance(object.ptr(), cupy_cuda.attr("ExternalStream").ptr());
        if (is_external < 0) throw nb::python_error();
        const bool is_owner = is_external == 0;
        found = streams().try_emplace(current).first;
        if (is_owner || found->second.num_blocks == 0) {
            before = std::exchange(found->second.object, std::move(object));
            found->second.is_owner = is_owner;
        }
    }
    ++found->second.num_blocks;
    return &*found;
}

void let_go_of(const block& b) noexcept {
    b.from->unkeep();
    if (b.kept == nullptr || --b.kept->second.num_blocks > 0) return;
    const nb::object last = std::move(b.kept->second.object);
    streams().erase(b.stream);
}

// What CuPy takes for "there is an exception of Python".
void* const failure = reinterpret_cast<void*>(std::intptr_t{-1});

void deallocate_slowly(const block& b, void* pointer, int device) noexcept {
    const without_gil released;
    try {
        const rmm::cuda_set_device_raii on_it{rmm::cuda_device_id{device}};
        b.from->object().deallocate(pointer, b.size_bytes, rmm::cuda_stream_view{b.stream});
    } catch (...) {
        rmm::mr::detail::report_throw_in_deallocate();
    }
}

void* allocate_slowly(native& from, std::size_t bytes, cudaStream_t stream, int device) {
    const without_gil released;
    const rmm::cuda_set_device_raii on_it{rmm::cuda_device_id{device}};
    return from.object().allocate(bytes, rmm::cuda_stream_view{stream});
}

void note(void* pointer, const block& b, int device) {
    try {
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        if (const auto lost = blocks().take(address)) let_go_of(*lost);  // was freed, but not here
        blocks().insert(address, b);
    } catch (...) {
        deallocate_slowly(b, pointer, device);
        throw;
    }
}

void* allocate(void*, std::size_t bytes, int device) noexcept {
    if (bytes == 0) return nullptr;
    block b{bytes};
    try {
        b.stream = reinterpret_cast<cudaStream_t>(current_stream_of_cupy());
        b.from = &native::keep(resource_of_device(device));
        b.kept = keep(b.stream);
        void* pointer = b.from->allocate_at_hand(bytes, rmm::cuda_stream_view{b.stream});
        if (pointer == nullptr) pointer = allocate_slowly(*b.from, bytes, b.stream, device);
        if (pointer == nullptr)
            let_go_of(b);  // callbacks may give nothing, and CuPy frees no null
        else
            note(pointer, b, device);
        return pointer;
    } catch (...) {
        const std::exception_ptr error = std::current_exception();
        if (b.from != nullptr) let_go_of(b);  // which may run Python, without an error that is set
        raise_in_python(error);
        return failure;
    }
}

void deallocate(void*, void* pointer, int device) noexcept {
    if (pointer == nullptr || pointer == failure || is_exiting()) return;
    const auto known = blocks().take(reinterpret_cast<std::uintptr_t>(pointer));
    if (!known) return;
    if (!known->from->deallocate_at_hand(pointer, known->size_bytes, rmm::cuda_stream_view{known->stream}))
        deallocate_slowly(*known, pointer, device);
    let_go_of(*known);
}

std::pair<std::uintptr_t, std::uintptr_t> cupy_functions() {
    const nb::object exported = imported("cupy_backends.cuda.stream", "__pyx_capi__");
    const nb::object capsule = exported.attr("get")("get_current_stream_ptr");
    void* const function = capsule.is_none() ? nullptr : PyCapsule_GetPointer(capsule.ptr(), "intptr_t (void)");
    if (function == nullptr) {
        PyErr_Clear();
        throw nb::import_error("this CuPy does not let C functions ask for its current stream");
    }
    current_stream_of_cupy = reinterpret_cast<std::intptr_t (*)()>(function);
    return {reinterpret_cast<std::uintptr_t>(&allocate), reinterpret_cast<std::uintptr_t>(&deallocate)};
}

}  // namespace

void bind_allocator_hooks(nb::module_& core) {
    core.def("cupy_functions", &cupy_functions,
             "Addresses of two functions for CuPy's CFunctionAllocator, with parameter 0. ImportError for a CuPy that "
             "does not "
             "export its current stream to C.");
}

}  // namespace rmm_python
