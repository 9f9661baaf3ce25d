// A program as they were written for RMM 25.10: it includes one header, and uses what that header of RMM's brings.
// Built once for each header (CMakeLists.txt): with nothing else before it, so that what is missing does not compile.
#include RMM_HEADER

#ifdef LEANS_ON_ALIGNED
bool aligned() { return rmm::align_up(5, rmm::CUDA_ALLOCATION_ALIGNMENT) == 256; }
#else
bool aligned() { return true; }
#endif

#ifdef LEANS_ON_CUDA_DEVICE
bool device() {
    rmm::cuda_set_device_raii const same{rmm::get_current_cuda_device()};
    return rmm::get_num_cuda_devices() > 0 && rmm::percent_of_free_device_memory(50) > 0;
}
#else
bool device() { return true; }
#endif

#ifdef LEANS_ON_CUDA_MEMORY_RESOURCE
bool plain_resource() {
    rmm::mr::cuda_memory_resource cuda;
    void* const ptr = cuda.allocate(100);
    cuda.deallocate(ptr, 100);
    return ptr != nullptr;
}
#else
bool plain_resource() { return true; }
#endif

#ifdef LEANS_ON_PER_DEVICE_RESOURCE
bool current_resource() {
    return rmm::mr::get_current_device_resource_ref() ==
           rmm::device_async_resource_ref{rmm::mr::get_current_device_resource()};
}
#else
bool current_resource() { return true; }
#endif

#ifdef LEANS_ON_RESOURCE_REF
bool references() { return sizeof(rmm::device_async_resource_ref) == sizeof(rmm::host_resource_ref); }
#else
bool references() { return true; }
#endif

#ifdef LEANS_ON_ERROR
bool error() {
    try {
        throw rmm::out_of_memory{"of a test"};
    } catch (rmm::bad_alloc const&) {
        return true;
    }
}
#else
bool error() { return true; }
#endif

#ifdef LEANS_ON_LOGGER
bool logger() {
    RMM_LOG_TRACE("nothing of which is seen");
    return !rmm::default_logger().should_log(rapids_logger::level_enum::trace);
}
#else
bool logger() { return true; }
#endif

#ifdef LEANS_ON_PREFETCH
bool prefetch() {
    rmm::prefetch(nullptr, 0, rmm::get_current_cuda_device(), rmm::cuda_stream_view{});
    return true;
}
#else
bool prefetch() { return true; }
#endif

#ifdef LEANS_ON_RUNTIME_CAPABILITIES
bool capabilities() {
    return rmm::detail::runtime_async_alloc::is_supported() ||
           !rmm::detail::export_handle_type::is_supported(cudaMemHandleTypePosixFileDescriptor);
}
#else
bool capabilities() { return true; }
#endif

#ifdef LEANS_ON_OSTREAM
bool stream(std::ostream& out) { return static_cast<bool>(out << rmm::cuda_stream_view{} << std::flush); }
#endif

// What the resource headers of RMM have of the standard library's.
#ifdef LEANS_ON_STANDARD
bool standard() {
    std::mutex mutex;
    std::lock_guard<std::mutex> const lock{mutex};
    std::function<int(int)> const twice = [](int i) { return 2 * i; };
    int numbers[] = {3, 1, 2};
    std::sort(std::begin(numbers), std::end(numbers));
    std::ostringstream text;
    std::ostream& out = text;
    out << twice(numbers[2]) << std::flush;
    return text.str() == "6" && std::numeric_limits<int>::max() > 6;
}
#else
bool standard() { return true; }
#endif

int main() {
    return aligned() && device() && plain_resource() && current_resource() && references() && error() && logger() &&
                   prefetch() && capabilities() && standard()
               ? 0
               : 1;
}
