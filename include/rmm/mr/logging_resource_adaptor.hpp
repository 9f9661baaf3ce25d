// Writes what is allocated and freed through it into a file.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <string>

#include <rmm/mr/detail/logging_adaptor.hpp>

namespace RMM_NAMESPACE {
inline namespace kmm_v0 {
namespace mr {

/// Forwards to `Upstream` and logs each request as a line of comma-separated values. The first line is
/// "Thread,Time,Action,Pointer,Size,Stream"; then for example "2467,00:56:53.652380,allocate,0x19b29300,100,0". The
/// thread is the system's number, the time local, the action "allocate", "allocate failure" (pointer "(nil)") or
/// "free", the size what was asked of this adaptor, the stream its handle.
///
/// - An allocation is logged when it has succeeded or failed, a free before upstream is called; lines are in that
///   order, over all threads.
/// - Into a file: the thread that allocates only notes the event (about 50 ns); another thread writes. The file is at
///   most a tenth of a second behind; `flush()`, the destructor and exit() write the rest. A program that is killed
///   loses what was behind. Nothing is dropped: who is faster than the file waits. With `auto_flush` each line is in
///   the file when the call returns.
/// - Into a stream or callback of the program: written by the thread that allocates, before the call returns;
///   `auto_flush` flushes the stream too.
/// - After fork() the child goes on with the same file, and writes what it logs itself; no line appears twice.
/// - Sinks that fail are reported on stderr, once. What upstream throws passes through.
/// - Thread-safe. Equal to an adaptor of the same type over an equal upstream. Movable (not while in use), not
///   copyable; one that was moved from may only be destroyed or assigned to.
template<typename Upstream>
class logging_resource_adaptor final : public detail::adaptor_over<Upstream, detail::logging_adaptor> {
    using base = detail::adaptor_over<Upstream, detail::logging_adaptor>;

  public:
    /// Into a file, which is emptied; folders that are missing are made. Throws rmm::logic_error for a null upstream,
    /// std::runtime_error if the file cannot be opened.
    logging_resource_adaptor(device_async_resource_ref upstream, std::string const& filename = get_default_filename(),
                             bool auto_flush = false)
        : base(upstream, filename, auto_flush) {}
    logging_resource_adaptor(Upstream* upstream, std::string const& filename = get_default_filename(),
                             bool auto_flush = false)
        : base(upstream, filename, auto_flush) {}

    /// Into a stream, which must outlive the adaptor.
    logging_resource_adaptor(device_async_resource_ref upstream, std::ostream& stream, bool auto_flush = false)
        : base(upstream, stream, auto_flush) {}
    logging_resource_adaptor(Upstream* upstream, std::ostream& stream, bool auto_flush = false)
        : base(upstream, stream, auto_flush) {}

    /// Into every one of the sinks. Throws std::invalid_argument if one is null.
    logging_resource_adaptor(device_async_resource_ref upstream, std::initializer_list<rapids_logger::sink_ptr> sinks,
                             bool auto_flush = false)
        : base(upstream, sinks, auto_flush) {}
    logging_resource_adaptor(Upstream* upstream, std::initializer_list<rapids_logger::sink_ptr> sinks,
                             bool auto_flush = false)
        : base(upstream, sinks, auto_flush) {}

    logging_resource_adaptor() = delete;
    ~logging_resource_adaptor() override = default;
    logging_resource_adaptor(logging_resource_adaptor const&) = delete;
    logging_resource_adaptor& operator=(logging_resource_adaptor const&) = delete;
    logging_resource_adaptor(logging_resource_adaptor&&) noexcept = default;
    logging_resource_adaptor& operator=(logging_resource_adaptor&&) noexcept = default;

    /// Returns when everything that was logged before the call is written and flushed.
    void flush() { base::flush(); }
    /// The first line, without its end.
    [[nodiscard]] std::string header() const { return base::header(); }
    /// What the environment variable RMM_LOG_FILE says. Throws rmm::logic_error where it is unset.
    [[nodiscard]] static std::string get_default_filename() { return base::filename_of_environment(); }

  private:
    [[nodiscard]] bool do_is_equal(device_memory_resource const& other) const noexcept override {
        return detail::equal_adaptors(*this, other);
    }
};

/// The factories of 23.12.
template<typename Upstream>
logging_resource_adaptor<Upstream>
make_logging_adaptor(Upstream* upstream,
                     std::string const& filename = logging_resource_adaptor<Upstream>::get_default_filename(),
                     bool auto_flush = false) {
    return logging_resource_adaptor<Upstream>{upstream, filename, auto_flush};
}
template<typename Upstream>
logging_resource_adaptor<Upstream> make_logging_adaptor(Upstream* upstream, std::ostream& stream,
                                                        bool auto_flush = false) {
    return logging_resource_adaptor<Upstream>{upstream, stream, auto_flush};
}

}  // namespace mr
}  // namespace kmm_v0
}  // namespace RMM_NAMESPACE

#include <rmm/detail/brings.hpp>
