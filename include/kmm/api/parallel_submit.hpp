// How a submit becomes tasks: arguments are evaluated for each chunk of the domain and handed to the runtime.
//
// Owns: the templates behind RuntimeHandle::submit and parallel_submit. Must not know: how tasks are run. The
// submitting thread; `TaskPayload::run` on a thread of the library. C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kmm/api/argument.hpp"
#include "kmm/api/launcher.hpp"
#include "kmm/core/domain.hpp"
#include "kmm/core/resource.hpp"
#include "kmm/core/system_info.hpp"
#include "kmm/detail/kernel_task.hpp"
#include "kmm/detail/late_kernel.hpp"
#include "kmm/detail/meta.hpp"
#include "kmm/detail/runtime_core.hpp"
#include "kmm/detail/submit_checks.hpp"

namespace kmm {
namespace detail {

// ---- what each kind of launcher stores in a task, and how it is called

/// The program's own launchers: stored whole, called with resource and chunk.
template<typename L>
struct LauncherTraits {
    static constexpr LauncherInfo::Kind kind =
        L::execution_space == ExecutionSpace::Host ? LauncherInfo::Kind::host : LauncherInfo::Kind::device_function;
    using stored_type = L;
    static const L& stored(const L& launcher) noexcept { return launcher; }
    template<typename... Args>
    static void call(L& launcher, TaskContext& context, Args&... args) {
        if constexpr (std::is_invocable_v<L&, Resource&, const DomainChunk&, Args&...>) {
            launcher(*context.resource, *context.chunk, args...);
        } else {
            launcher(*context.resource, *context.chunk, std::move(args)...);
        }
    }
};

template<typename F>
struct LauncherTraits<Host<F>> {
    static constexpr LauncherInfo::Kind kind = LauncherInfo::Kind::host;
    using stored_type = F;
    static const F& stored(const Host<F>& launcher) noexcept { return launcher.function(); }
    template<typename... Args>
    static void call(F& function, TaskContext&, Args&... args) {
        call_host_function(function, args...);
    }
};

template<typename F>
struct LauncherTraits<GPU<F>> {
    static constexpr LauncherInfo::Kind kind = LauncherInfo::Kind::device_function;
    using stored_type = F;
    static const F& stored(const GPU<F>& launcher) noexcept { return launcher.function(); }
    template<typename... Args>
    static void call(F& function, TaskContext& context, Args&... args) {
        call_device_function(function, static_cast<DeviceResource&>(*context.resource), args...);
    }
};

template<typename F>
struct LauncherTraits<GPUKernel<F>> {
    static constexpr LauncherInfo::Kind kind = LauncherInfo::Kind::kernel;
};

// ---- what messages say about a launcher; all three members are optional in the program's own

template<typename L, typename = void>
struct LauncherName {
    static std::string get(const L&) { return std::string(); }
};
template<typename L>
struct LauncherName<L, std::void_t<decltype(std::declval<const L&>().name())>> {
    static decltype(auto) get(const L& launcher) { return launcher.name(); }
};

template<typename L, typename = void>
struct LauncherLocation {
    static SourceLocation get(const L&) noexcept { return SourceLocation(); }
};
template<typename L>
struct LauncherLocation<L, std::void_t<decltype(std::declval<const L&>().location())>> {
    static SourceLocation get(const L& launcher) { return launcher.location(); }
};

template<typename L, typename = void>
struct LauncherScratch {
    static std::size_t get(const L&, const DomainChunk&) noexcept { return 0; }
};
template<typename L>
struct LauncherScratch<
    L, std::void_t<decltype(std::declval<const L&>().scratch_bytes(std::declval<const DomainChunk&>()))>> {
    static std::size_t get(const L& launcher, const DomainChunk& chunk) { return launcher.scratch_bytes(chunk); }
};

template<typename L>
void check_function(const L& launcher) {
    if constexpr (LauncherTraits<L>::kind == LauncherInfo::Kind::kernel) {
        if (launcher.kernel() == nullptr) throw_no_function();
    } else if constexpr (std::is_pointer_v<typename LauncherTraits<L>::stored_type>) {
        if (LauncherTraits<L>::stored(launcher) == nullptr) throw_no_function();
    }
}

// ---- a task that calls a function

/// The copy of the function and the stored arguments of one task.
template<typename L, ExecutionSpace Space, typename... S>
struct TaskPayload {
    typename LauncherTraits<L>::stored_type function;
    std::tuple<S...> arguments;

    static void run(void* payload, TaskContext& context) {
        run(*static_cast<TaskPayload*>(payload), context, std::index_sequence_for<S...>());
    }
    static void destroy(void* payload) noexcept { static_cast<TaskPayload*>(payload)->~TaskPayload(); }

  private:
    template<std::size_t... I>
    static void run(TaskPayload& self, TaskContext& context, std::index_sequence<I...>) {
        call(self.function, context, ArgumentUnpack<Space, S>::call(context, std::get<I>(self.arguments))...);
    }
    // Names the unpacked arguments, so that the function sees lvalues.
    template<typename F, typename... Args>
    static void call(F& function, TaskContext& context, Args&&... args) {
        LauncherTraits<L>::call(function, context, args...);
    }
};

/// Builds the tasks of one submit. `Handlers` are the argument handlers; they live on the caller's stack.
template<typename L, typename... Handlers>
class TaskBuilder {
  public:
    TaskBuilder(RuntimeCore& core, Runtime& runtime, const L& launcher, Submission& submission,
                std::tuple<Handlers...>& handlers)
        : core_(core), runtime_(runtime), launcher_(launcher), submission_(submission), handlers_(handlers) {}

    void add(const DomainChunk& chunk) { add(chunk, std::index_sequence_for<Handlers...>()); }

  private:
    template<std::size_t... I>
    void add(const DomainChunk& chunk, std::index_sequence<I...> indices) {
        TaskInstance instance{runtime_, chunk, chunk.owner_id.as_memory(), submission_, 0};
        if constexpr (LauncherTraits<L>::kind == LauncherInfo::Kind::kernel) {
            add_kernel(chunk, instance, indices);
        } else {
            using Payload = TaskPayload<L, L::execution_space, typename Handlers::type...>;
            submission_.begin_task(chunk.owner_id, chunk, TaskSize{num_accesses, sizeof(Payload)});
            void* memory = submission_.allocate_payload(sizeof(Payload), alignof(Payload));
            // Braces: the handlers are called from left to right.
            auto* payload = new (memory) Payload{LauncherTraits<L>::stored(launcher_),
                                                 std::tuple<typename Handlers::type...>{before_submit<I>(instance)...}};
            submission_.set_body(payload, TaskBody{&Payload::run, &Payload::destroy});
        }
    }

    template<std::size_t... I>
    void add_kernel(const DomainChunk& chunk, TaskInstance& instance, std::index_sequence<I...>) {
        using Signature = typename KernelSignature<typename L::function_type>::type;
        constexpr bool is_late = builds_late_v<L, typename Handlers::type...>;
        using Recipe = std::conditional_t<is_late, LateKernel<Signature, typename Handlers::type...>,
                                          KernelRecipe<Signature, typename Handlers::type...>>;
        submission_.begin_task(chunk.owner_id, chunk,
                               TaskSize{num_accesses, is_late ? sizeof(Recipe) : std::size_t{Recipe::parameter_bytes},
                                        Recipe::num_fields});
        std::tuple<typename Handlers::type...> stored{before_submit<I>(instance)...};
        const DeviceInfo& device = runtime_info(core_).device(chunk.owner_id.as_device());
        KernelDraft draft;
        // An empty chunk launches nothing: the task has accesses and no kernel.
        const bool launches = set_launch_dimensions(launcher_.geometry(), chunk, device, draft);
        if (launches) {
            draft.function = kernel_handle(launcher_.kernel(), device.device_ordinal());
            draft.parameter_bytes = Recipe::parameter_bytes;
        }
        if constexpr (is_late) {
            void* memory = submission_.allocate_payload(sizeof(Recipe), alignof(Recipe));
            submission_.set_body(new (memory) Recipe{draft, std::move(stored)},
                                 TaskBody{&Recipe::run, &Recipe::destroy});
        } else if (launches) {
            // As in a Host function, an argument that does not fit its parameter is a failure of the task.
            try {
                Recipe::submit(submission_, draft, std::get<I>(stored)...);
            } catch (...) {
                submission_.fail_task(std::current_exception());
            }
        }
    }

    template<std::size_t I>
    decltype(auto) before_submit(TaskInstance& instance) {
        instance.argument = static_cast<std::uint32_t>(I);
        return std::get<I>(handlers_).before_submit(instance);
    }

    // Those of structures are not counted.
    static constexpr std::size_t num_accesses = (std::size_t{IsStoredView<typename Handlers::type>::value} + ... + 0);

    RuntimeCore& core_;
    Runtime& runtime_;
    const L& launcher_;
    Submission& submission_;
    std::tuple<Handlers...>& handlers_;
};

template<typename T>
using handler_of_t = ArgumentHandler<std::decay_t<T>>;

/// Calls `submit` with what messages say about the launcher, which its errors carry.
template<typename L, typename F>
EventId with_launcher_info(const L& launcher, const F& submit) {
    auto&& name = LauncherName<L>::get(launcher);
    LauncherInfo info;
    info.kind = LauncherTraits<L>::kind;
    if constexpr (LauncherTraits<L>::kind == LauncherInfo::Kind::kernel) info.mode = kernel_mode;
    info.name = name.empty() ? nullptr : name.data();
    info.name_length = name.size();
    info.location = LauncherLocation<L>::get(launcher);
    try {
        return submit(info);
    } catch (const Error&) {
        rethrow_with_submit(info);
    }
}

/// Queues one task for each chunk, on what the handle may use: `system`. `domain` is null for a single chunk of
/// `submit`.
template<typename L, typename... Args>
EventId submit_chunks(RuntimeCore& core, const SystemInfo& system, DomainChunk* chunks, std::size_t num_chunks,
                      const Domain* domain, const LauncherInfo& info, const L& launcher, Args&&... args) {
    if constexpr (LauncherTraits<L>::kind == LauncherInfo::Kind::kernel) runtime_check_kernel_mode(core, info);
    check_function(launcher);
    for (std::size_t i = 0; i < num_chunks; i++) {
        chunks[i].owner_id = task_resource(chunks[i].owner_id, L::execution_space, system);
        check_scratch(LauncherScratch<L>::get(launcher, chunks[i]));
    }

    Runtime& runtime = runtime_face(core);
    std::tuple<handler_of_t<Args>...> handlers{handler_of_t<Args>(std::forward<Args>(args))...};
    if constexpr (!(IgnoresDomain<handler_of_t<Args>>::value && ...)) {
        Domain single;
        if (domain == nullptr) {
            single.chunks.assign(chunks, chunks + num_chunks);
            domain = &single;
        }
        std::apply([&](auto&... handler) { (handler.initialize(TaskGroupInit{runtime, *domain}), ...); }, handlers);
    }
    static_cast<void>(domain);

    Submission submission(core, info);
    TaskBuilder<L, handler_of_t<Args>...> builder(core, runtime, launcher, submission, handlers);
    for (std::size_t i = 0; i < num_chunks; i++) {
        builder.add(chunks[i]);
    }
    std::apply([&](auto&... handler) { (handler.commit(TaskGroupCommit{runtime}), ...); }, handlers);
    const EventId event = submission.commit();
    std::apply([&](auto&... handler) { (handler.after_submit(TaskSubmissionResult{runtime, event}), ...); }, handlers);
    return event;
}

template<typename L, typename... Args>
EventId submit_one(RuntimeCore& core, const SystemInfo& system, ResourceId target, const L& launcher, Args&&... args) {
    return with_launcher_info(launcher, [&](const LauncherInfo& info) {
        DomainChunk chunk{target, DomainPoint(), DomainDim()};
        return submit_chunks(core, system, &chunk, 1, nullptr, info, launcher, std::forward<Args>(args)...);
    });
}

/// Whether IntoDomain is defined for a type; numbers are sizes.
template<typename D, typename = void>
struct HasIntoDomain : std::false_type {};
template<typename D>
struct HasIntoDomain<D, std::void_t<decltype(IntoDomain<D>::call(std::declval<D>(), std::declval<const SystemInfo&>(),
                                                                 ExecutionSpace()))>> : std::true_type {};

template<typename D, typename L, typename... Args>
EventId submit_domain(RuntimeCore& core, const SystemInfo& system, D&& kind, const L& launcher, Args&&... args) {
    using Kind = std::decay_t<D>;
    static_assert(HasIntoDomain<Kind>::value || std::is_convertible_v<Kind, DomainDim>,
                  "the first argument of parallel_submit is no domain: use TileDomain, BlockDomain, CyclicDomain, a "
                  "size, a list of "
                  "DomainChunks, or specialise kmm::IntoDomain");
    using Converted = std::conditional_t<HasIntoDomain<Kind>::value, Kind, DomainDim>;
    return with_launcher_info(launcher, [&](const LauncherInfo& info) {
        Domain domain = IntoDomain<Converted>::call(Converted(std::forward<D>(kind)), system, L::execution_space);
        return submit_chunks(core, system, domain.chunks.data(), domain.chunks.size(), &domain, info, launcher,
                             std::forward<Args>(args)...);
    });
}

}  // namespace detail
}  // namespace kmm
