// Implements of <rmm/rmm.h> what makes resources: rmm_open and rmm_open_callbacks. Any thread.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "driver/format.hpp"
#include "rmm/aligned.hpp"
#include "rmm/c_interface/errors.hpp"
#include "rmm/c_interface/options.hpp"
#include "rmm/c_interface/resource.hpp"
#include "rmm/cuda_device.hpp"
#include "rmm/error.hpp"
#include "rmm/meant_stream.hpp"
#include "rmm/mr/aligned_resource_adaptor.hpp"
#include "rmm/mr/arena_memory_resource.hpp"
#include "rmm/mr/binning_memory_resource.hpp"
#include "rmm/mr/cuda_async_managed_memory_resource.hpp"
#include "rmm/mr/cuda_async_memory_resource.hpp"
#include "rmm/mr/cuda_memory_resource.hpp"
#include "rmm/mr/fixed_size_memory_resource.hpp"
#include "rmm/mr/limiting_resource_adaptor.hpp"
#include "rmm/mr/logging_resource_adaptor.hpp"
#include "rmm/mr/managed_memory_resource.hpp"
#include "rmm/mr/pinned_host_memory_resource.hpp"
#include "rmm/mr/pinned_pool_memory_resource.hpp"
#include "rmm/mr/pool_memory_resource.hpp"
#include "rmm/mr/prefetch_resource_adaptor.hpp"
#include "rmm/mr/sam_headroom_memory_resource.hpp"
#include "rmm/mr/statistics_resource_adaptor.hpp"
#include "rmm/mr/system_memory_resource.hpp"
#include "rmm/mr/thread_safe_resource_adaptor.hpp"
#include "rmm/mr/tracking_resource_adaptor.hpp"
#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/status.hpp"

namespace rmm {
inline namespace kmm_v0 {
namespace c_interface {
namespace {

using base = mr::device_memory_resource;
using made = std::unique_ptr<rmm_resource>;

enum class upstream_rule : unsigned char { none, may_be_null, needed };

/// What a resource is made of. `upstream` is null only for kinds that take none.
struct order {
    const char* kind;
    int device;
    rmm_resource* upstream;
    options& given;

    template<typename Resource, typename... Arguments>
    std::unique_ptr<opened<Resource>> make(Arguments&&... arguments) const {
        given.expect_no_more();
        return std::make_unique<opened<Resource>>(kind, device, upstream, std::forward<Arguments>(arguments)...);
    }
    /// The same over `upstream`.
    template<typename Resource, typename... Arguments>
    std::unique_ptr<opened<Resource>> make_over(Arguments&&... arguments) const {
        return make<Resource>(&upstream->object(), std::forward<Arguments>(arguments)...);
    }
};

std::size_t whole_device() { return available_device_memory().second; }

template<typename Resource>
made plain(const order& o) {
    return o.make<Resource>();
}

template<typename Adaptor>
made adaptor_alone(const order& o) {
    return o.make_over<Adaptor>();
}

template<typename Opened>
made named(Opened resource, const std::optional<std::string>& name) {
    if (name) (void)resource->set_name(name->c_str());
    return resource;
}

made open_cuda_async(const order& o) {
    const auto initial = o.given.bytes("initial");
    const auto maximum = o.given.bytes("maximum");
    const auto threshold = o.given.bytes("release_threshold");
    return o.make<mr::cuda_async_memory_resource>(initial.value_or(0), threshold, std::nullopt, maximum);
}

made open_sam_headroom(const order& o) {
    const auto headroom = o.given.bytes("headroom");
    if (!headroom) o.given.miss("headroom", "1GiB");
    return o.make<mr::sam_headroom_memory_resource>(*headroom);
}

made open_pool(const order& o) {
    const auto initial = o.given.bytes("initial");
    const auto maximum = o.given.bytes("maximum");
    const auto threshold = o.given.bytes("release_threshold");
    const auto name = o.given.text("name");
    auto pool = o.make_over<mr::pool_memory_resource<base>>(initial.value_or(0), maximum);
    if (threshold) pool->resource().set_release_threshold(*threshold);
    return named(std::move(pool), name);
}

made open_arena(const order& o) {
    const auto size = o.given.bytes("size");
    const auto name = o.given.text("name");
    return named(o.make_over<mr::arena_memory_resource<base>>(size), name);
}

made open_fixed_size(const order& o) {
    using fixed_size = mr::fixed_size_memory_resource<base>;
    const auto block = o.given.bytes("block");
    const auto blocks = o.given.count("blocks");
    const auto name = o.given.text("name");
    return named(o.make_over<fixed_size>(block.value_or(fixed_size::default_block_size),
                                         blocks.value_or(fixed_size::default_blocks_to_preallocate)),
                 name);
}

made open_binning(const order& o) {
    using binning = mr::binning_memory_resource<base>;
    const auto least = o.given.count("min_exponent");
    const auto most = o.given.count("max_exponent");
    if (!least && !most) return o.make_over<binning>();
    if (!least) o.given.miss("min_exponent", "18");
    if (!most) o.given.miss("max_exponent", "22");
    // What fits into no exponent is refused by the resource, with the number.
    const auto exponent = [](std::size_t number) {
        return static_cast<std::int8_t>(std::min<std::size_t>(number, 127));
    };
    return o.make_over<binning>(exponent(*least), exponent(*most));
}

made open_vmm(const order& o) {
    using vmm = mr::vmm_memory_resource;
    vmm::options how;
    how.maximum_size = o.given.bytes("maximum");
    const auto name = o.given.text("name");
    int handles = 0;
    if (o.given.flag("ipc")) handles |= static_cast<int>(vmm::handle_type::posix_file_descriptor);
    if (o.given.flag("fabric")) handles |= static_cast<int>(vmm::handle_type::fabric);
    how.export_handle_type = static_cast<vmm::handle_type>(handles);
    how.rdma = o.given.flag("rdma");
    how.multicast = o.given.flag("multicast");
    return named(o.make<vmm>(how), name);
}

made open_pinned_pool(const order& o) {
    const auto initial = o.given.bytes("initial");
    const auto maximum = o.given.bytes("maximum");
    const auto name = o.given.text("name");
    return named(o.make<mr::pinned_pool_memory_resource>(initial.value_or(0), maximum), name);
}

made open_aligned(const order& o) {
    const auto alignment = o.given.bytes("alignment");
    const auto threshold = o.given.bytes("threshold");
    return o.make_over<mr::aligned_resource_adaptor<base>>(alignment.value_or(CUDA_ALLOCATION_ALIGNMENT),
                                                           threshold.value_or(0));
}

made open_limiting(const order& o) {
    const auto limit = o.given.bytes("limit");
    if (!limit) o.given.miss("limit", "8GiB");
    return o.make_over<mr::limiting_resource_adaptor<base>>(*limit);
}

made open_logging(const order& o) {
    using logging = mr::logging_resource_adaptor<base>;
    const auto file = o.given.text("file");
    const bool flush = o.given.flag("flush");
    return o.make_over<logging>(file ? *file : logging::get_default_filename(), flush);
}

made open_tracking(const order& o) {
    const bool stacks = o.given.flag("stacks");
    return o.make_over<mr::tracking_resource_adaptor<base>>(stacks);
}

struct known_kind {
    std::string_view name;
    upstream_rule upstream;
    made (*open)(const order&);
};

constexpr std::array kinds = {
    known_kind{"cuda", upstream_rule::none, &plain<mr::cuda_memory_resource>},
    known_kind{"managed", upstream_rule::none, &plain<mr::managed_memory_resource>},
    known_kind{"pinned", upstream_rule::none, &plain<mr::pinned_host_memory_resource>},
    known_kind{"cuda_async", upstream_rule::none, &open_cuda_async},
    known_kind{"cuda_async_managed", upstream_rule::none, &plain<mr::cuda_async_managed_memory_resource>},
    known_kind{"system", upstream_rule::none, &plain<mr::system_memory_resource>},
    known_kind{"sam_headroom", upstream_rule::none, &open_sam_headroom},
    known_kind{"pool", upstream_rule::may_be_null, &open_pool},
    known_kind{"arena", upstream_rule::may_be_null, &open_arena},
    known_kind{"fixed_size", upstream_rule::may_be_null, &open_fixed_size},
    known_kind{"binning", upstream_rule::may_be_null, &open_binning},
    known_kind{"vmm", upstream_rule::none, &open_vmm},
    known_kind{"pinned_pool", upstream_rule::none, &open_pinned_pool},
    known_kind{"aligned", upstream_rule::needed, &open_aligned},
    known_kind{"limiting", upstream_rule::needed, &open_limiting},
    known_kind{"logging", upstream_rule::needed, &open_logging},
    known_kind{"prefetch", upstream_rule::needed, &adaptor_alone<mr::prefetch_resource_adaptor<base>>},
    known_kind{"statistics", upstream_rule::needed, &adaptor_alone<mr::statistics_resource_adaptor<base>>},
    known_kind{"thread_safe", upstream_rule::needed, &adaptor_alone<mr::thread_safe_resource_adaptor<base>>},
    known_kind{"tracking", upstream_rule::needed, &open_tracking},
};

const known_kind& find_kind(const char* name) {
    const auto at = std::find_if(kinds.begin(), kinds.end(), [&](const known_kind& k) { return k.name == name; });
    if (at != kinds.end()) return *at;
    std::string names;
    for (const known_kind& k : kinds) names += (names.empty() ? "" : ", ") + std::string(k.name);
    throw invalid_argument(kmm::driver::format("there is no kind of resource '{}'; there are {}", name, names));
}

int device_to_open_on() {
    rmm::detail::refuse_after_fork();
    int device = -1;
    rmm::detail::check(rmm::detail::the_driver().current_device(&device));
    return device;
}

void expect_upstream(const known_kind& kind, const rmm_resource* upstream, int device) {
    const std::string name(kind.name);
    if (upstream == nullptr) {
        if (kind.upstream == upstream_rule::needed)
            throw invalid_argument(
                kmm::driver::format("a resource of kind '{}' needs an upstream: give it one, such as a 'cuda'", name));
        return;
    }
    if (kind.upstream == upstream_rule::none)
        throw invalid_argument(kmm::driver::format("a resource of kind '{}' takes no upstream: give null", name));
    if (upstream->device() != device)
        throw invalid_argument(kmm::driver::format(
            "the upstream belongs to device {}, and the current device is {}: make the upstream's device current",
            upstream->device(), device));
}

made open(const char* name, const char* text, rmm_resource* upstream) {
    const known_kind& kind = find_kind(name);
    const int device = device_to_open_on();
    expect_upstream(kind, upstream, device);
    options given(name, text, &whole_device);
    made own_upstream;
    if (upstream == nullptr && kind.upstream == upstream_rule::may_be_null)
        own_upstream = std::make_unique<opened<mr::cuda_memory_resource>>("cuda", device, nullptr);
    made resource = kind.open({name, device, own_upstream != nullptr ? own_upstream.get() : upstream, given});
    // The resource has a reference, and this one was the maker's.
    if (own_upstream != nullptr) rmm_release(own_upstream.release());
    return resource;
}

// ---- functions of the caller's

/// C knows one meaning of handle 0, the legacy stream: where a unit of the program means its thread's own, the
/// functions see that.
class callback_resource final : public base {
  public:
    callback_resource(rmm_allocate_function allocate, rmm_deallocate_function deallocate, void* user)
        : allocate_(allocate), deallocate_(deallocate), user_(user) {}
    callback_resource(const callback_resource&) = delete;
    callback_resource& operator=(const callback_resource&) = delete;
    ~callback_resource() override {
        if (on_close_ != nullptr) on_close_(user_);
    }
    void close_with(void (*on_close)(void*)) noexcept { on_close_ = on_close; }

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override {
        if (bytes == 0) return nullptr;
        void* pointer = nullptr;
        const int code = allocate_(user_, bytes, rmm::detail::meant(stream).value(), &pointer);
        if (code == RMM_OK && pointer != nullptr) return pointer;
        const std::string text =
            kmm::driver::format("the allocate function of a resource of callbacks {} (failed to allocate {} bytes)",
                                code == RMM_OK ? "gave null" : kmm::driver::format("returned {}", code), bytes);
        if (code != RMM_OUT_OF_MEMORY) throw rmm::bad_alloc(text);
        memory_shortage shortage;
        shortage.requested_bytes = bytes;
        throw rmm::out_of_memory(text, shortage);
    }
    void do_deallocate(void* pointer, std::size_t bytes, cuda_stream_view stream) override {
        if (pointer != nullptr) deallocate_(user_, pointer, bytes, rmm::detail::meant(stream).value());
    }

    const rmm_allocate_function allocate_;
    const rmm_deallocate_function deallocate_;
    void* const user_;
    void (*on_close_)(void*) = nullptr;
};

}  // namespace
}  // namespace c_interface
}  // namespace kmm_v0
}  // namespace rmm

using namespace rmm::c_interface;

int rmm_open(const char* kind, const char* options, rmm_resource* upstream, rmm_resource** out) {
    if (out != nullptr) *out = nullptr;
    return guarded([&] {
        expect_not_null(out, "out");
        expect_not_null(kind, "kind");
        *out = open(kind, options, upstream).release();
    });
}

int rmm_open_callbacks(rmm_allocate_function allocate, rmm_deallocate_function deallocate, void (*on_close)(void* user),
                       void* user, rmm_resource** out) {
    if (out != nullptr) *out = nullptr;
    return guarded([&] {
        expect_not_null(out, "out");
        if (allocate == nullptr) throw invalid_argument("allocate is null");
        if (deallocate == nullptr) throw invalid_argument("deallocate is null");
        auto resource = std::make_unique<opened<callback_resource>>("callbacks", device_to_open_on(), nullptr, allocate,
                                                                    deallocate, user);
        resource->resource().close_with(on_close);
        *out = resource.release();
    });
}
