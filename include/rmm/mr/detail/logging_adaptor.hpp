// The logging adaptor without its template face. The work is compiled (src/rmm/logging_adaptor.cpp,
// allocation_log.cpp).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>

#include <rapids_logger/logger.hpp>
#include <rmm/mr/detail/adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {
namespace detail {

class allocation_log;  // src/rmm/allocation_log.hpp

/// Contract: logging_resource_adaptor.
class RMM_EXPORT logging_adaptor : public adaptor {
  public:
    void flush();
    [[nodiscard]] std::string header() const;
    ~logging_adaptor() override;

  protected:
    logging_adaptor(device_async_resource_ref upstream, std::string const& filename, bool auto_flush);
    logging_adaptor(device_async_resource_ref upstream, std::ostream& stream, bool auto_flush);
    logging_adaptor(device_async_resource_ref upstream, std::initializer_list<rapids_logger::sink_ptr> sinks,
                    bool auto_flush);
    logging_adaptor(logging_adaptor&&) noexcept;
    logging_adaptor& operator=(logging_adaptor&&) noexcept;

    [[nodiscard]] static std::string filename_of_environment();

  private:
    void* do_allocate(std::size_t bytes, cuda_stream_view stream) override;
    void do_deallocate(void* ptr, std::size_t bytes, cuda_stream_view stream) override;

    std::unique_ptr<allocation_log> log_;
};

}  // namespace detail
}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE
