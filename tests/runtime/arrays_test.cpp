// Arrays and copies: rows 20 to 35.
#include "harness.hpp"

#include <random>

namespace {

constexpr std::int64_t n = 120;

Host<void (*)(kmm::Range<std::int64_t>, kmm::SubviewMut<std::int64_t>)> count_up() {
    return Host<void (*)(kmm::Range<std::int64_t>, kmm::SubviewMut<std::int64_t>)>(
        [](kmm::Range<std::int64_t>, kmm::SubviewMut<std::int64_t> v) {
            for (std::int64_t i = v.begin(); i < v.end(); i++) v[i] = i;
        });
}

TEST(Row020, a_copy_of_a_handle_made_before_the_first_write_sees_the_data_also_in_another_thread) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        Array<std::int64_t> a(n);
        const Array<std::int64_t> early = a;
        std::promise<void> written;
        std::shared_future<void> is_written = written.get_future().share();
        std::vector<std::int64_t> seen;
        std::thread other([copy = a, is_written, &seen] {
            is_written.wait();
            seen = copy.copy_to_vector();
        });
        rt.parallel_submit(n, n, count_up(), _x, overwrite(a[_x]));
        written.set_value();
        other.join();
        EXPECT_EQ(seen, counting<std::int64_t>(n));
        EXPECT_EQ(early.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row021, arrays_without_elements_can_be_written_read_and_copied) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        Array<int> zero{0}, also{{0}};
        EXPECT_EQ(zero.volume(), 0);
        EXPECT_EQ(also.volume(), 0);
        rt.submit(host(), Host([](kmm::ViewMut<int> v) { EXPECT_TRUE(v.is_empty()); }), overwrite(zero));
        rt.submit(device(0), GPU([](kmm::DeviceResource& d, kmm::GPUView<int> v) {
                      EXPECT_TRUE(v.is_empty());
                      d.synchronize();
                  }),
                  zero);
        EXPECT_TRUE(zero.copy_to_vector().empty());
        zero.copy_from(std::vector<int>());
        auto wide = rt.array<float, 2>({0, 5});
        wide.fill(1.0f);
        EXPECT_TRUE(wide.copy_to_vector().empty());
        EXPECT_TRUE(rt.allocate(std::vector<int>()).copy_to_vector().empty());
        EXPECT_THROW(Array<int>(-1), kmm::InvalidArgument);
        rt.synchronize();
    });
}

TEST(Row022, reset_detaches_one_handle_which_can_be_bound_anew_with_another_chunking) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        Array<std::int64_t> a(n);
        rt.parallel_submit(n, 40, count_up(), _x, overwrite(a[_x]));
        const Array<std::int64_t> kept = a;
        a.reset();
        EXPECT_FALSE(a.has_instance());
        EXPECT_TRUE(kept.has_instance());
        rt.parallel_submit(n, 60, count_up(), _x, overwrite(a[_x]));
        EXPECT_EQ(a.distribution().num_chunks(), 2u);
        EXPECT_EQ(kept.distribution().num_chunks(), 3u);
        EXPECT_EQ(kept.copy_to_vector(), a.copy_to_vector());
    });
}

TEST(Row023, reading_an_unbound_array_throws_and_queues_nothing) {
    for_each_configuration(0, [](RuntimeHandle rt) {
        Array<std::int64_t> a(n), out(n);
        EXPECT_THROW(
            rt.submit(host(), Host([](kmm::View<std::int64_t>, kmm::ViewMut<std::int64_t>) {}), a, overwrite(out)),
            kmm::UninitializedRead);
        EXPECT_THROW(a.copy_to_vector(), kmm::UninitializedRead);
        EXPECT_FALSE(out.has_instance());
        EXPECT_FALSE(a.has_instance());
        rt.synchronize();
        EXPECT_EQ(rt.stats().tasks_submitted, 0u);
    });
}

TEST(Row024, an_explicit_array_written_in_parts_can_be_read_where_it_was_written) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        auto a = rt.array<std::int64_t>(n, Distribution<1>::single(n, MemoryId(DeviceId(0))));
        rt.parallel_submit(std::vector{chunk_of(host(), 30, 20)}, count_up(), _x, overwrite(a[_x]));
        rt.parallel_submit(std::vector{chunk_of(host(), 70, 50)}, count_up(), _x, write(a[_x]));
        std::vector<std::int64_t> part(20);
        a.copy_to(part.data(), Point<1>(30), Dim<1>(20));
        EXPECT_EQ(part, counting<std::int64_t>(20, 30));
        auto look = Host([](kmm::Subview<std::int64_t>) {});
        rt.wait(rt.submit(host(), look, a[kmm::range(70, 120)]));
        const auto error = thrown_by<kmm::UninitializedRead>([&] { rt.submit(host(), look, a[kmm::range(40, 80)]); });
        ASSERT_NE(error, nullptr);
        ASSERT_EQ(error->region().size(), 1u);
        EXPECT_EQ(error->region()[0].begin, 50);
        EXPECT_EQ(error->region()[0].end, 70);
        EXPECT_THROW(a.copy_to(part.data(), Point<1>(29), Dim<1>(20)), kmm::UninitializedRead);
        EXPECT_EQ(part, counting<std::int64_t>(20, 30));
    });
}

TEST(Row025, a_first_write_with_an_irregular_cover_binds_to_exactly_these_chunks) {
    for_each_configuration(working_set({70 * 8}), [](RuntimeHandle rt) {
        Array<std::int64_t> a(n);
        const std::vector chunks{chunk_of(host(), 100, 20), chunk_of(host(), 0, 30), chunk_of(host(), 30, 70)};
        rt.parallel_submit(chunks, count_up(), _x, overwrite(a[_x]));
        const Distribution<1> d = a.distribution();
        ASSERT_EQ(d.num_chunks(), 3u);
        for (std::size_t i = 0; i < 3; i++) {
            EXPECT_EQ(d.chunk(i).offset[0], chunks[i].offset[0]);
            EXPECT_EQ(d.chunk(i).size[0], chunks[i].size[0]);
        }
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row026, a_first_write_with_a_gap_or_an_overlap_is_refused_and_the_array_stays_usable) {
    for_each_configuration(working_set({60 * 8}), [](RuntimeHandle rt) {
        Array<std::int64_t> a(n);
        const auto gap = thrown_by<kmm::InvalidArgument>([&] {
            rt.parallel_submit(std::vector{chunk_of(host(), 0, 50), chunk_of(host(), 60, 60)},
                               count_up().named("count"), _x, overwrite(a[_x]));
        });
        ASSERT_NE(gap, nullptr);
        EXPECT_TRUE(says(*gap, "no task writes to region {50...60}")) << gap->what();
        EXPECT_TRUE(says(*gap, "whose first write is \"count\" (2 chunks)")) << gap->what();
        EXPECT_THROW(rt.parallel_submit(std::vector{chunk_of(host(), 0, 70), chunk_of(host(), 60, 60)}, count_up(), _x,
                                        overwrite(a[_x])),
                     kmm::ConflictingAccess);
        EXPECT_FALSE(a.has_instance());
        rt.parallel_submit(n, 60, count_up(), _x, overwrite(a[_x]));
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row027, first_writes_from_two_threads_bind_once_and_both_take_effect) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        for (int round = 0; round < repeat(50, 10); round++) {
            Array<std::int64_t> a(n);
            std::atomic<int> ready{0};
            std::atomic<int> exceptions{0};
            std::vector<std::thread> threads;
            for (int t = 0; t < 2; t++)
                threads.emplace_back([&, t] {
                    Array<std::int64_t> mine = a;
                    ready++;
                    while (ready.load() < 2) std::this_thread::yield();
                    try {
                        rt.submit(host(), Host([t](kmm::ViewMut<std::int64_t> v) {
                                      for (std::int64_t i = v.begin() + t; i < v.end(); i += 2) v[i] = 100 * (t + 1);
                                  }),
                                  write(mine));
                    } catch (...) {
                        exceptions++;
                    }
                });
            for (std::thread& t : threads) t.join();
            ASSERT_EQ(exceptions.load(), 0);
            const std::vector<std::int64_t> values = a.copy_to_vector();
            for (std::size_t i = 0; i < values.size(); i++) ASSERT_EQ(values[i], i % 2 == 0 ? 100 : 200);
        }
    });
}

template<std::size_t N>
void random_copies(const RuntimeHandle& rt, unsigned seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    Dim<N> shape;
    for (std::size_t k = 0; k < N; k++) shape[k] = pick(1, N <= 3 ? 9 : 3);
    // Irregular: cut in two along random axes, again and again.
    std::vector<kmm::ArrayChunk<N>> chunks{{MemoryId::host(), Point<N>(), shape}};
    for (int cut = 0; cut < 6 && N > 0; cut++) {
        kmm::ArrayChunk<N>& c = chunks[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(chunks.size()) - 1))];
        const auto axis = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(N) - 1));
        if (c.size[axis] < 2) continue;
        const std::int64_t at = pick(1, c.size[axis] - 1);
        kmm::ArrayChunk<N> rest = c;
        rest.offset[axis] += at;
        rest.size[axis] -= at;
        c.size[axis] = at;
        chunks.push_back(rest);
    }
    for (auto& c : chunks)
        if (pick(0, 2) != 0)
            c.owner_id =
                MemoryId(DeviceId(static_cast<std::uint8_t>(pick(0, static_cast<std::int64_t>(num_devices(rt)) - 1))));
    auto a = rt.array<std::int32_t, N>(shape, Distribution<N>::from_chunks(shape, chunks));
    std::vector<std::int32_t> reference(static_cast<std::size_t>(shape.volume()));
    for (auto& v : reference) v = static_cast<std::int32_t>(pick(0, 1 << 30));
    a.copy_from(reference);
    EXPECT_EQ(a.copy_to_vector(), reference);
    const auto index_of = [&](const Point<N>& p) {
        std::int64_t i = 0;
        for (std::size_t k = 0; k < N; k++) i = i * shape[k] + p[k];
        return static_cast<std::size_t>(i);
    };
    for (int round = 0; round < 4; round++) {
        Point<N> offset;
        Dim<N> size;
        for (std::size_t k = 0; k < N; k++) {
            offset[k] = pick(0, shape[k] - 1);
            size[k] = pick(1, shape[k] - offset[k]);
        }
        std::vector<std::int32_t> part(static_cast<std::size_t>(size.volume()));
        std::vector<std::size_t> places;
        for (std::int64_t i = 0; i < size.volume(); i++) {
            std::int64_t rest = i;
            Point<N> p = offset;
            for (std::size_t k = N; k-- > 0;) {
                p[k] += rest % size[k];
                rest /= size[k];
            }
            places.push_back(index_of(p));
        }
        if (round % 2 == 0) {
            a.copy_to(part.data(), offset, size);
            for (std::size_t i = 0; i < part.size(); i++)
                ASSERT_EQ(part[i], reference[places[i]]) << "rank " << N << " seed " << seed;
        } else {
            for (std::size_t i = 0; i < part.size(); i++)
                reference[places[i]] = part[i] = static_cast<std::int32_t>(pick(0, 1 << 30));
            a.copy_from(part.data(), offset, size);
            // The source is free now.
            std::fill(part.begin(), part.end(), -1);
        }
    }
    a.fill(7);
    a.copy_from(reference);
    ASSERT_EQ(a.copy_to_vector(), reference) << "rank " << N << " seed " << seed;
}

TEST(Row029, copies_of_random_shapes_and_irregular_chunks_equal_a_reference_in_every_rank) {
    for_each_configuration(working_set({9 * 9 * 9 * 9}), [](RuntimeHandle rt) {
        for (unsigned seed = 0; seed < static_cast<unsigned>(repeat(12, 3)); seed++) {
            random_copies<0>(rt, seed);
            random_copies<1>(rt, seed);
            random_copies<2>(rt, seed);
            random_copies<3>(rt, seed);
            random_copies<4>(rt, seed);
            random_copies<5>(rt, seed);
            random_copies<6>(rt, seed);
            random_copies<7>(rt, seed);
            random_copies<8>(rt, seed);
        }
    });
}

TEST(Row029, four_by_six_in_blocks_and_rows_is_row_major) {
    for_each_configuration(working_set({4 * 6 * 8}), [](RuntimeHandle rt) {
        for (const Dim<2>& chunk : {Dim<2>(2, 2), Dim<2>(1, 6), Dim<2>(4, 6), Dim<2>(3, 4)}) {
            Array<std::int64_t, 2> a({4, 6});
            rt.parallel_submit(kmm::DomainDim(6, 4), kmm::DomainDim(chunk[1], chunk[0]),
                               Host([](kmm::SubviewMut<std::int64_t, 2> v) {
                                   for (std::int64_t i = v.begin(0); i < v.end(0); i++)
                                       for (std::int64_t j = v.begin(1); j < v.end(1); j++) v[i][j] = 6 * i + j;
                               }),
                               overwrite(a[_y][_x]));
            EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(24));
        }
    });
}

TEST(Row032, a_wrong_count_throws_and_leaves_array_and_buffer_unchanged) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        auto a = rt.allocate(counting<std::int64_t>(n));
        std::vector<std::int64_t> buffer(n + 5, 77);
        EXPECT_THROW(a.copy_to(buffer.data(), n + 1), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_to(buffer.data(), -1), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_bytes_to(buffer.data(), 8 * n - 1), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_from(buffer), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_from(buffer.data(), n - 1), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_bytes_from(buffer.data(), 8 * n + 8), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_to(buffer.data(), Point<1>(100), Dim<1>(30)), kmm::InvalidArgument);
        EXPECT_THROW(a.copy_from(buffer.data(), Point<1>(-1), Dim<1>(3)), kmm::InvalidArgument);
        EXPECT_EQ(buffer, std::vector<std::int64_t>(n + 5, 77));
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row034, device_pointers_are_sources_and_destinations) {
    for_each_configuration(working_set({n * 8, n * 8}), [](RuntimeHandle rt) {
        // A device address that the program holds: here the memory of a task that has not finished.
        auto a = rt.allocate(counting<std::int64_t>(n));
        auto staging = one_chunk<std::int64_t>(rt, n);
        Gate gate;
        const OpenAtEnd open(gate);
        auto address = std::make_shared<std::promise<std::int64_t*>>();
        std::future<std::int64_t*> known = address->get_future();
        rt.submit(device(0), GPU([gate, address](kmm::DeviceResource& device, kmm::GPUViewMut<std::int64_t> v) {
                      device.fill(v, 0);
                      device.synchronize();
                      address->set_value(v.data());
                      gate.wait();
                  }),
                  overwrite(staging));
        std::int64_t* on_device = known.get();
        ASSERT_EQ(rt.memory_affinity_for_address(on_device), MemoryId(DeviceId(0)));
        a.copy_to(on_device);
        auto b = rt.array<std::int64_t>(n, Dim<1>(50));
        b.copy_from(on_device);
        gate.open();
        EXPECT_EQ(b.copy_to_vector(), counting<std::int64_t>(n));
        EXPECT_EQ(staging.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row035, the_source_may_be_overwritten_and_freed_as_soon_as_a_copy_has_returned) {
    for_each_configuration(working_set({n * 8}), [](RuntimeHandle rt) {
        auto source = std::make_unique<std::vector<std::int64_t>>(counting<std::int64_t>(n));
        auto a = rt.allocate(*source);
        auto b = rt.array<std::int64_t>(n, Dim<1>(25));
        b.copy_from(*source);
        std::fill(source->begin(), source->end(), -1);
        source.reset();
        EXPECT_EQ(a.copy_to_vector(), counting<std::int64_t>(n));
        EXPECT_EQ(b.copy_to_vector(), counting<std::int64_t>(n));
    });
}

TEST(Row037, a_failed_copy_names_the_chunk_that_is_bad_and_the_task_that_spoiled_it) {
    for_each_configuration(0, [](const RuntimeHandle& rt) {
        Array<int> a(40);
        a.named("pressure");
        rt.parallel_submit(40, 10, Host([](kmm::Range<std::int64_t> chunk, kmm::SubviewMut<int>) {
                                       if (chunk.begin == 10 || chunk.begin == 20) throw std::runtime_error("spoiled");
                                   }).named("fill"),
                           _x, write(a[_x]));
        std::vector<int> out(40, -1);
        const auto chunk_named_by = [&](const auto& copy) {
            const auto error = thrown_by<kmm::TaskError>(copy);
            if (error == nullptr) return std::string();
            EXPECT_EQ(error->task_name(), "fill");
            const std::string text = error->what(), before = "needed by task \"copy_to from pressure\" chunk ";
            const std::size_t at = text.find(before);
            EXPECT_NE(at, std::string::npos) << text;
            return at == std::string::npos
                       ? std::string()
                       : std::to_string(error->chunk_index()) + " " + text.substr(at + before.size());
        };
        // Of several the one whose task was submitted first.
        EXPECT_EQ(chunk_named_by([&] { a.copy_to(out); }), "1 1 of 4");
        EXPECT_EQ(chunk_named_by([&] { a.copy_to(out.data(), Point<1>(5), Dim<1>(10)); }), "1 1 of 4");
        EXPECT_EQ(chunk_named_by([&] { a.copy_to(out.data(), Point<1>(22), Dim<1>(18)); }), "2 2 of 4");
        EXPECT_EQ(out, std::vector<int>(40, -1));
        a.copy_to(out.data(), Point<1>(30), Dim<1>(10));
        rt.synchronize();  // all of it was delivered
    });
}

// 3000 chunks of which a task copies up to 64, and 3001 of which the last task copies fewer.
TEST(Row029, very_many_small_chunks_are_copied_by_a_task_for_several_each) {
    constexpr std::int64_t rows = 40, chunk_rows = 2, chunk_columns = 3;
    for (const std::int64_t columns : {450, 452}) {
        for_each_configuration(working_set({1024}), [=](RuntimeHandle rt) {
            const auto volume = static_cast<std::size_t>(rows * columns);
            Array<int, 2> a = rt.array<int, 2>({rows, columns}, {chunk_rows, chunk_columns});
            std::vector<int> values(volume);
            std::iota(values.begin(), values.end(), 1);
            const auto before = rt.stats().tasks_submitted;
            a.copy_from(values);
            const std::size_t num_chunks = a.distribution().num_chunks();
            // Those of the copy, and what waits for them.
            EXPECT_LE(rt.stats().tasks_submitted - before, num_chunks / 64 + 3);
            // Written where they are, so that the copy back has chunks from everywhere.
            rt.parallel_submit(
                kmm::DomainDim(columns / chunk_columns), kmm::DomainDim(10), Host([](kmm::SubviewMut<int, 2> v) {
                    for (auto y = v.begin(0); y < v.end(0); y++)
                        for (auto x = v.begin(1); x < v.end(1); x++) v[y][x] *= 2;
                }),
                write(const_cast<Array<int, 2>&>(
                    a)[kmm::range(0, chunk_rows)][kmm::range(_x * chunk_columns, _x * chunk_columns + chunk_columns)]));
            const std::vector<int> result = a.copy_to_vector();
            for (std::int64_t y = 0; y < rows; y++)
                for (std::int64_t x = 0; x < columns; x++) {
                    const auto i = static_cast<std::size_t>(y * columns + x);
                    ASSERT_EQ(result[i], y < chunk_rows && x < columns / 3 * 3 ? 2 * values[i] : values[i])
                        << "row " << y << ", column " << x;
                }
            // A region whose border lies inside chunks, with rows apart in the program's memory.
            const kmm::Bounds<2> region(kmm::Range<>(1, 39), kmm::Range<>(1, columns - 1));
            std::vector<int> part(static_cast<std::size_t>(38 * (columns - 2)));
            a.copy_to(part.data(), region);
            for (std::int64_t y = 1; y < 39; y++)
                for (std::int64_t x = 1; x < columns - 1; x++)
                    ASSERT_EQ(part[static_cast<std::size_t>((y - 1) * (columns - 2) + x - 1)],
                              result[static_cast<std::size_t>(y * columns + x)]);
            std::fill(part.begin(), part.end(), -7);
            a.copy_from(part.data(), region);
            const std::vector<int> changed = a.copy_to_vector();
            for (std::int64_t y = 0; y < rows; y++)
                for (std::int64_t x = 0; x < columns; x++) {
                    const bool inside = y >= 1 && y < 39 && x >= 1 && x < columns - 1;
                    ASSERT_EQ(changed[static_cast<std::size_t>(y * columns + x)],
                              inside ? -7 : result[static_cast<std::size_t>(y * columns + x)]);
                }
        });
    }
}

// Chunks whose sizes leave no gap between them: several are one copy of the driver's, but where one of them is missing.
TEST(Row029, small_chunks_side_by_side_and_with_gaps_between_them_come_back_from_devices_as_they_were) {
    constexpr std::int64_t num_chunks = 1000, chunk = 64, apart = 7;
    for_each_configuration(working_set({chunk * sizeof(int)}), [=](RuntimeHandle rt) {
        std::vector<int> values(num_chunks * chunk);
        std::iota(values.begin(), values.end(), 1);
        Array<int> a = rt.array<int>(num_chunks * chunk, Dim<1>(chunk));
        for (int pass = 0; pass < 2; ++pass) {
            a.copy_from(values);
            // What counts as written there is there alone.
            rt.parallel_submit(kmm::DomainDim(num_chunks * chunk), kmm::DomainDim(chunk),
                               GPU([](kmm::DeviceResource&, kmm::GPUSubviewMut<int>) {}), write(a[_x]));
            for (std::int64_t first = 0; first < num_chunks * chunk; first += apart * chunk) {
                rt.submit(host(), Host([](kmm::SubviewMut<int> v) {
                              for (auto i = v.begin(); i < v.end(); ++i) v[i] = -v[i];
                          }),
                          write(a[kmm::range(first, first + chunk)]));
                for (std::int64_t i = first; i < first + chunk; ++i) values[static_cast<std::size_t>(i)] *= -1;
            }
            ASSERT_EQ(a.copy_to_vector(), values);
        }
    });
}

// Chunks of four sizes, at home on the devices in turn.
TEST(Row028, very_many_small_chunks_are_filled_by_a_task_for_several_each) {
    const auto fill = [](const RuntimeHandle& rt, std::uint64_t* num_tasks) {
        Array<int, 2> a = rt.array<int, 2>({41, 452}, {2, 3});
        const auto before = rt.stats().tasks_submitted;
        a.fill(3);
        *num_tasks = rt.stats().tasks_submitted - before;
        for (const int value : a.copy_to_vector()) ASSERT_EQ(value, 3);
        a.fill(-4);
        for (const int value : a.copy_to_vector()) ASSERT_EQ(value, -4);
        EXPECT_LE(*num_tasks, a.distribution().num_chunks());
    };
    std::uint64_t num_tasks = 0;
    for_each_configuration(working_set({512}), [&](RuntimeHandle rt) { fill(rt, &num_tasks); });
    const RuntimeHandle roomy = kmm::make_runtime();
    fill(roomy, &num_tasks);
    EXPECT_LE(num_tasks, 21 * 151 / 64 + 1 + num_devices(roomy));
}

TEST(Row037, one_bad_chunk_of_very_many_fails_the_copy_and_names_its_task) {
    for_each_configuration(working_set({64}), [](RuntimeHandle rt) {
        constexpr std::int64_t size = 4000;
        Array<int> a = rt.array<int>(size, Dim<1>(4));
        a.fill(1);
        std::vector<int> output(size, 5);
        rt.submit(host(), Host([](kmm::SubviewMut<int>) { throw std::runtime_error("spoiled"); }).named("spoiler"),
                  write(a[kmm::range(2000, 2004)]));
        const auto error = thrown_by<kmm::TaskError>([&] { a.copy_to(output); });
        ASSERT_NE(error, nullptr);
        EXPECT_TRUE(says(*error, "spoiled")) << error->what();
        EXPECT_TRUE(says(*error, "spoiler")) << error->what();
        EXPECT_TRUE(says(*error, "chunk 500 of 1000")) << error->what();
        EXPECT_EQ(output, std::vector<int>(size, 5));
        a.copy_to(output.data(), kmm::Bounds<1>(kmm::Range<>(0, 2000)));
        EXPECT_EQ(output[1999], 1);
    });
}

}  // namespace
