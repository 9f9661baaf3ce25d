// The log of a runtime: what was submitted and what was issued, as lines of text (docs/design/record.md says which).
//
// Owns: the form of the lines. It is what goldens, simulations and reports of bugs are made of: it has no times and no
// addresses. Must not know: who decided.
#pragma once

#include <string>
#include <vector>

#include "kmm/trace/collector.hpp"
#include "kmm/trace/text_file.hpp"

namespace kmm::trace {

/// Writes what it is told. What was told before it listened is missing.
class RecordWriter final : public Consumer {
  public:
    /// Throws InvalidArgument where the file cannot be written.
    RecordWriter(const FilePath& path, const char* what_for, Machine machine);
    void bound(const Array& array, std::int64_t time_ns) noexcept override;
    void named(Number array, const std::string& name, std::int64_t time_ns) noexcept override;
    void submitted(const Task& task, std::int64_t time_ns) noexcept override;
    void note(const Event& event, const Fence* fences, std::size_t num_fences, std::int64_t time_ns,
              std::uint32_t thread) noexcept override;
    void flush() noexcept override { file_.flush(); }
    void finish(std::uint64_t lost) noexcept override;

  private:
    void task(Number number);
    void lane(LaneId lane);
    void place(const Fence& fence);
    void memory(Memory memory);
    void box(const detail::Box& box, std::uint32_t rank);
    void use(const Use& use);
    void after(const Fence* fences, std::size_t num_fences);
    void chunk(const Event& event);
    void way(const Event& event);
    void work(const Event& event, const Fence* fences, std::size_t num_fences);
    template<typename Write>
    void line(Write&& write) noexcept;

    Machine machine_;
    TextFile file_;
    std::uint64_t num_dropped_ = 0;  ///< lines for which the host had no memory
};

/// "g0.c1", "g0.up", "g1.f0": lanes as they are called in records.
std::string lane_name(const LaneInfo& lane);

}  // namespace kmm::trace
