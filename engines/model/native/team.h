// Several threads that compute one thing together, in steps that all finish before any goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

class Team {
 public:
  // The next of some items that nobody has taken. Each member asks until there are none, and then calls `sync`.
  int64_t next(int64_t items) {
    const int64_t found = taken.fetch_add(1, std::memory_order_relaxed);
    return found < items ? found : items;
  }

  // Waits until all `members` have called it as often.
  void sync() {
    if (members == 1) return taken.store(0, std::memory_order_relaxed);
    const int64_t turn = turns.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
      arrived.store(0, std::memory_order_relaxed);
      taken.store(0, std::memory_order_relaxed);
      turns.store(turn + 1, std::memory_order_release);
      return;
    }
    wait([&] { return turns.load(std::memory_order_acquire) != turn; });
  }

  // Waiting is short unless a processor is taken away meanwhile.
  template <class Ready>
  static void wait(Ready ready) {
    for (int64_t tries = 0; !ready(); tries++) {
      if (tries > 4096) std::this_thread::yield();
#if defined(__x86_64__) || defined(__i386__)
      else __builtin_ia32_pause();
#endif
    }
  }

  std::atomic<int64_t> members{1};

 private:
  alignas(64) std::atomic<int64_t> arrived{0};
  alignas(64) std::atomic<int64_t> turns{0};
  alignas(64) std::atomic<int64_t> taken{0};
};

// One thread of a team.
struct Member {
  Team& team;
  int64_t number;

  void sync() { team.sync(); }
  int64_t from(int64_t items) const { return items * number / team.members; }
  int64_t to(int64_t items) const { return items * (number + 1) / team.members; }
};

// Threads of the OpenMP library that torch uses, by functions that the one of GNU has and that of LLVM, too. null: there
// is none.
struct Threads {
  void (*parallel)(void (*run)(void*), void* with, unsigned threads, unsigned flags);  // GOMP_parallel
  int (*count)();                                                                      // omp_get_num_threads
};
inline Threads lent{};

// Calls work(member) in each of at most `threads` threads at the same time.
template <class Work>
void together(int64_t threads, Work work) {
  struct Shared {
    Work& work;
    Team team;
    std::atomic<int64_t> joined{0};
  } shared{work};
  if (threads < 1) return;
  if (threads == 1 || !lent.parallel) {
    Member alone{shared.team, 0};
    return work(alone);
  }
  const auto run = [](void* pointer) {
    Shared& all = *(Shared*)pointer;
    Member member{all.team, all.joined.fetch_add(1)};
    all.team.members.store(lent.count(), std::memory_order_relaxed);  // by each the same
    all.work(member);
  };
  lent.parallel(run, &shared, threads, 0);
}
