// How the memory of a vmm_memory_resource is made where other processes and devices are to reach it: what it asks the
// driver for, and what it says where the device has not what was asked for.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "rmm/mr/vmm_memory_resource.hpp"
#include "rmm/status.hpp"
#include "stream_tools.hpp"
#include "support/forwarding_driver.hpp"
#include "support/sizes.hpp"

namespace {

using namespace rmm;
using kmm::driver::Code;
using kmm::driver::PhysicalOptions;
using kmm::driver::Status;
using vmm = mr::vmm_memory_resource;

/// Has everything, and notes what is asked for.
class SharingDriver final : public kmm::driver::testing::ForwardingDriver {
  public:
    SharingDriver() : ForwardingDriver(rmm_test::driver()) {}
    Status physical_support(int, PhysicalOptions* out) noexcept override {
        *out = {1 | 8, true, true};
        return {};
    }
    Status granularity(int device, const PhysicalOptions& options, std::size_t* out) noexcept override {
        const Status status = ForwardingDriver::granularity(device, {}, out);
        if (options.multicast) *out = 8 * MiB;
        return status;
    }
    Status create_physical(int device, std::size_t bytes, const PhysicalOptions& options,
                           kmm::driver::PhysicalHandle* out) noexcept override {
        if (refuses_pieces) return {Code::not_supported, 800};
        asked = options;
        sizes.insert(bytes);
        return ForwardingDriver::create_physical(device, bytes, {}, out);
    }
    bool refuses_pieces = false;
    PhysicalOptions asked;
    std::set<std::size_t> sizes;

  private:
    void called(const char*) noexcept override {}
};

std::string refusal_of(const vmm::options& how) {
    try {
        const vmm pool{how};
    } catch (const rmm::logic_error& error) {
        return error.what();
    }
    return "";
}

TEST(VmmSharing, every_piece_is_made_as_it_was_asked_for) {
    SharingDriver sharing;
    const rmm::detail::driver_scope on(sharing);
    for (const auto handles : {vmm::handle_type::posix_file_descriptor, vmm::handle_type::fabric})
        for (const bool rdma : {false, true}) {
            vmm::options how;
            how.maximum_size = 64 * MiB;
            how.export_handle_type = handles;
            how.rdma = rdma;
            vmm pool{how};
            sharing.asked = {};
            void* const block = pool.allocate(6 * MiB, cuda_stream_view{});
            EXPECT_EQ(sharing.asked, (PhysicalOptions{static_cast<std::uint32_t>(handles), rdma, false}));
            pool.deallocate(block, 6 * MiB, cuda_stream_view{});
        }
    vmm plain{64 * MiB};
    plain.deallocate(plain.allocate(6 * MiB, cuda_stream_view{}), 6 * MiB, cuda_stream_view{});
    EXPECT_EQ(sharing.asked, PhysicalOptions{});
}

TEST(VmmSharing, pieces_for_multicast_objects_are_of_whole_steps_of_theirs) {
    SharingDriver sharing;
    const rmm::detail::driver_scope on(sharing);
    vmm::options how;
    how.maximum_size = 64 * MiB;
    how.multicast = true;
    vmm pool{how};
    std::vector<void*> blocks;
    for (const std::size_t bytes : {4 * KiB, 300 * KiB, 3 * MiB, 9 * MiB})
        blocks.push_back(pool.allocate(bytes, cuda_stream_view{}));
    EXPECT_TRUE(sharing.asked.multicast);
    for (const std::size_t bytes : sharing.sizes) EXPECT_EQ(bytes % (8 * MiB), 0u) << bytes;
    std::size_t i = 0;
    for (const std::size_t bytes : {4 * KiB, 300 * KiB, 3 * MiB, 9 * MiB})
        pool.deallocate(blocks[i++], bytes, cuda_stream_view{});
    EXPECT_EQ(pool.statistics().in_use_bytes, 0u);
    EXPECT_GT(pool.trim(), 0u);
}

TEST(VmmSharing, what_the_device_has_not_is_refused_with_its_name) {
    // The host driver has none of it.
    vmm::options how;
    how.export_handle_type = vmm::handle_type::posix_file_descriptor;
    EXPECT_NE(refusal_of(how).find("device 0 of the host driver has no memory that other processes open by a file "
                                   "descriptor: make the vmm_memory_resource without it"),
              std::string::npos)
        << refusal_of(how);
    how.export_handle_type = vmm::handle_type::fabric;
    EXPECT_NE(refusal_of(how).find("fabric handle"), std::string::npos) << refusal_of(how);
    how.export_handle_type = static_cast<vmm::handle_type>(2);
    EXPECT_NE(refusal_of(how).find("no handles of this type"), std::string::npos) << refusal_of(how);
    how = {};
    how.rdma = true;
    EXPECT_NE(refusal_of(how).find("GPUDirect RDMA"), std::string::npos) << refusal_of(how);
    how = {};
    how.multicast = true;
    EXPECT_NE(refusal_of(how).find("no multicast objects"), std::string::npos) << refusal_of(how);
}

TEST(VmmSharing, memory_that_the_driver_refuses_after_all_is_refused_before_the_first_allocation) {
    // Fabric handles need a service of the machine, which the device's attribute does not tell of.
    SharingDriver sharing;
    const rmm::detail::driver_scope on(sharing);
    sharing.refuses_pieces = true;
    vmm::options how;
    how.export_handle_type = vmm::handle_type::fabric;
    EXPECT_THROW(vmm{how}, rmm::cuda_error);
    vmm plain{64 * MiB};  // is asked for nothing, and so makes no piece to try
}

}  // namespace
