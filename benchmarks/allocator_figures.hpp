// The figures of allocators, one function each: churn, threads, many streams, holes, frees beside a busy stream,
// containers, fragmentation, tails. What each means stands at its function.
//
// Owns: names, repetitions and seeds. Must not know: any library of ours, nor CUDA (see allocator_workloads.hpp).
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator_fragmentation.hpp"
#include "allocator_tails.hpp"
#include "allocator_workloads.hpp"
#include "common.hpp"

namespace kmm::bench {

struct Comparison {
    std::map<std::string, double> must;  ///< values to reach, by the whole name of the figure
    std::map<std::string, Samples> raw;  ///< of the driver's own allocator, by the name without the subject
};

template<typename Subject>
class AllocatorFigures {
  public:
    AllocatorFigures(Report& report, Machine& machine, const Scale& scale, Comparison& comparison)
        : report_(report), machine_(machine), scale_(scale), comparison_(comparison) {}

    /// All figures of one subject. `is_raw`: its samples become the `raw` of those that follow.
    void run(const Maker<Subject>& maker, bool is_raw = false) {
        maker_ = &maker;
        is_raw_ = is_raw;
        measure("churn", [&] { churn("churn", 1, FreedOn::own_stream); });
        if (maker.takes == Takes::churn_only) return;
        if (maker.takes == Takes::churn_and_holes) return holes();
        measure("churn_16_threads", [&] { churn_threads(16); });
        measure("churn_64_streams", [&] { churn("churn_64_streams", 64, FreedOn::own_stream); });
        measure("churn_64_streams_freed_elsewhere",
                [&] { churn("churn_64_streams_freed_elsewhere", 64, FreedOn::another_stream); });
        holes();
        measure("free_while_busy", [&] { free_while_busy(); });
        measure("device_buffer", [&] { buffers(1); });
        measure("device_buffer_8_threads", [&] { buffers(8); });
        if (maker.takes != Takes::all_but_limits) {
            for (const std::size_t streams : {std::size_t{1}, std::size_t{8}})
                fill("churn_half_full", "live_share", streams, &Filler<Subject>::three_to_two);
            for (const std::size_t streams : {std::size_t{1}, std::size_t{8}})
                fill("ramp_half_full", "ramp_live_share", streams, &Filler<Subject>::ramp);
        }
        if (maker.takes != Takes::all_but_growth) measure("reserved_over_live", [&] { growth(); });
        for (const std::size_t threads : {std::size_t{1}, std::size_t{16}}) tails(threads);
    }

  private:
    void holes() {
        for (std::size_t holes : scale_.holes) {
            const std::string name = "churn_" + std::to_string(holes) + "_holes";
            measure(name, [&] { churn_holes(name, holes); });
        }
        measure("pairs_among_holes", [&] { pairs_among_holes(); });
    }

    using Subjects = std::unique_ptr<Subject>;

    std::string full(const std::string& name) const { return maker_->name + "/" + name; }
    bool wants(const std::string& name) const { return report_.wants(full(name)); }

    template<typename Work>
    void measure(const std::string& name, Work work) {
        if (wants(name)) guarded(name, work);
    }

    /// A subject that fails says so, and the others are measured.
    template<typename Work>
    void guarded(const std::string& name, Work work) {
        try {
            work();
        } catch (const std::exception& error) {
            report_.skip(full(name), std::string("failed: ") + error.what());
        }
        machine_.synchronize();
    }

    void add(const std::string& name, const Samples& samples, const Unit& unit, const std::string& note) {
        Beside beside;
        beside.note = note;
        if (const auto found = comparison_.must.find(full(name)); found != comparison_.must.end())
            beside.must = found->second;
        if (is_raw_)
            comparison_.raw[name] = samples;
        else if (const auto raw = comparison_.raw.find(name); raw != comparison_.raw.end())
            beside.raw = raw->second;
        report_.add(full(name), samples, unit, beside);
    }

    Subjects make(std::size_t initial, std::optional<std::size_t> maximum) {
        Shape shape;
        shape.initial_bytes = initial;
        shape.maximum_bytes = maximum;
        return maker_->make(shape);
    }

    static std::string sizes(std::size_t least, std::size_t most) {
        return "log-uniform " + std::to_string(least) + " - " + std::to_string(most) + " B";
    }

    int repetitions() const { return report_.repetitions(5); }
    double sample_seconds() const { return report_.size(scale_.sample_seconds, scale_.sample_seconds / 10); }

    /// Seconds of one call of `step`; as many as fit into a sample, after a quarter of that to warm up.
    template<typename Step>
    Samples steady(Step step, double operations_per_step) {
        const auto run_for = [&](double seconds) {
            std::size_t steps = 0;
            const auto begin = Clock::now();
            double elapsed = 0;
            do {
                for (int i = 0; i < 64; ++i) step();
                steps += 64;
                elapsed = seconds_since(begin);
            } while (elapsed < seconds);
            machine_.synchronize();
            return elapsed / (static_cast<double>(steps) * operations_per_step);
        };
        (void)run_for(sample_seconds() / 4);
        Samples samples;
        for (int i = 0; i < repetitions(); ++i) samples.push_back(run_for(sample_seconds()));
        return samples;
    }

    /// One thread. An operation is one allocate or one deallocate.
    void churn(const std::string& name, std::size_t num_streams, FreedOn freed_on) {
        const Streams streams(machine_, num_streams);
        const Subjects subject = make(scale_.pool_bytes, std::nullopt);
        Samples samples;
        {
            Churn<Subject> work(*subject, streams.all(), freed_on, scale_.num_live, 256, scale_.largest_bytes, 1);
            samples = steady([&] { work.step(); }, 2);
        }
        add(name, samples, nanoseconds(),
            std::to_string(scale_.num_live) + " live, " + sizes(256, scale_.largest_bytes) + ", seed 1");
    }

    /// `work(thread, steps)` on several threads; seconds of one step over all threads.
    template<typename Work>
    Samples steady_threads(std::size_t num_threads, Work work) {
        std::size_t steps = 200;
        const auto run = [&] { return together(num_threads, [&](std::size_t thread) { work(thread, steps); }); };
        double elapsed = run();
        while (elapsed < sample_seconds() / 4 && steps < 10'000'000) {
            steps *= 4;
            elapsed = run();
        }
        steps =
            std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(steps) * sample_seconds() / elapsed));
        Samples samples;
        for (int i = 0; i < repetitions(); ++i) {
            samples.push_back(run() / (static_cast<double>(steps) * static_cast<double>(num_threads)));
            machine_.synchronize();
        }
        return samples;
    }

    /// A stream for each thread, and the live blocks divided among them. Wall time of an operation over all threads.
    void churn_threads(std::size_t num_threads) {
        const Streams streams(machine_, num_threads);
        const Subjects subject = make(scale_.pool_bytes, std::nullopt);
        std::vector<std::unique_ptr<Churn<Subject>>> work;
        for (std::size_t thread = 0; thread < num_threads; ++thread) {
            work.push_back(std::make_unique<Churn<Subject>>(*subject, std::vector<RawStream>{streams[thread]},
                                                            FreedOn::own_stream, scale_.num_live / num_threads, 256,
                                                            scale_.largest_bytes, 1 + thread));
        }
        Samples samples =
            steady_threads(num_threads, [&](std::size_t thread, std::size_t steps) { work[thread]->steps(steps); });
        for (double& sample : samples) sample /= 2;
        work.clear();
        add("churn_16_threads", samples, nanoseconds(),
            "wall time over all threads; " + std::to_string(scale_.num_live / num_threads) + " live each, seeds 1 to " +
                std::to_string(num_threads));
    }

    /// Blocks of 1 KiB of which every second is free: too small for the churn of 64 KiB and more.
    void churn_holes(const std::string& name, std::size_t num_holes) {
        constexpr std::size_t hole = 1024, least = 65536;
        const Streams streams(machine_, 1);
        const Subjects subject = make(scale_.pool_bytes, std::nullopt);
        std::vector<void*> small;
        const auto drop = [&](std::size_t i) {
            subject->deallocate(std::exchange(small[i], nullptr), hole, streams[0]);
        };
        const auto drop_all = [&] {
            for (std::size_t i = 0; i < small.size(); ++i) {
                if (small[i] != nullptr) drop(i);
            }
        };
        Samples samples;
        try {
            while (small.size() < 2 * num_holes) small.push_back(subject->allocate(hole, streams[0]));
            // From the end: a list that is searched from the lowest address on is quick then, and the setup not
            // measured.
            for (std::size_t i = small.size(); i > 1; i -= 2) drop(i - 1);
            Churn<Subject> work(*subject, streams.all(), FreedOn::own_stream, scale_.num_live, least,
                                scale_.largest_bytes, 1);
            samples = steady([&] { work.step(); }, 2);
        } catch (...) {
            drop_all();
            throw;
        }
        drop_all();
        add(name, samples, nanoseconds(),
            std::to_string(scale_.num_live) + " live, " + sizes(least, scale_.largest_bytes) +
                ", holes of 1024 B, seed 1");
    }

    /// Of many blocks of 4 KiB every second one is freed, from high to low addresses; then pairs of 64 KiB, which fit
    /// into none of the holes: the mean pair, and the longest of each run (`_worst`).
    void pairs_among_holes() {
        constexpr std::size_t small = 4096, large = 65536, num_pairs = 20'000;
        const Streams streams(machine_, 1);
        Samples mean, worst;
        for (int i = 0; i < repetitions(); ++i) {
            const Subjects subject = make(scale_.pool_bytes, std::nullopt);
            Live<Subject> live(*subject, streams);
            while (live.size() < scale_.num_small)
                if (!live.add(small, 0)) throw std::runtime_error("a request was refused");
            live.drop_every_second_from_the_top();
            double longest = 0;
            const auto begin = Clock::now();
            auto last = begin;
            for (std::size_t pair = 0; pair < num_pairs; ++pair) {
                subject->deallocate(subject->allocate(large, streams[0]), large, streams[0]);
                const auto now = Clock::now();
                longest = std::max(longest, std::chrono::duration<double>(now - last).count());
                last = now;
            }
            mean.push_back(std::chrono::duration<double>(last - begin).count() / num_pairs);
            worst.push_back(longest);
        }
        const std::string note = "a pair of 64 KiB; " + std::to_string(scale_.num_small) +
                                 " blocks of 4 KiB, every second one freed from high to low addresses";
        add("pairs_among_holes", mean, nanoseconds(), note);
        add("pairs_among_holes_worst", worst, microseconds(), note);
    }

    /// Host time of one free whose stream has a kernel of 200 us running.
    void free_while_busy() {
        const Streams streams(machine_, 1);
        const Subjects subject = make(scale_.pool_bytes, std::nullopt);
        Samples samples;
        for (int i = 0; i < report_.repetitions(50) + 1; ++i) {
            void* const block = subject->allocate(scale_.busy_bytes, streams[0]);
            machine_.synchronize();
            if (!machine_.spin(streams[0], 200)) {
                subject->deallocate(block, scale_.busy_bytes, streams[0]);
                report_.skip(full("free_while_busy"), "not available: no kernel that keeps a stream busy");
                return;
            }
            const auto begin = Clock::now();
            subject->deallocate(block, scale_.busy_bytes, streams[0]);
            const double elapsed = seconds_since(begin);
            machine_.synchronize();
            if (i > 0) samples.push_back(elapsed);
        }
        add("free_while_busy", samples, nanoseconds(), std::to_string(scale_.busy_bytes) + " B, kernel of 200 us");
    }

    /// A device_buffer of 1 KiB made and dropped, this subject current; a pair. A stream for each thread.
    void buffers(std::size_t num_threads) {
        const Streams streams(machine_, num_threads);
        const Subjects subject = make(scale_.buffer_pool_bytes, std::nullopt);
        if (!subject->make_current(true)) return;
        Samples samples;
        std::exception_ptr error;
        try {
            if (num_threads == 1) {
                samples = steady([&] { subject->make_and_drop_buffer(1024, streams[0]); }, 1);
            } else {
                samples = steady_threads(num_threads, [&](std::size_t thread, std::size_t steps) {
                    for (std::size_t i = 0; i < steps; ++i) subject->make_and_drop_buffer(1024, streams[thread]);
                });
            }
        } catch (...) {
            error = std::current_exception();
        }
        subject->make_current(false);
        if (error) std::rethrow_exception(error);
        add(num_threads == 1 ? "device_buffer" : "device_buffer_8_threads", samples, nanoseconds(),
            num_threads == 1 ? "a pair" : "a pair, wall time over all threads");
    }

    /// What fragmentation leaves: see Filler. A sample for each seed; `share` is that of the limit which is live at the
    /// first request that is refused.
    void fill(const std::string& operation, const std::string& share, std::size_t num_streams,
              Filling (Filler<Subject>::*workload)()) {
        const std::string suffix = num_streams == 1 ? "_1_stream" : "_8_streams";
        if (!wants(share + suffix) && !wants(operation + suffix)) return;
        guarded(share + suffix, [&] {
            Samples operations, inverse;
            for (int seed = 1; seed <= num_seeds(); ++seed) {
                const Streams streams(machine_, num_streams);
                const Subjects subject = make(scale_.limit_bytes, scale_.limit_bytes);
                Filler<Subject> filler(*subject, streams, scale_, seed);
                const Filling filling = (filler.*workload)();
                if (filling.seconds_per_operation > 0) operations.push_back(filling.seconds_per_operation);
                inverse.push_back(static_cast<double>(scale_.limit_bytes) / static_cast<double>(filling.live_bytes));
            }
            const std::string note = sizes(1024, largest_of_limit(scale_)) + ", limit " +
                                     std::to_string(scale_.limit_bytes) + " B, seeds 1 to " +
                                     std::to_string(inverse.size());
            add(operation + suffix, operations, nanoseconds(), note);
            add(share + suffix, inverse, {"%", Better::higher, 100}, note);
        });
    }
    int num_seeds() const { return report_.size(scale_.num_seeds, 1); }

    /// From nothing to half of the limit: memory taken from the device over live memory.
    void growth() {
        Samples samples;
        for (int seed = 1; seed <= num_seeds(); ++seed) {
            const Streams streams(machine_, 1);
            machine_.synchronize();
            const std::size_t before = machine_.free_bytes();
            const Subjects subject = make(0, std::nullopt);
            Filler<Subject> filler(*subject, streams, scale_, seed);
            if (!filler.grow_to_half()) {
                report_.skip(full("reserved_over_live"), "failed: a request was refused");
                return;
            }
            machine_.synchronize();
            samples.push_back(static_cast<double>(before - machine_.free_bytes()) /
                              static_cast<double>(filler.live_bytes()));
        }
        add("reserved_over_live", samples, {"", Better::lower, 1},
            sizes(1024, largest_of_limit(scale_)) + ", seeds 1 to " + std::to_string(samples.size()));
    }

    /// Each request of a churn timed by itself, beside the same loop around an allocator that does nothing: with as
    /// many requests, and for as long. Requests that grew or mapped count apart.
    void tails(std::size_t num_threads) {
        const std::string name = "tails_" + std::to_string(num_threads) + (num_threads == 1 ? "_thread_" : "_threads_");
        const auto& figures = tail_figures();
        if (std::none_of(figures.begin(), figures.end(), [&](const auto& f) { return wants(name + f.name); })) return;
        guarded(name + figures.front().name, [&] {
            const Streams streams(machine_, num_threads);
            const Subjects subject = make(scale_.pool_bytes, std::nullopt);
            const std::uint64_t requests = report_.size<std::uint64_t>(scale_.tail_requests, 10'000);
            const Tails measured = measure_tails(*subject, streams, scale_, requests);
            for (const TailFigure& figure : figures)
                add(name + figure.name, {figure.value(measured)}, figure.unit,
                    std::string(figure.note) + "; " + std::to_string(requests) + " requests a thread, " +
                        std::to_string(scale_.num_live / num_threads) + " live each");
        });
    }

    Report& report_;
    Machine& machine_;
    const Scale& scale_;
    Comparison& comparison_;
    const Maker<Subject>* maker_ = nullptr;
    bool is_raw_ = false;
};

}  // namespace kmm::bench
